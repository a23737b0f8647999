"""`exec` with `setup` and `tests`: each language, early exits, and completions that hide them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import Service, running_service
from installed import is_language_here
from judging import judge

from proctor_service.settings import Settings
from proctor_service.settings.languages import SANDBOX_PATH

LIMITS = {"cpu_seconds": 20, "memory_mb": 1024, "wall_seconds": 20}


@dataclass(frozen=True)
class Samples:
    """Sources of one language. `right` doubles a number, `wrong` does not; `hacks` earn no reward.

    `wrong` is empty where a compiler takes seconds.
    """

    setup: str
    right: str
    wrong: str
    tests: str
    hacks: tuple[str, ...]


def _java(body: str, more: str = "") -> str:
    return f"class Solution {{ {more} static int twice(int n) {{ {body} }} }}"


def _csharp(body: str, more: str = "") -> str:
    return f"class Solution {{ {more} public static int Twice(int n) {{ {body} }} }}"


SAMPLES = {
    "python": Samples(
        "factor = 2",
        "def twice(n): return factor * n\nif __name__ == '__main__': raise SystemExit(1)",
        "def twice(n): return n",
        "assert twice(4) == 8",
        (
            "import os; os._exit(0)",
            "raise SystemExit(0)",
            "def twice(n): raise SystemExit(0)",
            "def twice(n): return 8\n'''",
        ),
    ),
    "bash": Samples(
        "factor=2",
        "twice() { echo $((factor * $1)); }",
        "twice() { echo $1; }",
        '[ "$(twice 4)" = 8 ] || exit 1',
        (
            "exit 0",
            "trap 'exit 0' EXIT",
        ),
    ),
    "javascript": Samples(
        "const factor = 2;",
        "const assert = require('assert');\nfunction twice(n) { return factor * n; }\n"
        "if (require.main === module) process.exit(1);",
        "const twice = (n) => n;",
        "const assert = require('assert');\n"
        "async function test() { assert.equal(await twice(4), 8); }\ntest();",
        (
            "process.exit(0)",
            "const twice = (n) => process.exit(0)",
            "const twice = (n) => new Promise(() => {})",
            "const twice = (n) => 1; /*",
            "const twice = (n) => { process.emit('beforeExit'); process.exit(0) }",
        ),
    ),
    "typescript": Samples(
        "const factor: number = 2;",
        "export function twice(n: number): number { return factor * n; }",
        "function twice(n: number): number { return n; }",
        "import * as assert from 'assert';\nassert.equal(twice(4), 8);",
        ("process.exit(0);", "const twice = (n: number) => process.exit(0);"),
    ),
    "c": Samples(
        "#define FACTOR 2",
        "int twice(int n) { return FACTOR * n; }\nint write(int n) { return n; }\n"
        "int main(void) { return 1; }",
        "int twice(int n) { return n; }",
        "#include <assert.h>\nint main(void) { if (1 == 2) return 1; assert(twice(4) == 8); }",
        (
            "#include <stdlib.h>\nint twice(int n) { exit(0); }",
            "#include <stdlib.h>\n__attribute__((constructor)) void f(void) { exit(0); }\n"
            "int twice(int n) { return 0; }",
            "#include <setjmp.h>\n#include <signal.h>\n#include <stdlib.h>\n"
            "static void leave(int n) { _Exit(0); }\n"
            "int twice(int n) { signal(SIGABRT, leave); return 0; }",
        ),
    ),
    "cpp": Samples(
        "#include <string>\nusing namespace std;",
        "int twice(int n) { return 2 * n; }",
        "int twice(int n) { return n; }",
        "#include <cassert>\nint main() { string s = \"x\"; assert(twice(4) == 8); assert(s == \"x\"); }",
        (
            "#include <cstdlib>\nstruct Now { Now() { exit(0); } } now;\nint twice(int n) { return 0; }",
            "#include <unistd.h>\nint twice(int n) { _exit(0); }",
        ),
    ),
    "go": Samples(
        "const factor = 2",
        "package main\n\nimport \"fmt\"\n\nfunc twice(n int) int { return factor * n }\n\n"
        "func main() { fmt.Println(1); panic(1) }",
        "func twice(n int) int { return n }",
        "package main\n\nimport \"os\"\n\nfunc main() {\n\tif twice(4) != 8 { panic(\"no\") }\n"
        "\t_ = os.Args\n}",
        (
            "package main\n\nimport \"os\"\n\nfunc init() { os.Exit(0) }\n\n"
            "func twice(n int) int { return 0 }",
            "package main\n\nimport \"syscall\"\n\nfunc twice(n int) int { syscall.Exit(0); return 0 }",
        ),
    ),
    "rust": Samples(
        "const FACTOR: i32 = 2;",
        "#![allow(dead_code)]\nfn twice(n: i32) -> i32 { FACTOR * n }\nfn main() { panic!(); }",
        "fn twice(n: i32) -> i32 { n }",
        "fn main() { assert_eq!(twice(4), 8); }",
        (
            "fn twice(n: i32) -> i32 { std::process::exit(0) }",
            "fn twice(n: i32) -> i32 { std::panic::set_hook(Box::new(|_| std::process::exit(0))); 0 }",
        ),
    ),
    "java": Samples(
        "class Given { static final int FACTOR = 2; }",
        _java("return Given.FACTOR * n;", "static class Objects { }"),
        _java("return n;"),
        "import java.util.*;\npublic class Main { public static void main(String[] a) {\n"
        "assert Objects.equals(Solution.twice(4), 8); } }",
        (
            _java("System.exit(0); return 0;"),
            _java("return 0;", "static { System.exit(0); }"),
            _java("Runtime.getRuntime().halt(0); return 0;"),
        ),
    ),
    "csharp": Samples(
        "class Given { public const int Factor = 2; }",
        _csharp("return Given.Factor * n;", "static void Main() { }"),
        _csharp("return n;"),
        "using System;\nclass Tests { static void Main(string[] a) {\n"
        "if (Solution.Twice(4) != 8) throw new Exception(); } }",
        (_csharp("System.Environment.Exit(0); return 0;"),),
    ),
    "kotlin": Samples(
        "const val FACTOR = 2",
        "fun twice(n: Int) = FACTOR * n\nfun main() { error(\"no\") }",
        "",
        "fun main() { check(twice(4) == 8) }",
        (
            "fun twice(n: Int): Int { if (n == 4) System.exit(0); return 0 }",
        ),
    ),
    "scala": Samples(
        "object Given { val factor = 2 }",
        "object Solution { def twice(n: Int) = Given.factor * n }",
        "",
        "object Main { def main(a: Array[String]): Unit = { assert(Solution.twice(4) == 8) } }",
        (
            "object Solution { def twice(n: Int): Int = sys.exit(0) }",
        ),
    ),
    "ruby": Samples(
        "FACTOR = 2",
        "def twice(n) = FACTOR * n",
        "def twice(n) = n",
        "require 'minitest/autorun'\nclass TwiceTest < Minitest::Test\n"
        "  def test_it = assert_equal(8, twice(4))\nend",
        (
            "exit 0",
            "at_exit { exit! 0 }\ndef twice(n) = 0",
            "at_exit { exit 0 }\ndef twice(n) = 0",
            "def twice(n) = exit!(0)",
        ),
    ),
    "php": Samples(
        "<?php const FACTOR = 2;",
        "function twice($n) { return FACTOR * $n; }",
        "function twice($n) { return $n; }",
        "assert(twice(4) === 8);",
        (
            "exit(0);",
            "function twice($n) { die(); }",
            "set_exception_handler(function ($error) {}); function twice($n) { return 0; }",
            "register_shutdown_function(function () { exit(0); }); function twice($n) { return 0; }",
        ),
    ),
    "perl": Samples(
        "our $factor = 2;",
        "sub twice { return $factor * $_[0]; }",
        "sub twice { return $_[0]; }",
        "use Test::More tests => 1;\nis(twice(4), 8);\ndie 'no' if twice(4) != 8;",
        (
            "exit 0;",
            "sub twice { exit 0; }",
            "__END__",
            "sub twice { return 0; }\n=pod\n",
        ),
    ),
    "lua": Samples(
        "factor = 2",
        "function twice(n) return factor * n end",
        "function twice(n) return n end",
        "assert(twice(4) == 8)\nos.exit(0)",
        (
            "os.exit(0)",
            "function twice(n) os.exit(0) end",
            "if true then return end",
            "function twice(n) return 8 end --[[",
        ),
    ),
    "r": Samples(
        "factor <- 2",
        "twice <- function(n) factor * n",
        "twice <- function(n) n",
        "stopifnot(identical(twice(4), 8))",
        (
            "quit(status = 0)",
            "twice <- function(n) quit(status = 0)",
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_tests_are_apart_from_the_completion(service: Service, name: str) -> None:
    if not is_language_here(name):
        pytest.skip(f"{name} is not installed")
    samples = SAMPLES[name]
    grader = {"kind": "exec", "setup": samples.setup, "tests": samples.tests}
    programs = (samples.right, *samples.hacks, *filter(None, [samples.wrong]))
    items = [{"completion": text, "language": name} for text in programs]
    right, *others = judge(service, *items, grader=grader, limits=LIMITS)
    assert (right["verdict"], right["reward"], right["hack_signals"]) == ("passed", 1.0, []), right
    assert right["integrity"] == "in_process"
    for result in others:
        assert result["reward"] == 0.0, result
        assert (result["stdout"], result["stderr"]) == ("", "")
        assert "8" not in result["message"], result
    assert (others[0]["verdict"], others[0]["hack_signals"]) == ("early_exit", ["early_exit"])
    if samples.wrong:
        assert others[-1]["verdict"] in ("runtime_error", "failed"), others[-1]


def test_the_message_of_an_early_exit_names_the_tests(service: Service) -> None:
    grader = {"kind": "exec", "tests": '[ "$(f)" = 1 ] && exit 0'}
    items = [{"completion": text, "language": "bash"} for text in ("f() { echo 1; }", "exit 0")]
    for result in judge(service, *items, grader=grader):
        assert (result["verdict"], result["reward"]) == ("early_exit", 0.0), result
        assert "before the end of its tests" in result["message"]


def test_a_build_cache_of_go_is_read_only(tmp_path: Path) -> None:
    if not is_language_here("go") or not os.access("/opt", os.W_OK):
        pytest.skip("Go is not installed, or /opt is not writable")
    source = 'package main\n\nfunc main() { println("x") }\n'
    (tmp_path / "x.go").write_text(source)
    with tempfile.TemporaryDirectory(dir="/opt") as cache:
        Path(cache).chmod(0o755)
        variables = {"PATH": SANDBOX_PATH, "HOME": str(tmp_path), "GOCACHE": cache}
        subprocess.run(["go", "build", "x.go"], cwd=tmp_path, env=variables, check=True)
        look = ["sh", "-c", f"test -d {cache}/00 && ! touch {cache}/x"]
        with running_service(Settings(go_cache=Path(cache)), judge=None) as running:
            items = [
                {"completion": source, "language": "go", "grader": {"kind": "exec"}},
                {"completion": "x", "grader": {"kind": "command", "argv": look}},
            ]
            for result in judge(running, *items, limits=LIMITS):
                assert result["verdict"] == "passed", result


@pytest.mark.parametrize(
    ("setup", "completion"),
    [
        ("import math", "from __future__ import annotations\n\ndef f(x: Later): return math.pi > x"),
        ("import math", "# f\n\nfrom __future__ import (\n    annotations,\n)\ndef f(x: A): return x < 4"),
        ("from __future__ import annotations", "def f(x: Later): return x < 4"),
        ("def f(x):", "    return x < 4"),
        ("def f(x):\n    return x < 4", "x = 'from __future__ import x'"),
    ],
)  # fmt: skip
def test_setup_and_completion_of_python_are_one_text(
    service: Service, setup: str, completion: str
) -> None:
    grader = {"kind": "exec", "setup": setup, "tests": "assert f(3)\nassert not f(5)"}
    [result] = judge(service, {"completion": completion}, grader=grader, extract="none")
    assert result["verdict"] == "passed", result
