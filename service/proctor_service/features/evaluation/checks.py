"""Check programs for a problem: programs without a solution.

Tests passed by a check program would reward any completion. The programs define the names used in
the tests, so the tests run as far as with a solution.
"""

from __future__ import annotations

import ast
import builtins
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter

from proctor_client import wire
from proctor_client.tasks.task import Task

EMPTY = "empty program"
EARLY_EXIT = "early exit"
EQUAL = "equal to everything"

_EMPTY: Mapping[str, str] = {
    "python": "pass\n",
    "bash": ":\n",
    "javascript": ";\n",
    "typescript": ";\n",
    "csharp": "class P { static void Main() {} }\n",
    "kotlin": "fun main() {}\n",
    "scala": "object Main { def main(args: Array[String]): Unit = () }\n",
    "go_test": 'package main\n\nimport "testing"\n\nfunc TestNothing(t *testing.T) {}\n',
    "jest": "test('nothing', () => {});\n",
    "junit": "class Nothing { @org.junit.jupiter.api.Test void nothing() { } }\n",
    "ruby": "nil\n",
    "php": "<?php\n",
    "perl": ";\n",
    "lua": "do end\n",
    "r": "NULL\n",
    "c": "int main(void) { return 0; }\n",
    "cpp": "int main() { return 0; }\n",
    "java": "public class Main { public static void main(String[] a) { } }\n",
    "go": "package main\nfunc main() { }\n",
    "rust": "fn main() { }\n",
}
_EQUAL = textwrap.dedent("""\
    class Anything:
        def __eq__(self, other): return True
        def __ne__(self, other): return False
        def __lt__(self, other): return True
        __le__ = __gt__ = __ge__ = __contains__ = __lt__
        def __hash__(self): return 0
        def __bool__(self): return True
        def __len__(self): return 1
        def __iter__(self): return iter(())
        def __call__(self, *args, **kwargs): return self
        def __getattr__(self, name): return self
        def __getitem__(self, key): return self
        def __add__(self, other): return self
        __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __add__
        def __repr__(self): return "True"
        def __float__(self): return 0.0
        def __int__(self): return 0
        __index__ = __int__
    """)
_GRADER: TypeAdapter[wire.Grader] = TypeAdapter(wire.Grader)


@dataclass(frozen=True, slots=True)
class CheckProgram:
    """Check program, undeserving of a reward, named after its method."""

    name: str
    program: str


def checks_of(task: Task) -> list[CheckProgram]:
    """Return the check programs for a problem."""
    language = task.language
    if language != "python":
        return [CheckProgram(EMPTY, _EMPTY[language])] if language in _EMPTY else []
    grader = _GRADER.validate_python(task.grader)
    found = [
        CheckProgram(EMPTY, _EMPTY["python"]),
        CheckProgram(EARLY_EXIT, "raise SystemExit(0)\n"),
        CheckProgram("exit without a word", "import os\nos._exit(0)\n"),
    ]
    if isinstance(grader, wire.StdioGrader):
        return [*found, CheckProgram("echo", "import sys\nsys.stdout.write(sys.stdin.read())\n")]
    names = sorted(names_asked(grader))
    if not names:
        return found
    return [
        *found,
        CheckProgram("returns nothing", "".join(_function(name, "return None") for name in names)),
        CheckProgram(
            "exits when called", "".join(_function(name, "raise SystemExit(0)") for name in names)
        ),
        CheckProgram(EQUAL, f"{_EQUAL}\n{' = '.join(names)} = Anything()\n"),
    ]


def names_asked(grader: wire.Grader) -> set[str]:
    """Return the names used but left undefined by the tests: the names of the solution."""
    if isinstance(grader, wire.CallsGrader):
        return {defined_by(grader.entry_point)}
    if isinstance(grader, wire.AssertsGrader):
        names = _free_names("\n".join((grader.setup, *grader.tests)))
        return names | ({defined_by(grader.entry_point)} if grader.entry_point else set())
    if isinstance(grader, wire.PytestGrader):
        return {name for text in grader.files.values() for name in _imported(text)}
    return set()


def defined_by(entry_point: str) -> str:
    """Return the name defined by a program for an entry point: `Solution` for `Solution().f`."""
    return entry_point.partition(".")[0].removesuffix("()")


def _function(name: str, body: str) -> str:
    return f"def {name}(*args, **kwargs):\n    {body}\n"


def _free_names(source: str) -> set[str]:
    tree = _parsed(source)
    used: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                bound.update((each.asname or each.name).split(".")[0] for each in aliases)
    return used - bound - set(dir(builtins))


def _imported(source: str) -> Iterator[str]:
    """Yield the names taken from the solution by a test file."""
    for node in ast.walk(_parsed(source)):
        match node:
            case ast.ImportFrom(module="solution", names=aliases):
                yield from (each.name for each in aliases if each.name != "*")
            case ast.Attribute(value=ast.Name(id="solution"), attr=name):
                yield name


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])
