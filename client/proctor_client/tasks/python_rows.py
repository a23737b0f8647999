"""Rows whose completions are Python: functions, classes, and what a call returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proctor_client.tasks.fields import Row, optional_text, text_of
from proctor_client.tasks.task import Answer, Imports, Stub, Task

_TEXT_OF_DS1000 = """

import pathlib as _pathlib
import pytest as _pytest

@_pytest.fixture
def solution():
    return _pathlib.Path("solution.py").read_text(encoding="utf-8")
"""


def mbpp(row: Row, place: str) -> Task:
    """MBPP: a function, and statements that test it."""
    setup = [*(row.get("test_imports") or []), row.get("test_setup_code") or ""]
    grader = {
        "kind": "asserts",
        "tests": row["test_list"],
        "setup": "\n".join(part for part in setup if part),
    }
    text = optional_text(row, "text", "prompt", "question")
    return Task(str(row["task_id"]), place, {"grader": grader}, row.get("code"), text=text)


def mbppplus(row: Row, place: str) -> Task:
    """MBPP+ of EvalPlus: `test` is one program, `test_list` the few tests of MBPP."""
    return mbpp({**row, "test_list": [text_of(row, "test")]}, place)


def humaneval(row: Row, place: str) -> Task:
    """HumanEval, also HumanEval+: a function that goes on from a prompt."""
    stub = Stub(text_of(row, "prompt"), text_of(row, "entry_point"))
    grader = {
        "kind": "asserts",
        "tests": [row["test"]],
        "entry_point": stub.entry_point,
    }
    return _continued(row, place, grader, stub, stub.prompt)


def bigcodebench(row: Row, place: str) -> Task:
    """BigCodeBench: test cases of unittest for a function that `code_prompt` begins."""
    stub = Stub(text_of(row, "code_prompt"), text_of(row, "entry_point"))
    grader = {"kind": "asserts", "tests": [text_of(row, "test")]}
    text = optional_text(row, "instruct_prompt", "complete_prompt")
    return _continued(row, place, grader, stub, text)


def classeval(row: Row, place: str) -> Task:
    """ClassEval: test cases of unittest for a class."""
    told = row.get("import_statement") or []
    imports = Imports(tuple([told] if isinstance(told, str) else map(str, told)))
    grader = {"kind": "asserts", "tests": [text_of(row, "test")]}
    text = optional_text(row, "skeleton")
    reference = row.get("solution_code")
    return Task(str(row["task_id"]), place, {"grader": grader}, reference, imports, text)


def cruxeval_output(row: Row, place: str) -> Task:
    """CRUXEval-O: the literal that a call of `f` returns."""
    expected = text_of(row, "output")
    grader = {"kind": "asserts", "tests": [f"assert answer() == {expected}"]}
    return Task(_id(row, place), place, {"grader": grader}, expected, Answer(of_arguments=False))


def cruxeval_input(row: Row, place: str) -> Task:
    """CRUXEval-I: arguments with which `f` returns a known value."""
    code, reference = text_of(row, "code"), f"f({text_of(row, 'input')})"
    test = f"args, kwargs = answer()\nassert f(*args, **kwargs) == {text_of(row, 'output')}"
    grader = {"kind": "asserts", "tests": [test], "setup": code}
    stub = Answer(of_arguments=True, code=code)
    return Task(_id(row, place), place, {"grader": grader}, reference, stub)


def ds1000(row: Row, place: str) -> Task:
    """DS-1000: code that its own `test_execution(solution)` puts in the place of `[insert]`.

    The tests run the text of the completion in their own process, so the result is `in_process`.
    """
    told = row.get("metadata")
    name = told.get("problem_id") if isinstance(told, Mapping) else None
    files = {"test_ds1000.py": text_of(row, "code_context") + _TEXT_OF_DS1000}
    fields: dict[str, Any] = {"grader": {"kind": "pytest", "files": files}}
    name = place.rpartition(":")[2] if name is None else name
    reference, text = row.get("reference_code"), optional_text(row, "prompt")
    return Task(f"DS-1000/{name}", place, fields, reference, text=text)


def _continued(
    row: Row, place: str, grader: Mapping[str, Any], stub: Stub, text: str | None
) -> Task:
    reference = row.get("canonical_solution")
    return Task(str(row["task_id"]), place, {"grader": grader}, reference, stub, text)


def _id(row: Row, place: str) -> str:
    return str(row.get("id") or place.rpartition(":")[2])
