"""Rows with completions in Python: functions, classes, and results of calls."""

from __future__ import annotations

from collections.abc import Mapping

from proctor_client.tasks.fields import decoded, optional_text, origin_of, text_of
from proctor_client.tasks.ground_truth import task_of
from proctor_client.tasks.preludes import PRELUDES
from proctor_client.tasks.statements import prompt_code_of, prompt_field, task_from_tests
from proctor_client.tasks.task import Answer, Row, Task

_TEXT_OF_DS1000 = """

import pathlib as _pathlib
import pytest as _pytest

@_pytest.fixture
def solution():
    return _pathlib.Path("solution.py").read_text(encoding="utf-8")
"""


def mbpp(row: Row, place: str) -> Task:
    """MBPP: a function, and test statements."""
    tests = {name: row.get(name) for name in ("test_imports", "test_setup_code")}
    task = task_from_tests({**tests, "test_list": row["test_list"]})
    text = optional_text(row, "text", "prompt", "question")
    return task.with_fields(origin_of(row, place, row.get("code"), text))


def mbppplus(row: Row, place: str) -> Task:
    """MBPP+ of EvalPlus: `test` is a program, `test_list` the few tests of MBPP."""
    return mbpp({**row, "test_list": [text_of(row, "test")]}, place)


def humaneval(row: Row, place: str) -> Task:
    """HumanEval, also HumanEval+: a function continued from a prompt."""
    prompt = text_of(row, "prompt")
    code = prompt_code_of(row)
    task = _continued(row, [text_of(row, "test")], code)
    return task.with_fields(origin_of(row, place, row.get("canonical_solution"), prompt))


def infilling(row: Row, place: str) -> Task:
    """HumanEval-Infilling: the middle of a function, between a prompt and a suffix."""
    task = _continued(row, [row["test"]], text_of(row, "prompt"))
    task = task.with_fields({"suffix_code": text_of(row, "suffix")})
    return task.with_fields(origin_of(row, place, row.get("canonical_solution"), None))


def leetcode(row: Row, place: str) -> Task:
    """LeetCodeDataset: a method of `class Solution`; `prompt` has imports and helpers."""
    task = _continued(row, [text_of(row, "test")], row.get("prompt") or PRELUDES["leetcode"])
    text = optional_text(row, "query", "problem_description")
    return task.with_fields(origin_of(row, place, row.get("completion"), text))


def kodcode(row: Row, place: str) -> Task:
    """KodCode: a module of pytest, which imports the functions from `solution`."""
    test = text_of(row, "test" if "test" in row else "test_code")
    task = task_from_tests({"test": test})
    text = optional_text(row, "question", "instruction")
    return task.with_fields(origin_of(row, place, row.get("solution", row.get("response")), text))


def acecoder(row: Row, place: str) -> Task:
    """AceCoder: a list of assert statements."""
    task = task_of(decoded(row, "test_cases"))
    return task.with_fields(origin_of(row, place, None, optional_text(row, "question")))


def bigcodebench(row: Row, place: str) -> Task:
    """BigCodeBench: test cases of unittest for a function with its begin in `code_prompt`."""
    task = _continued(row, [text_of(row, "test")], text_of(row, "code_prompt"))
    text = optional_text(row, "instruct_prompt", "complete_prompt")
    return task.with_fields(origin_of(row, place, row.get("canonical_solution"), text))


def classeval(row: Row, place: str) -> Task:
    """ClassEval: test cases of unittest for a class."""
    statements = row.get("import_statement") or []
    imports = [statements] if isinstance(statements, str) else map(str, statements)
    task = Task(
        grader={"kind": "asserts", "tests": [text_of(row, "test")]}, prelude="\n".join(imports)
    )
    return task.with_fields(
        origin_of(row, place, row.get("solution_code"), optional_text(row, "skeleton"))
    )


def cruxeval_output(row: Row, place: str) -> Task:
    """CRUXEval-O: the literal returned by a call of `f`."""
    expected = text_of(row, "output")
    task = Task(
        grader={"kind": "asserts", "tests": [f"assert answer() == {expected}"]},
        answer=Answer(of_arguments=False),
    )
    return task.with_fields(origin_of(row, place, expected, None))


def cruxeval_input(row: Row, place: str) -> Task:
    """CRUXEval-I: arguments with which `f` returns a known value."""
    code, reference = text_of(row, "code"), f"f({text_of(row, 'input')})"
    test = f"args, kwargs = answer()\nassert f(*args, **kwargs) == {text_of(row, 'output')}"
    task = Task(
        grader={"kind": "asserts", "tests": [test], "setup": code},
        answer=Answer(of_arguments=True, code=code),
    )
    return task.with_fields(origin_of(row, place, reference, None))


def ds1000(row: Row, place: str) -> Task:
    """DS-1000: code put in the place of `[insert]` by the row's own `test_execution(solution)`.

    The tests run the text of the completion in their own process, so the result is `in_process`.
    """
    metadata = row.get("metadata")
    name = metadata.get("problem_id") if isinstance(metadata, Mapping) else None
    files = {"test_ds1000.py": text_of(row, "code_context") + _TEXT_OF_DS1000}
    name = place.rpartition(":")[2] if name is None else name
    return Task(
        grader={"kind": "pytest", "files": files},
        id=f"DS-1000/{name}",
        place=place,
        reference=row.get("reference_code"),
        text=optional_text(row, "prompt"),
    )


def _continued(row: Row, tests: list[str], prompt: str | None) -> Task:
    """Return a task with completions that may continue a prompt; before a class, the prompt is a prelude."""
    entry_point = text_of(row, "entry_point")
    grader = {"kind": "asserts", "tests": tests, "entry_point": entry_point}
    return Task(grader=grader).with_fields({prompt_field(entry_point): prompt})
