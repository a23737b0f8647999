"""Tasks from the columns of graders and of Python tests, as in MBPP, HumanEval and the service."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from typing import Any

from proctor_client.tasks.author_programs import (
    PARAMS,
    VERIFIER,
    needs_outputs,
    verifier_of,
    with_programs,
)
from proctor_client.tasks.contests import task_of_cases
from proctor_client.tasks.fields import decoded_value, plain, set_fields
from proctor_client.tasks.task import BadTask, Row, Task

GRADER = "grader"
TESTS = ("tests", "test_list", "test")
SETUP = ("setup", "test_setup_code")
BESIDE = ("prelude", "prompt_code", "suffix_code", "limits", "files", "compiler")
"""Columns of a task beside its tests. Those of a `grader` are also `language`, `scoring`, `extract`,
`environment` and `negative_control`: in other data sets these names have other meanings."""
_BESIDE_GRADER = (*BESIDE, "language", "scoring", "extract", "environment", "negative_control")
_OBJECTS = ("limits", "files", "compiler", "extract", "environment")
_COMPARISON = ("compare", "tolerance", "ignore_case")
READ = ("prelude", "prompt_code", "suffix_code", "entry_point", "test_imports", *SETUP)
"""Columns of which a typo would change a reward in silence."""
_OF_SOLUTION = re.compile(
    r"^(?:from[ \t]+solution[ \t]+import|import[ \t]+solution)\b", re.MULTILINE
)
"""A module of pytest such as KodCode's: `from solution import f`."""
_CODE = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom


def task_from_tests(row: Row) -> Task:
    """Return the task of a row's `grader`, `tests`, `test_list` or `test`. Raises BadTask."""
    if row.get(GRADER) is not None:
        return Task(grader=grader_of(row[GRADER]), **beside_of(row, _BESIDE_GRADER))
    for name in TESTS:
        if row.get(name) is not None:
            return _asserts(row, row[name], name)
    raise BadTask("the row has neither a grader nor tests")


def prompt_field(entry_point: str) -> str:
    """Return the field of a task for a prompt in code.

    A completion continues the prompt's function. Before a method of a class, such as
    `Solution().f`, the prompt only has imports and helpers.
    """
    return "prelude" if "." in entry_point else "prompt_code"


def prompt_code_of(row: Row) -> str | None:
    """Return a row's `prompt` in Python code with a definition or an import, which a completion can continue.

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
    """Return the fields of a task in columns of their own. Raises BadTask."""
    found = {}
    for name in names:
        value = set_fields(decoded_value(row.get(name)) if name in _OBJECTS else row.get(name))
        if value not in (None, "", {}):
            found[name] = value
    return found


def grader_of(value: object) -> dict[str, Any]:
    """Return a grader of the service: an object, or its JSON text. Raises BadTask."""
    value = decoded_value(value)
    if not isinstance(value, dict):
        raise BadTask(f"{GRADER}: neither an object nor JSON text of one")
    cases = value.get("cases")
    if value.get("kind") == VERIFIER:
        return {**set_fields({**value, PARAMS: None}), **_params_of(value)}
    if value.get("kind") != "calls" or not isinstance(cases, list):
        return dict(set_fields(value))
    return {**set_fields({**value, "cases": None}), "cases": [_call(each) for each in cases]}


def _call(case: Any) -> Any:
    """Return a case of `calls` without empty fields: null may be an argument or a returned value."""
    if not isinstance(case, Mapping):
        return case
    return {name: each for name, each in case.items() if each is not None or name == "expected"}


def _params_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a verifier unchanged: null is allowed among them."""
    return {} if value.get(PARAMS) is None else {PARAMS: value[PARAMS]}


def task_of_verifier(row: Row) -> Task:
    """Return the task of a row's `verifier` and `params`. Raises BadTask."""
    beside = beside_of(row, _BESIDE_GRADER)
    return Task(grader=verifier_of(row), prompt=plain(row.get("prompt")), **beside)


def with_comparison(task: Task, row: Row) -> Task:
    """Return the task with the row's columns for the judging of outputs. Raises BadTask."""
    task = with_programs(task, row)
    comparison = {name: row[name] for name in _COMPARISON if row.get(name) is not None}
    grader = task.grader or {}
    return (
        task.with_fields({"grader": {**grader, **comparison}})
        if grader.get("kind") == "stdio"
        else task
    )


def _asserts(row: Row, tests: object, name: str) -> Task:
    tests = decoded_value(tests)
    if isinstance(tests, str):
        tests = [tests]
    if not isinstance(tests, list) or not tests:
        raise BadTask(f"{name}: no list of tests")
    if all(isinstance(each, Mapping) for each in tests):
        language = str(row.get("language") or "python")
        task = task_of_cases(tests, language, needs_outputs=needs_outputs(row))
        return with_comparison(task, row).with_fields(beside_of(row))
    if len(tests) == 1 and isinstance(tests[0], str) and _OF_SOLUTION.search(tests[0]):
        files = {"test_solution.py": tests[0]}
        return with_programs(Task(grader={"kind": "pytest", "files": files}, **beside_of(row)), row)
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
    return with_programs(Task(grader=grader, **beside), row)


def _texts(value: Any) -> list[Any]:
    value = plain(value) or []
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise BadTask("test_imports: neither a text nor a list")
    return [each for each in value if each]
