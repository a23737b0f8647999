"""Compile errors name line and column of the completion, whatever comes before it."""

from __future__ import annotations

from typing import Any

from harness import Service
from judging import judge, stdio

OUTPUT = stdio(("", ""))
ROWS: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "c",
        "int main(void) {\n  int x = y;\n}",
        {"grader": OUTPUT, "prelude": "#include <stdio.h>\n#include <math.h>\n"},
        "completion.c:2:11: error",
    ),
    (
        "c",
        "  return 2 *\n    m;\n}\n",
        {"grader": OUTPUT, "prompt_code": "#include <stdio.h>\n\nint twice(int n) {\n"},
        "completion.c:2:5: error",
    ),
    (
        "cpp",
        "int main() {\n  int x = y;\n}",
        {"grader": OUTPUT, "prelude": "#include <iostream>\nusing namespace std;"},
        "completion.cpp:2:11: error",
    ),
    (
        "go",
        'import (\n  "os"\n)\n\nfunc main() {\n  var x int = "s"\n  os.Exit(x)\n}',
        {"grader": OUTPUT, "prelude": 'package main\n\nimport "fmt"\n\nfunc g() { fmt.Println() }'},
        "completion.go:6:15: ",
    ),
    (
        "cpp",
        "int f() {\n  return y;\n}",
        {"grader": {"setup": "#include <cstdio>\nint x;", "tests": "int main() { return f(); }"}},
        "solution.cpp:2:10: error",
    ),
    (
        "go",
        'func f() int {\n  return "s"\n}',
        {"grader": {"setup": "var x = 1\n\nvar y = 2", "tests": "func main() { f() }"}},
        "solution.go:2:10: ",
    ),
    (
        "rust",
        '#![allow(dead_code)]\nfn f() -> i32 {\n  "s"\n}',
        {"grader": {"setup": "struct A;\nstruct B;", "tests": "fn main() { f(); }"}},
        "solution.rs:3:3",
    ),
    (
        "rust",
        'fn f() -> i32 {\n  "s"\n}',
        {"grader": {"tests": "fn main() { f(); }"}},
        "solution.rs:2:3",
    ),
]
MACROS = {
    "setup": "macro_rules! twice { ($n:expr) => { 2 * $n } }\nuse std::cmp::max;",
    "tests": "fn main() { assert_eq!(f(max(1, 2)), 4); assert_eq!(twice!(2), 4); }",
}


def test_an_error_has_the_line_of_the_completion(service: Service) -> None:
    items = []
    for language, completion, fields, _ in ROWS:
        grader = fields["grader"]
        if "kind" not in grader:
            grader = {"kind": "exec", "reveal": True, **grader}
        items.append({**fields, "completion": completion, "language": language, "grader": grader})
    for row, result in zip(ROWS, judge(service, *items), strict=True):
        assert result["verdict"] == "syntax_error", (row, result)
        assert row[-1] in result["message"], (row, result["message"])


def test_macros_of_a_setup_reach_completion_and_tests(service: Service) -> None:
    exported = {**MACROS, "setup": f"#[macro_export]\n{MACROS['setup']}"}
    completion = "fn f(n: i32) -> i32 { twice!(n) }"
    items = [
        {"completion": completion, "language": "rust", "grader": {"kind": "exec", **each}}
        for each in (MACROS, exported)
    ]
    for result in judge(service, *items):
        assert result["verdict"] == "passed", result
