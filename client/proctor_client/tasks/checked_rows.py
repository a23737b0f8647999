"""Rows of contests with outputs judged by a checker: open-r1/codeforces, CodeContests+ and HardTests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from proctor_client.tasks.contests import programs_of, sides_of
from proctor_client.tasks.fields import decoded, decoded_value, optional_text, origin_of
from proctor_client.tasks.limits import limits_of
from proctor_client.tasks.packed import packed_cases
from proctor_client.tasks.task import Row, Task

_CODEFORCES = """\
import contextlib
import io
import runpy
import sys

for place in (2, 3):
    with open(sys.argv[place], "rb") as file:
        lines = [line.removesuffix(b"\\r") for line in file.read().split(b"\\n")]
    sys.argv[place] += ".txt"
    with open(sys.argv[place], "wb") as file:
        file.writelines(line + b"\\n" for line in lines if line)
printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace")
try:
    with contextlib.redirect_stdout(printed):
        runpy.run_path("checker.py", run_name="__main__")
finally:
    printed.flush()
    score = printed.buffer.getvalue().decode().strip()
    print("1" if score == "100" else score)
"""
"""Runs a checker as its harness does: without blank lines in the answer and the output; 100 is right, too."""
_IMPORTS = "import json\nimport sys\n\n"
"""What a function of HardTests finds in its harness."""
_HARDTESTS = """

import contextlib as _contextlib
import sys as _sys

def _text(path):
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        return file.read()

with _contextlib.redirect_stdout(_sys.stderr):
    _input, _answer, _output = map(_text, _sys.argv[1:4])
    _is_right = output_judging_function(
        input_str=_input, candidate_output=_output, reference_output=_answer
    )
print(int(bool(_is_right)))
"""
"""Behind a function of HardTests; what it prints is no score."""
_YES_OR_NO = frozenset({"yes", "no"})
_WORD = re.compile(r"[^\W\d_]+")  # letters, as in `YES`
_LEAST_RATE = 0.9
_RATES: Mapping[str, str] = {
    "true_positive_rate": "its tests reject right programs",
    "true_negative_rate": "its tests accept wrong programs",
}
_PYTHON = ("py3", "python3", "python")


def codeforces(row: Row, place: str) -> Task:
    """open-r1/codeforces: official and generated tests, with limits, and a checker in Python.

    `generated_tests` counts only as a list of cases; a number is ignored.
    """
    if row.get("interaction_format"):
        raise ValueError("interaction_format: the program talks to another one, which no row has")
    generated = decoded_value(row.get("generated_tests"))
    generated = generated if isinstance(generated, list) else []
    if row.get("official_tests_complete") is False and not generated:
        raise ValueError(
            "official_tests_complete: the tests are cut off; the generated ones, in files of their own, "
            "may be in generated_tests as a list"
        )
    official = decoded(row, "official_tests") if row.get("official_tests") else []
    if not [*official, *generated]:
        raise ValueError("official_tests: no tests")
    inputs, outputs = sides_of([*official, *generated])
    # Without a checker one output is right, to the character.
    grader = dict(programs_of(_without_cr(inputs), _without_cr(outputs), tolerance={}))
    checker = optional_text(row, "generated_checker")
    if checker is not None:
        grader["checker"] = _in_python(_CODEFORCES, {"checker.py": checker})
    elif _says_yes_or_no(outputs):
        grader["ignore_case"] = True
    if row.get("input_mode") == "file":
        grader["cases"] = [
            # A checker reads the input of a case from its stdin.
            {**each, "stdin": each["stdin"] if checker else "", "output_file": "output.txt"}
            | {"files": {"input.txt": each["stdin"]}}
            for each in grader["cases"]
        ]
    language = str(row.get("language") or "python")
    task = Task(grader=grader, limits=limits_of(row), language=language)
    text = optional_text(row, "prompt", "description")
    return task.with_fields(origin_of(row, place, None, text))


def codecontestsplus(row: Row, place: str) -> Task:
    """CodeContests+: tests, and a checker in C++ with testlib.h; the reference is a solution in Python 3.

    A row with own measured rates below 0.9 raises ValueError.
    """
    for name, what in _RATES.items():
        rate = row.get(name)
        if isinstance(rate, int | float) and rate < _LEAST_RATE:
            raise ValueError(f"{name}: {rate:.2f}, below {_LEAST_RATE}: {what}")
    cases = decoded(row, "test_cases") if row.get("test_cases") else []
    if not cases:
        raise ValueError("test_cases: no tests; the configurations 1x to 5x have them")
    grader = dict(programs_of(*sides_of(cases)))
    checker = optional_text(row, "checker")
    if checker is not None:
        grader["checker"] = {"language": "cpp", "source": checker, "convention": "testlib"}
    limits = limits_of({**row, "time_limit": _milliseconds(row.get("time_limit"))})
    task = Task(grader=grader, limits=limits, language=str(row.get("language") or "python"))
    reference = _reference(task, row.get("correct_submissions"))
    return task.with_fields(origin_of(row, place, reference, optional_text(row, "description")))


def hardtests(row: Row, place: str) -> Task:
    """HardTests: packed tests, and a function for judging an output, or lines to compare.

    Statement, limits and solutions are in a data set of their own; the row may include its columns.
    """
    kit = decoded(row, "test_cases_kit")
    cases = packed_cases(row, "test_cases")
    if not cases:
        raise ValueError("test_cases: no tests")
    grader = {**programs_of(*sides_of(cases), tolerance={}), "compare": "lines"}
    judging = optional_text(kit, "output_judging_function")
    if judging is not None:
        grader["checker"] = _in_python(_IMPORTS + judging + _HARDTESTS, {})
    language = str(row.get("language") or "python")
    task = Task(grader=grader, limits=limits_of(row, "hardtests"), language=language)
    text = optional_text(row, "question_content")
    return task.with_fields(origin_of(row, place, _reference(task, row.get("solutions")), text))


def _in_python(source: str, files: Mapping[str, str]) -> dict[str, Any]:
    found = {"language": "python", "source": source, "convention": "open_r1"}
    return {**found, "files": files} if files else found


def _reference(task: Task, submissions: Any) -> str | None:
    """Return the first of `{code, language}` in Python 3, for a task in Python."""
    found = (decoded_value(submissions) or []) if task.language == "python" else []
    for each in found if isinstance(found, list) else []:
        if isinstance(each, Mapping) and str(each.get("language")).lower() in _PYTHON:
            return optional_text(each, "code")
    return None


def _without_cr(texts: Sequence[Any]) -> list[Any]:
    return [each.replace("\r\n", "\n") if isinstance(each, str) else each for each in texts]


def _says_yes_or_no(outputs: Sequence[Any]) -> bool:
    """Return True if yes and no are the only words of the outputs; Codeforces takes them in any case."""
    words = {word.casefold() for each in outputs for word in _WORD.findall(str(each))}
    return bool(words) and words <= _YES_OR_NO


def _milliseconds(value: Any) -> float | None:
    return value / 1000 if isinstance(value, int | float) else None
