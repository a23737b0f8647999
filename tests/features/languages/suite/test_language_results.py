"""Tests apart from the completion, in other languages: what decides, and what right programs may have."""

from __future__ import annotations

import pytest
from harness import Service
from installed import are_installed
from judging import judge

from proctor_service.settings.languages import LANGUAGES

LIMITS = {"cpu_seconds": 60, "wall_seconds": 60, "memory_mb": 1024}


def verdicts(
    service: Service, language: str, tests: str, *programs: str, setup: str = ""
) -> list[str]:
    """The verdicts of programs; empty where the language is not installed."""
    if not are_installed(LANGUAGES[language].needs):
        return []
    grader = {"kind": "exec", "tests": tests, "setup": setup}
    items = [{"completion": each, "language": language} for each in programs]
    return [each["verdict"] for each in judge(service, *items, grader=grader, limits=LIMITS)]


RUST = "pub fn twice(n: i32) -> i32 { %s }"
CSHARP = "using System; class Solution { public static int Twice(int n) { return %s; } }"
DECIDED: dict[str, tuple[str, str, str, str]] = {
    "bash, set -e": (
        "bash",
        'set -e\n[ "$(twice 4)" = 8 ]\n[ "$(twice 0)" = 0 ]',
        'twice() { echo $(( 2 * $1 )); }',
        'twice() { echo 0; }',
    ),
    "bash, set -e in a function": (
        "bash",
        'set -e\nrun_test() {\n  [[ $(twice 4) = 8 ]]\n  [[ $(twice 0) = 0 ]]\n}\nrun_test',
        'set -euo pipefail\ntwice() { echo $(( 2 * $1 )); }',
        'twice() { echo 0; }',
    ),
    "C#, a task": (
        "csharp",
        "using System; using System.Threading.Tasks; class Tests { static async Task Main() {"
        ' await Task.Yield(); if (Solution.Twice(4) != 8) throw new Exception("no"); } }',
        CSHARP % "2 * n",
        CSHARP % "n",
    ),
    "C#, a task with a number": (
        "csharp",
        "using System.Threading.Tasks; class Tests { static async Task<int> Main() {"
        " await Task.Yield(); return Solution.Twice(4) == 8 ? 0 : 3; } }",
        CSHARP % "2 * n",
        CSHARP % "n",
    ),
    "Rust, a result": (
        "rust",
        'fn main() -> Result<(), String> { if twice(4) != 8 { return Err("no".into()) } Ok(()) }',
        RUST % "2 * n",
        RUST % "n",
    ),
    "Rust, an exit code": (
        "rust",
        "use std::process::ExitCode;\nfn main() -> ExitCode {"
        " if twice(4) == 8 { ExitCode::SUCCESS } else { ExitCode::from(3) } }",
        RUST % "2 * n",
        RUST % "n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(DECIDED))
def test_what_the_tests_end_with_decides(service: Service, name: str) -> None:
    language, tests, right, wrong = DECIDED[name]
    found = verdicts(service, language, tests, right, wrong)
    assert not found or (found[0] == "passed" and found[1] != "passed"), found


RUST_TEST = (
    "fn main() { assert_eq!(twice(4), 8); assert_eq!(std::convert::identity(twice(0)), 0); }"
)
TYPESCRIPT_IMPORTS = (
    "import assert from 'assert';\nimport { inspect } from 'util';\nimport * as fs from 'fs';"
)
HONEST: dict[str, tuple[str, str, str, str]] = {
    "Rust of today": (
        "rust", RUST_TEST, "",
        "mod numbers { pub fn double(n: i32) -> i32 { i64::try_from(n).unwrap() as i32 * 2 } }\n"
        "use crate::numbers::double;\nuse numbers::double as other;\n"
        "enum Way { Up, Down }\nuse Way::*;\n"
        "pub fn twice(n: i32) -> i32 { match if n > 0 { Up } else { Down } {"
        " Up => double(n), Down => [n].into_iter().map(|x| other(x)).sum::<i32>() } }\n"
        'fn main() { println!("{}", twice(1)); }',
    ),
    "Rust, the same import": (
        "rust", RUST_TEST, "use std::collections::HashMap;",
        "use std::collections::HashMap;\n"
        "pub fn twice(n: i32) -> i32 { let mut m = HashMap::new(); m.insert(n, 2 * n); m[&n] }",
    ),
    "Go, the same imports": (
        "go", 'func main() { if twice(4) != 8 { panic("no") } }', 'import "fmt"\nimport "sort"',
        'import (\n\t"fmt"\n\t"strconv"\n)\n\nfunc twice(n int) int {\n\tsort.Ints(nil)\n'
        "\tm, _ := strconv.Atoi(fmt.Sprint(2 * n))\n\treturn m\n}",
    ),
    "Go, a package and imports for it": (
        "go", 'func main() { if twice(4) != 8 { panic("no") } }', 'import "sort"',
        'package main\n\nimport "sort"\n\nfunc twice(n int) int {\n\tsort.Ints(nil)\n\treturn 2 * n\n}',
    ),
    "JavaScript, the same require": (
        "javascript", "assert.strictEqual(twice(4), 8);", "const assert = require('assert');",
        "const assert = require('assert');\nfunction twice(n) { assert(n >= 0); return 2 * n; }",
    ),
    "Lua, locals": (
        "lua", "assert(twice(4) == 8)", "local base = 1",
        "local count = 0\nlocal function times(n, by) return n * by end\n"
        "local function twice(n) count = count + 1; return times(n, 2 * base) end",
    ),
    "TypeScript, the same imports": (
        "typescript", "import assert from 'assert';\nassert.strictEqual(twice(4), 8);",
        f"{TYPESCRIPT_IMPORTS}\nfunction known(n: number) {{ assert(inspect(n)); fs.existsSync('/'); }}",
        f"{TYPESCRIPT_IMPORTS}\nfunction twice(n: number): number {{"
        " known(n); assert(inspect(n).length > 0 && fs.existsSync('/')); return 2 * n; }",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(HONEST))
def test_what_a_right_program_may_have(service: Service, name: str) -> None:
    language, tests, setup, right = HONEST[name]
    wrong = right.replace("2", "3")
    found = verdicts(service, language, tests, right, wrong, setup=setup)
    assert not found or (found[0] == "passed" and found[1] != "passed"), found


def test_the_limits_of_a_program_are_not_those_of_its_compiler(service: Service) -> None:
    programs = {
        "cpp": '#include <bits/stdc++.h>\nint main() { std::map<int, std::string> m; m[1] = "a"; }',
        "java": "class Main { public static void main(String[] a) { } }",
        "kotlin": "fun main() { }",
    }
    items = [
        {
            "completion": text,
            "language": name,
            "limits": {"cpu_seconds": seconds, "memory_mb": memory},
        }
        for name, text, seconds, memory in (
            ("cpp", programs["cpp"], 0.5, 32),
            ("java", programs["java"], 10, 200),
            ("kotlin", programs["kotlin"], 10, 200),
        )
        if are_installed(LANGUAGES[name].needs)
    ]
    results = judge(service, *items, grader={"kind": "exec"})
    assert [each["verdict"] for each in results] == ["passed"] * len(items), results


def test_parallel_tests_of_go_are_all_counted(service: Service) -> None:
    if not are_installed(LANGUAGES["go_test"].needs):
        return
    names = [f"Test{number}" for number in range(40)]
    tests = "".join(
        f"func {name}(t *testing.T) {{ t.Parallel(); if twice(2) != 4 {{ t.Fail() }} }}\n"
        for name in names
    )
    files = {"twice_test.go": f'package solution\n\nimport "testing"\n\n{tests}'}
    grader = {"kind": "command", "runner": "go_test", "files": files}
    items = [
        {"completion": f"func twice(n int) int {{ return {value} }}", "language": "go"}
        for value in ("2 * n", "n")
    ]
    right, wrong = judge(service, *items, grader=grader, limits=LIMITS)
    assert (right["verdict"], right["tests"]["passed"]) == ("passed", 40), right
    assert (wrong["verdict"], wrong["tests"]["passed"]) == ("failed", 0), wrong
