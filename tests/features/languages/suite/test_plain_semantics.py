# ruff: noqa: E501 - the tables hold programs
"""Tests run beside a submission as the plain language runs them: its names, options and macros count.

Tests that a tool runs are among them. What ends a program, and what the command line of a tool says,
is not the submission's to decide.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import Service
from installed import are_installed, is_language_here
from judging import judge
from plain_programs import COMPILED, INTERPRETED

LIMITS = {"cpu_seconds": 60, "wall_seconds": 60, "memory_mb": 2048, "processes": 64, "disk_mb": 512}
PROGRAMS = INTERPRETED | COMPILED


@pytest.mark.parametrize("language", sorted(PROGRAMS))
def test_what_the_plain_language_accepts_is_right(service: Service, language: str) -> None:
    if not is_language_here(language):
        pytest.skip(f"{language} is not installed")
    items = []
    for completion, tests, *setup in PROGRAMS[language]:
        grader = {"kind": "exec", "tests": tests, "setup": "".join(setup), "reveal": True}
        items.append({"completion": completion, "language": language, "grader": grader})
    results = judge(service, *items, limits=LIMITS)
    refused = [
        (item["completion"], result["verdict"], result["message"])
        for item, result in zip(items, results, strict=True)
        if result["reward"] != 1.0
    ]
    assert not refused


_GO_TESTS = (
    'package solution\n\nimport "testing"\n\nfunc TestTwice(t *testing.T) {\n'
    '\tt.Run("four", func(t *testing.T) {\n\t\tif twice(4) != 8 {\n\t\t\tt.Fatal("no")\n\t\t}\n\t})\n}\n'
)
_GO_FLAGS = 'import ("flag"; "os"; "testing")\nfunc init() { testing.Init(); %s; _ = os.Args }\n'
_JEST_TESTS = """
const { roll, report, ranked } = require('./solution');
const RealMath = global.Math;
afterEach(() => { jest.restoreAllMocks(); global.Math = RealMath; });
test('random', () => {
  const spy = jest.spyOn(Math, 'random').mockReturnValue(0.5);
  expect(roll()).toBe(4);
  expect(spy).toHaveBeenCalledTimes(1);
});
test('printed', () => {
  const log = jest.spyOn(console, 'log').mockImplementation(() => {});
  report({ a: 1 });
  expect(log).toHaveBeenCalledWith('{"a":1}');
});
test('sorted', () => {
  const sort = jest.spyOn(Array.prototype, 'sort');
  expect(ranked([2, 1])).toEqual([1, 2]);
  expect(sort).toHaveBeenCalled();
});
test('other Math', () => {
  global.Math = Object.assign(Object.create(RealMath), { random: () => 0 });
  expect(roll()).toBe(1);
});
"""
_JEST = (
    "const roll = () => 1 + Math.floor(6 * Math.random());\n"
    "const report = (it) => console.log(JSON.stringify(it));\n"
    "const ranked = (list) => [...list].sort();\n"
    "module.exports = { roll, report, ranked };"
)
# The programs that a tool needs, the language, the tests, right programs, and programs that earn nothing.
Case = tuple[tuple[str, ...], str, dict[str, str], tuple[str, ...], tuple[str, ...]]
RUNNERS: dict[str, Case] = {
    "go_test": (
        ("go",), "go", {"twice_test.go": _GO_TESTS},
        ("func len(x int) int { return x }\nfunc append(x int) int { return len(x) }\nfunc panic(x int) {}\n"
         "type string struct{}\nvar os, fmt, strings = 1, 2, 3\nfunc twice(n int) int { return 2 * append(n) }",
         _GO_FLAGS % 'flag.Set("test.short", "true")' + "func twice(n int) int { return 2 * n }",
         'import "flag"\nvar by = flag.Int("by", 2, "")\nfunc init() { flag.Parse() }\nfunc twice(n int) int { return *by * n }'),
        tuple(_GO_FLAGS % each + "func twice(n int) int { return 0 }" for each in (
            'flag.Set("test.run", "^TestTwice$/^none$")', 'flag.Set("test.list", ".*")',
            'flag.CommandLine.Parse([]string{"-test.run=./^$"}); os.Args = nil',
            'flag.Lookup("test.run").DefValue = "none"; flag.Set("test.run", "none")',
            'flag.Set("test.run", "none"); flag.CommandLine = flag.NewFlagSet("x", 0)')),
    ),
    "cargo_test": (
        ("cargo", "rustc"), "rust",
        {"tests/it.rs": "use solution::*;\n#[test]\nfn it() -> Result<(), String> {\n"
                        "    assert_eq!(twice(4), 8);\n    check!(twice(0) == 0);\n    Ok(())\n}\n"},
        ("#[macro_export]\nmacro_rules! check { ($x:expr) => { if !$x { return Err(String::from(\"no\")) } }; }\n"
         "#[macro_export]\nmacro_rules! format { ($x:expr) => { 7 }; }\npub struct Vec;\npub fn twice(n: i32) -> i32 { 2 * n }",),
        ("#[macro_export]\nmacro_rules! check { ($x:expr) => { if !$x { return Err(String::from(\"no\")) } }; }\n"
         "pub fn twice(n: i32) -> i32 { std::process::exit(n * 0) }",),
    ),
    "jest": (
        ("node", "jest"), "javascript", {"it.test.js": _JEST_TESTS},
        (_JEST, f'"use strict";\nArray.prototype.last = () => 1;\nString.prototype.trim = () => "";\n{_JEST}',
         f"if (typeof test === 'function') test('of its own', () => {{}});\n{_JEST}"),
        (_JEST.replace("6 *", "8 *"), f"{_JEST}\nprocess.exit(0);"),
    ),
    "junit": (
        ("java", "javac"), "java",
        {"TwiceTest.java": "import static org.junit.jupiter.api.Assertions.*;\nimport org.junit.jupiter.api.*;\n"
                           "import java.util.*;\nclass TwiceTest {\n"
                           "  @Test void it() { assertTrue(Objects.equals(8, Solution.twice(4))); }\n}"},
        ("class Objects { static boolean equals(Object a, Object b) { return a.equals(b); } }\n"
         "class Files { }\nclass StringBuilder { }\n"
         "class Solution { static int twice(int n) { return 2 * n; } }",),
        ("class Solution { static int twice(int n) { Runtime.getRuntime().halt(0); return 8; } }",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("runner", sorted(RUNNERS))
def test_a_tool_runs_its_tests_as_ever(service: Service, runner: str) -> None:
    needs, language, files, right, wrong = RUNNERS[runner]
    jar = Path("/usr/share/java/junit-jupiter-engine.jar")
    if not are_installed(needs) or (runner == "junit" and not jar.exists()):
        pytest.skip(f"{runner} is not installed")
    grader: dict[str, Any] = {"kind": "command", "runner": runner, "files": files, "reveal": True}
    items = [{"completion": text, "language": language} for text in (*right, *wrong)]
    results = judge(service, *items, grader=grader, limits=LIMITS)
    expected = [1.0] * len(right) + [0.0] * len(wrong)
    assert [result["reward"] for result in results] == expected, results


_SIGNALS = {  # language, program, and the end of its message; none of a program that passes
    "abort": (
        "c",
        '#include <stdio.h>\n#include <stdlib.h>\nint main() { puts("on"); fflush(stdout); abort(); }',
        "SIGABRT",
    ),
    "raise": (
        "c",
        '#include <signal.h>\n#include <stdio.h>\nint main() { puts("on"); fflush(stdout); raise(SIGTERM); return 0; }',
        "SIGTERM",
    ),
    "a fault": (
        "cpp",
        '#include <csignal>\n#include <iostream>\nint main() { std::cout << "on" << std::endl; raise(SIGSEGV); }',
        "SIGSEGV",
    ),
    "its own SIGKILL": (
        "c",
        '#include <signal.h>\n#include <stdio.h>\n#include <unistd.h>\nint main() { puts("on"); fflush(stdout); kill(getpid(), SIGKILL); }',
        "SIGKILL",
    ),
    "a closed pipe": (
        "c",
        '#include <stdio.h>\n#include <unistd.h>\nint main() { int p[2]; puts("on"); fflush(stdout); pipe(p); close(p[0]); write(p[1], p, 1); return 0; }',
        "SIGPIPE",
    ),
    "a shell's": ("bash", "echo on; kill -TERM $$; echo off", "SIGTERM"),
    "a shell's that it traps": ("bash", "trap 'echo on' TERM; kill -TERM $$", ""),
    "a shell's pipeline": (
        "bash",
        'yes | head -1 >/dev/null; [ "${PIPESTATUS[*]}" = "141 0" ] && echo on',
        "",
    ),
    "of a group": ("bash", 'trap "" TERM; kill 0; echo on', ""),
    "node's": (
        "javascript",
        'console.log("on"); process.kill(process.pid, "SIGTERM"); setTimeout(() => {}, 5000)',
        "SIGTERM",
    ),
}


def test_programs_end_by_signals_as_outside_of_a_sandbox(service: Service) -> None:
    table = {name: entry for name, entry in _SIGNALS.items() if is_language_here(entry[0])}
    grader = {"kind": "stdio", "cases": [{"stdin": "", "stdout": "on\n"}]}
    items = [
        {"completion": program, "language": language, "grader": grader}
        for language, program, _ in table.values()
    ]
    results = judge(service, *items, limits=LIMITS)
    for (name, (*_, signal)), result in zip(table.items(), results, strict=True):
        wanted = (0.0, "runtime_error") if signal else (1.0, "passed")
        assert (name, result["reward"], result["verdict"]) == (name, *wanted), result
        assert result["message"].endswith(signal), result
