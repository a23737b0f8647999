"""Tasks from the columns of graders and of Python tests: those of MBPP, HumanEval and the service."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from typing import Any

from proctor_client.tasks.contests import task_of_cases
from proctor_client.tasks.fields import plain
from proctor_client.tasks.task import BadTask, Row, Task
from proctor_client.wire.long_integers import loads

GRADER = "grader"
TESTS = ("tests", "test_list", "test")
SETUP = ("setup", "test_setup_code")
BESIDE = ("prelude", "prompt_code", "suffix_code", "limits", "files", "compiler")
"""Columns of a task beside its tests. Those of a `grader` are also `language`, `scoring`, `extract`,
`environment` and `negative_control`: in other data sets these names have other meanings."""
_BESIDE_GRADER = (*BESIDE, "language", "scoring", "extract", "environment", "negative_control")
_OBJECTS = ("limits", "files", "compiler", "extract")
_OF_SOLUTION = re.compile(
    r"^(?:from[ \t]+solution[ \t]+import|import[ \t]+solution)\b", re.MULTILINE
)
"""A module of pytest such as KodCode's: `from solution import f`."""
_CODE = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom


def task_from_tests(row: Row) -> Task:
    """Return the task of a row's `grader`, `tests`, `test_list` or `test`. Raises BadTask."""
    if row.get(GRADER) is not None:
        return Task(grader=_grader(row[GRADER]), **beside_of(row, _BESIDE_GRADER))
    for name in TESTS:
        if row.get(name) is not None:
            return _asserts(row, row[name], name)
    raise BadTask("the row has neither a grader nor tests")


def prompt_field(entry_point: str) -> str:
    """Return the field of a task for a prompt that is code.

    A completion goes on with the function that the prompt begins. Before a method of a class, such as
    `Solution().f`, the prompt only has imports and helpers.
    """
    return "prelude" if "." in entry_point else "prompt_code"


def prompt_code_of(row: Row) -> str | None:
    """Return a row's `prompt` if a completion can go on with it: Python code with a definition or an import.

    None for a prompt in words, and for chat messages.
    """
    prompt = row.get("prompt")
    if not isinstance(prompt, str):
        return None
    last = prompt.rstrip().rpartition("\n")[2]
    indent = " " * (len(last) - len(last.lstrip()) + 4)
    for source in (prompt, f"{prompt.rstrip()}\n{indent}pass\n"):
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            continue
        return prompt if any(isinstance(each, _CODE) for each in tree.body) else None
    return None


def beside_of(row: Row, names: Iterable[str] = BESIDE) -> dict[str, Any]:
    """Return the fields of a task that the row has in columns of their own. Raises BadTask."""
    found = {}
    for name in names:
        value = row.get(name)
        if isinstance(value, str) and name in _OBJECTS and value.lstrip().startswith("{"):
            value = _json(value)
        if isinstance(value, Mapping):  # Arrow gives each row the fields of all rows
            value = {key: each for key, each in value.items() if each is not None}
        if value not in (None, "", {}):
            found[name] = value
    return found


def _grader(value: object) -> dict[str, Any]:
    if isinstance(value, str):
        value = _json(value)
    if not isinstance(value, Mapping):
        raise BadTask(f"{GRADER}: neither an object nor JSON text of one")
    # Arrow gives every row the fields of all kinds of graders, most of them None.
    return {name: field for name, field in value.items() if field is not None}


def _asserts(row: Row, tests: object, name: str) -> Task:
    tests = plain(tests)
    if isinstance(tests, str):
        parsed = _json(tests) if tests.lstrip().startswith("[") else None
        tests = parsed if isinstance(parsed, list) else [tests]
    if not isinstance(tests, list) or not tests:
        raise BadTask(f"{name}: no list of tests")
    if all(isinstance(each, Mapping) for each in tests):
        return task_of_cases(tests).with_fields(beside_of(row))
    if len(tests) == 1 and isinstance(tests[0], str) and _OF_SOLUTION.search(tests[0]):
        files = {"test_solution.py": tests[0]}
        return Task(grader={"kind": "pytest", "files": files}, **beside_of(row))
    imports = _texts(row.get("test_imports"))
    setup = [*imports, *(row[each] for each in SETUP if row.get(each))]
    if not all(isinstance(part, str) for part in setup):
        raise BadTask(f"test_imports, {', '.join(SETUP)}: not all are texts")
    grader: dict[str, Any] = {"kind": "asserts", "tests": tests}
    beside = beside_of(row)
    if setup:
        grader["setup"] = "\n".join(setup)
    if imports:  # the data set's own harness runs them before the solution
        beside.setdefault("prelude", "\n".join(imports))
    if row.get("entry_point"):
        grader["entry_point"] = row["entry_point"]
        beside.setdefault(prompt_field(str(row["entry_point"])), prompt_code_of(row))
    return Task(grader=grader, **beside)


def _texts(value: Any) -> list[Any]:
    value = plain(value) or []
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise BadTask("test_imports: neither a text nor a list")
    return [each for each in value if each]


def _json(text: str) -> Any:
    try:
        return loads(text)
    except (ValueError, RecursionError):
        return None
