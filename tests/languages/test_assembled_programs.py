"""Preludes and prompts in every language: bodies, whole functions and whole files, judged in one request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness import Service
from judging import judge

LIMITS = {"cpu_seconds": 20, "memory_mb": 1024, "wall_seconds": 20}


@dataclass(frozen=True)
class Sample:
    """A task of one language: `f(3)` is 7. `answers` are right, each in another form; `wrong` is not."""

    tests: str
    prompt: str
    answers: tuple[str, ...]
    wrong: str
    prelude: str = ""


SAMPLES: dict[str, Sample] = {
    "c": Sample(
        "#include <assert.h>\nint main() { assert(f(3) == 7); }",
        "#include <stdlib.h>\n#define ONE 1\n/* Twice and one more. */\nint f(int n) {\n",
        ("    return g(n) + ONE;\n}\n", "    return g(n) + ONE;", "    if (n == '{') {\n        return 0;\n    }\n    return g(n) + 1;\n}",
         "#include <stdlib.h>\nint f(int n) {\n    return abs(g(n)) + ONE;\n}"),
        "    return n;\n}\n",
        "int g(int n) { return 2 * n; }",
    ),
    "cpp": Sample(
        "#include <cassert>\nint main() { assert(f(vector<int>{1, 2}) == 7); }",
        "#include <vector>\n#include <numeric>\nusing namespace std;\nint f(vector<int> xs) {\n",
        ("    return 2 * accumulate(xs.begin(), xs.end(), 0) + ONE;\n}\n",
         "#include <bits/stdc++.h>\nusing namespace std;\nint f(vector<int> xs) {\n    int s = ONE;\n    for (int x : xs) s += 2 * x;\n    return s;\n}"),
        "    return 0;\n}\n",
        "const int ONE = 1;",
    ),
    "java": Sample(
        "public class Main { public static void main(String[] a) { if (new Solution().f(List.of(3)) != 7) throw new RuntimeException(); } }".replace("List", "java.util.List"),
        "import java.util.*;\nimport java.util.stream.*;\n\nclass Solution {\n    /** Doc. */\n    public int f(List<Integer> xs) {\n",
        ("        return 2 * xs.get(0) + One.ONE;\n    }\n}", "        return 2 * xs.get(0) + 1;\n    }\n", "        return 2 * xs.get(0) + 1;",
         "import java.util.List;\n\nclass Solution {\n    public int f(List<Integer> xs) {\n        return xs.stream().collect(Collectors.toList()).get(0) * 2 + One.ONE;\n    }\n}",
         "public int f(List<Integer> xs) {\n    return 2 * xs.get(0) + One.ONE;\n}"),
        "        return 0;\n    }\n}",
        "import java.util.function.*;\npublic class One { static final int ONE = 1; }",
    ),
    "go": Sample(
        "package main\nfunc main() { if f(3) != 7 { panic(1) } }",
        "package main\n\nimport (\n    \"fmt\"\n    \"math\"\n)\n\n// Twice.\nfunc f(n int) int {\n",
        ("    return int(math.Abs(float64(2*n))) + one\n}\n", "    return 2*n + 1\n}\n", "    return 2*n + 1",
         "package main\n\nimport \"math\"\n\nfunc f(n int) int {\n    return int(math.Floor(float64(2*n))) + one\n}",
         "func f(n int) int {\n    fmt.Print()\n    return 2*n + 1\n}"),
        "    return 0\n}\n",
        "import \"strings\"\nconst one = 1",
    ),
    "rust": Sample(
        "fn main() { assert_eq!(f(3), 7); }",
        "use std::collections::HashMap;\n\n/// Twice.\nfn f<'a>(n: i64) -> i64 {\n",
        ("    let _m: HashMap<i64, i64> = HashMap::new();\n    2 * n + ONE\n}\n", "    2 * n + 1",
         "use std::collections::{HashMap, HashSet};\n\nfn f(n: i64) -> i64 {\n    let _m: HashMap<i64, i64> = HashMap::new();\n    let _s: HashSet<i64> = HashSet::new();\n    2 * n + ONE\n}"),
        "    n\n}\n",
        "use std::collections::*;\nuse std::io::{\n    self,\n};\nconst ONE: i64 = 1;",
    ),
    "javascript": Sample(
        "require('assert').strictEqual(f(3), 7)",
        "const path = require('path');\n\n// Twice.\nconst f = (n) => {\n",
        ("  return 2 * n + one;\n}\n", "  return 2 * n + Number(Boolean(path.sep));",
         "const path = require('path');\nconst { readFileSync } = require('fs');\nconst f = (n) => {\n  return 2 * n + one;\n};",
         "function f(n) {\n  return 2 * n + one;\n}"),
        "  return n;\n}\n",
        "const fs = require(\"fs\");\nconst { readFileSync, sep } = require('fs');\nconst one = 1;",
    ),
    "typescript": Sample(
        "import * as assert from 'assert';\nassert.strictEqual(f(3), 7)",
        "import * as path from 'path';\n\nfunction f(n: number): number {\n",
        ("  return 2 * n + one;\n}\n", "import * as path from 'path';\nfunction f(n: number): number {\n  return 2 * n + one;\n}"),
        "  return n;\n}\n",
        "import * as fs from 'fs';\nconst one: number = 1;",
    ),
    "kotlin": Sample(
        "fun main() { check(f(listOf(3)) == 7) }",
        "import kotlin.math.abs\n\nfun f(xs: List<Int>): Int {\n",
        ("    return abs(2 * xs[0]) + ONE\n}\n", "import kotlin.math.*\n\nfun f(xs: List<Int>): Int {\n    return 2 * max(xs[0], 0) + ONE\n}"),
        "    return 0\n}\n",
        "import java.util.*\nconst val ONE = 1",
    ),
    "scala": Sample(
        "object Main extends App { assert(Solution.f(3) == 7) }",
        "import scala.math._\n\nobject Solution {\n  def f(n: Int): Int = {\n",
        ("    abs(2 * n) + One.one\n  }\n}", "    abs(2 * n) + 1\n  }\n", "object Solution {\n  def f(n: Int): Int = abs(2 * n) + One.one\n}"),
        "    0\n  }\n}",
        "object One { val one = 1 }",
    ),
    "csharp": Sample(
        "class T { static void Main() { if (Solution.F(3) != 7) throw new System.Exception(); } }",
        "using System;\nusing System.Linq;\n\nclass Solution {\n    public static int F(int n) {\n",
        ("        return Math.Abs(2 * n) + One.ONE;\n    }\n}", "        return 2 * n + 1;\n    }\n",
         "using System;\nusing System.Collections.Generic;\n\nclass Solution {\n    public static int F(int n) {\n        return Math.Abs(2 * n) + One.ONE;\n    }\n}"),
        "        return 0;\n    }\n}",
        "using System.Text;\npublic class One { public const int ONE = 1; }",
    ),
    "php": Sample(
        "<?php if (f(3) !== 7) { throw new Exception(); }",
        "<?php\n\n// Twice.\nfunction f($n) {\n",
        ("    return 2 * $n + ONE;\n}\n", "    return 2 * $n + 1;", "<?php\ndeclare(strict_types=1);\nfunction f($n) {\n    return 2 * $n + ONE;\n}", "function f($n) {\n    return 2 * $n + 1;\n}\n?>"),
        "    return 0;\n}\n",
        "<?php\nconst ONE = 1;\n?>",
    ),
    "ruby": Sample(
        "raise unless f(3) == 7",
        "require 'set'\n\n# Twice.\ndef f(n)\n",
        ("  2 * n + ONE\nend\n", "#!/usr/bin/ruby\ndef f(n)\n  2 * n + ONE\nend"),
        "  n\nend\n",
        "ONE = 1",
    ),
    "perl": Sample(
        "f(3) == 7 or die;",
        "use strict;\n\n# Twice.\nsub f {\n    my($n) = @_;\n",
        ("    return 2 * $n + one();\n}\n", "    return 2 * $n + 1;", "#!/usr/bin/perl\nsub f {\n    my($n) = @_;\n    return 2 * $n + one();\n}"),
        "    return 0;\n}\n",
        "sub one { return 1; }",
    ),
    "lua": Sample(
        "assert(f(3) == 7)",
        "-- Twice.\nfunction f(n)\n",
        ("  return 2 * n + one\nend\n", "function f(n)\n  return 2 * n + one\nend"),
        "  return n\nend\n",
        "one = 1",
    ),
    "r": Sample(
        "stopifnot(f(3) == 7)",
        "# Twice.\nf <- function(n) {\n",
        ("  2 * n + one\n}\n", "f <- function(n) {\n  2 * n + one\n}"),
        "  n\n}\n",
        "one <- 1",
    ),
    "bash": Sample(
        "[ \"$(f 3)\" = 7 ] || exit 1",
        "#!/bin/bash\n# Twice.\nf() {\n",
        ("    echo $((2 * $1 + one))\n}\n", "    echo $((2 * $1 + 1))", "#!/bin/bash\nf() {\n    echo $((2 * $1 + one))\n}"),
        "    echo 0\n}\n",
        "one=1",
    ),
}  # fmt: skip


def _submission(language: str, sample: Sample, completion: str, **more: Any) -> dict[str, Any]:
    name = "F" if language == "csharp" else "f"
    return {
        "completion": completion,
        "language": language,
        "limits": LIMITS,
        "prelude": sample.prelude,
        "prompt_code": sample.prompt,
        "grader": {"kind": "exec", "tests": sample.tests, "entry_point": name},
        **more,
    }


def test_bodies_whole_functions_and_files_in_every_language(service: Service) -> None:
    rows = []
    for language, sample in SAMPLES.items():
        rows += [(language, each, 1.0) for each in sample.answers]
        rows += [(language, f"Here:\n```{language}\n{sample.answers[-1]}\n```", 1.0)]
        rows += [(language, sample.wrong, 0.0)]
    items = [_submission(language, SAMPLES[language], text) for language, text, _ in rows]
    results = judge(service, *items, extract="auto")
    differ = [
        (language, text, result["verdict"], result["message"][-600:])
        for (language, text, reward), result in zip(rows, results, strict=True)
        if result["reward"] != reward
    ]
    assert differ == []
