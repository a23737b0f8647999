"""Tasks of contests: programs with stdin and stdout, and functions called with JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proctor_client.tasks.calls import Equality, calls_of
from proctor_client.tasks.fields import CASE_FIELDS, cases_of, function_of, set_fields
from proctor_client.tasks.preludes import PRELUDES
from proctor_client.tasks.task import BadTask, Row, Task, refuse_typos

CLOSE: Mapping[str, float] = {"absolute": 1e-8, "relative": 1e-5}
"""Tolerance of numpy's `allclose`, by which APPS, TACO and PRIME compare numbers that programs print."""
_DECIMALS = 1e-15
"""LiveCodeBench compares the numbers of a line as decimals: 1.0 is 1, and 0.33 is not 0.333. A number in
place of a relative tolerance, since 1.2345678901234568e+16 is not 12345678901234567.
"""
LINES = "trimmed"
"""All four harnesses compare line by line, without the white space around a line."""
_PYTHON = frozenset({"python", "python3", "py"})


def task_of_cases(
    cases: Sequence[Row], language: str = "python", *, needs_outputs: bool = True
) -> Task:
    """Return the task of cases with `input` and `output`, as PRIME's checker takes them. Raises BadTask.

    If all have `stdout`, they are cases of the grader `stdio`, with its own comparison; without
    `needs_outputs` also if all have `stdin`.
    """
    of_stdio = "stdout" if needs_outputs else "stdin"
    if all(each.get(of_stdio) is not None for each in cases):
        return Task(grader={"kind": "stdio", "cases": set_fields(list(cases))}, language=language)
    inputs, outputs = sides_of(cases)
    return contest(inputs, outputs, function_of(cases), language=language)


def sides_of(cases: Sequence[Row]) -> tuple[list[Any], list[Any]]:
    """Return the inputs and the outputs of cases; an absent input is an empty text. Raises BadTask."""
    shapes = {tuple(name for name in each if each[name] is not None): each for each in cases}
    for each in shapes.values():  # most cases have the same fields
        refuse_typos(each, CASE_FIELDS)
    inputs = [_first(each, "stdin", "input", absent="") for each in cases]
    return inputs, [_first(each, "stdout", "output") for each in cases]


def _first(case: Row, *names: str, absent: Any = None) -> Any:
    return next((case[name] for name in names if case.get(name) is not None), absent)


def contest(
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    function: str | None,
    *,
    form: str = "prime",
    language: str = "python",
    in_class: bool = False,
) -> Task:
    """Return the task of a program with stdin and stdout, or of a function.

    `form` is the data set's harness, an entry of PRELUDES. Raises BadTask.
    """
    is_python = language.lower() in _PYTHON
    if function and not is_python:
        raise BadTask(f"calls of a function in {language}: only those of Python are judged")
    if function:
        equality: Equality = "json" if form == "livecodebench" else "apps"
        grader = calls_of(function, inputs, outputs, equality=equality, in_class=in_class)
    else:
        tolerance = _DECIMALS if form == "livecodebench" else CLOSE
        grader = {**programs_of(inputs, outputs, tolerance), "compare": LINES}
    return Task(
        grader=grader,
        language="python" if is_python else language,
        prelude=PRELUDES[form] if is_python else None,
    )


def programs_of(
    inputs: Sequence[Any], outputs: Sequence[Any], tolerance: float | Mapping[str, float] = CLOSE
) -> Mapping[str, Any]:
    """Return a grader for programs; the tolerance is for decimal fractions. Raises BadTask."""
    return {"kind": "stdio", "cases": cases_of(inputs, outputs), "tolerance": tolerance}
