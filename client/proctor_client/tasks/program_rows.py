"""Rows of contests: programs with stdin and stdout, and functions called with JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from proctor_client.tasks.contests import contest, programs_of, sides_of
from proctor_client.tasks.fields import decoded, function_of, optional_text, origin_of
from proctor_client.tasks.ground_truth import task_of
from proctor_client.tasks.limits import limits_of
from proctor_client.tasks.packed import packed_cases
from proctor_client.tasks.task import Row, Task

_TESTS_OF_CONTESTS = ("public_tests", "private_tests", "generated_tests")
_PYTHON3 = (3, "PYTHON3")
"""The language of a solution in CodeContests, as its number and as its name."""


def apps(row: Row, place: str) -> Task:
    """APPS and TACO: `input_output` and `solutions` are JSON in texts."""
    tests = decoded(row, "input_output") if row.get("input_output") else None
    if not isinstance(tests, Mapping) or not tests.get("inputs"):
        raise ValueError("input_output: no tests")
    solutions = decoded(row, "solutions") if row.get("solutions") else []
    reference = solutions[0] if isinstance(solutions, list) and solutions else None
    starter = str(row.get("starter_code") or "")
    task = contest(
        tests["inputs"],
        tests.get("outputs") or [],
        tests.get("fn_name"),
        form="apps",
        in_class="class Solution" in (starter or str(reference)),
    )
    origin = origin_of(row, place, reference, _with_starter(row, starter))
    return task.with_fields({"limits": limits_of(row, "apps"), **origin})


def livecodebench(row: Row, place: str) -> Task:
    """LiveCodeBench: public and private test cases; the private ones are compressed."""
    public = decoded(row, "public_test_cases") if row.get("public_test_cases") else []
    cases = [*public, *packed_cases(row, "private_test_cases")]
    if not cases:
        raise ValueError("no test cases")
    metadata = decoded(row, "metadata") if row.get("metadata") else {}
    starter = str(row.get("starter_code") or "")
    functional = any(each.get("testtype") == "functional" for each in cases)
    named = [{"metadata": metadata if functional else {}, **each} for each in cases]
    task = contest(
        *sides_of(cases),
        function_of(named),
        form="livecodebench",
        in_class="class Solution" in starter,
    )
    origin = origin_of(row, place, None, _with_starter(row, starter))
    return task.with_fields({"limits": limits_of(row, "livecodebench"), **origin})


def codecontests(row: Row, place: str) -> Task:
    """CodeContests: public, private and generated tests; the reference is a solution in Python 3.

    Outputs of the same input are all right.
    """
    if row.get("input_file") or row.get("output_file"):
        raise ValueError("the program reads or writes a file in place of stdin and stdout")
    found = [row[each] for each in _TESTS_OF_CONTESTS if row.get(each)]
    inputs = [text for each in found for text in each["input"]]
    outputs = [text for each in found for text in each["output"]]
    solutions = row.get("solutions") or {}
    pairs = zip(solutions.get("language", ()), solutions.get("solution", ()), strict=True)
    reference = next((text for language, text in pairs if language in _PYTHON3), None)
    grader = programs_of(inputs, outputs)
    task = Task(grader={**grader, "cases": _joined(grader["cases"])}, limits=limits_of(row))
    return task.with_fields(origin_of(row, place, reference, optional_text(row, "description")))


def verification(row: Row, place: str) -> Task:
    """SYNTHETIC of PrimeIntellect, open-r1: tests and language in `verification_info`."""
    task = task_of(row["verification_info"])
    reference = optional_text(row, "gold_standard_solution")
    text = optional_text(row, "prompt", "problem")
    return task.with_fields(origin_of(row, place, _unfenced(reference), text))


def _joined(cases: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return a case for each input, with a list of its outputs if they differ."""
    accepted: dict[str, dict[str, None]] = {}
    for each in cases:
        accepted.setdefault(each["stdin"], {})[each["stdout"]] = None
    return [
        {"stdin": stdin, "stdout": next(iter(outputs)) if len(outputs) == 1 else list(outputs)}
        for stdin, outputs in accepted.items()
    ]


def _with_starter(row: Row, starter: str) -> str | None:
    text = optional_text(row, "question", "question_content")
    return f"{text}\n\n{starter}" if text and starter else text


def _unfenced(text: str | None) -> str | None:
    """Return a solution without the fence around it."""
    found = re.fullmatch(r"```\w*\n(.*?)```\s*", text or "", re.DOTALL)
    return found[1] if found else text
