"""Rows of contests: programs with stdin and stdout, and functions called with JSON."""

from __future__ import annotations

import base64
import io
import math
import pickle
import re
import zlib
from collections.abc import Mapping
from typing import Any

from proctor_client.tasks.contests import contest, programs_of, sides_of
from proctor_client.tasks.fields import decoded, function_of, optional_text, origin_of, plain
from proctor_client.tasks.ground_truth import task_of
from proctor_client.tasks.task import Row, Task
from proctor_client.wire.long_integers import loads

_TESTS_OF_CONTESTS = ("public_tests", "private_tests", "generated_tests")
_PYTHON3 = (3, "PYTHON3")
"""The language of a solution in CodeContests, as its number and as its name."""

_MEGABYTE = 1 << 20
_DURATION = re.compile(r"\s*([0-9.]+)\s*(?:s|sec|seconds?)?\s*", re.IGNORECASE)
"""A time limit of TACO, such as `2.0 seconds`; without a unit, seconds."""
_SIZE = re.compile(r"\s*([0-9.]+)\s*(?:mb|megabytes?)\s*", re.IGNORECASE)
"""A memory limit of TACO, such as `256.0 megabytes`."""
_HARNESS_SECONDS: Mapping[str, float] = {"apps": 4.0, "livecodebench": 6.0}
"""Time limit of one test in the harnesses of rows that bring none of their own."""


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
    return task.with_fields({"limits": _limits(row, "apps"), **origin})


def livecodebench(row: Row, place: str) -> Task:
    """LiveCodeBench: public and private test cases; the private ones are compressed."""
    public = decoded(row, "public_test_cases") if row.get("public_test_cases") else []
    cases = [*public, *_private(row["private_test_cases"])]
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
    return task.with_fields({"limits": _limits(row, "livecodebench"), **origin})


def codecontests(row: Row, place: str) -> Task:
    """CodeContests: public, private and generated tests; the reference is a solution in Python 3."""
    if row.get("input_file") or row.get("output_file"):
        raise ValueError("the program reads or writes a file in place of stdin and stdout")
    found = [row[each] for each in _TESTS_OF_CONTESTS if row.get(each)]
    inputs = [text for each in found for text in each["input"]]
    outputs = [text for each in found for text in each["output"]]
    solutions = row.get("solutions") or {}
    pairs = zip(solutions.get("language", ()), solutions.get("solution", ()), strict=True)
    reference = next((text for language, text in pairs if language in _PYTHON3), None)
    task = Task(grader=programs_of(inputs, outputs), limits=_limits(row))
    return task.with_fields(origin_of(row, place, reference, optional_text(row, "description")))


def codeforces(row: Row, place: str) -> Task:
    """open-r1/codeforces: official tests, with limits. Raises ValueError for a row with a checker."""
    if row.get("generated_checker"):
        raise ValueError("generated_checker: several outputs are right, by a checker of its own")
    if row.get("interaction_format"):
        raise ValueError("interaction_format: the program talks to another one")
    if row.get("official_tests_complete") is False:
        raise ValueError("official_tests_complete: the tests are cut off")
    cases = decoded(row, "official_tests") if row.get("official_tests") else []
    if not cases:
        raise ValueError("official_tests: no tests")
    # Without a checker one output is right, to the character.
    grader = dict(programs_of(*sides_of(cases), tolerance={}))
    if row.get("input_mode") == "file":
        grader["cases"] = [
            {"stdin": "", "stdout": each["stdout"], "files": {"input.txt": each["stdin"]}}
            | {"output_file": "output.txt"}
            for each in grader["cases"]
        ]
    language = str(row.get("language") or "python")
    task = Task(grader=grader, limits=_limits(row), language=language)
    text = optional_text(row, "prompt", "description")
    return task.with_fields(origin_of(row, place, None, text))


def verification(row: Row, place: str) -> Task:
    """SYNTHETIC of PrimeIntellect, open-r1: tests and language in `verification_info`."""
    task = task_of(row["verification_info"])
    reference = optional_text(row, "gold_standard_solution")
    text = optional_text(row, "prompt", "problem")
    return task.with_fields(origin_of(row, place, _unfenced(reference), text))


def _with_starter(row: Row, starter: str) -> str | None:
    text = optional_text(row, "question", "question_content")
    return f"{text}\n\n{starter}" if text and starter else text


def _unfenced(text: str | None) -> str | None:
    """Return a solution without the fence around it."""
    found = re.fullmatch(r"```\w*\n(.*?)```\s*", text or "", re.DOTALL)
    return found[1] if found else text


def _limits(row: Row, form: str = "") -> dict[str, Any] | None:
    """Return a row's limits for a test, in seconds and megabytes."""
    seconds = _seconds(row.get("time_limit"), row.get("time_limit_seconds"))
    limits = {
        "cpu_seconds": seconds or _HARNESS_SECONDS.get(form),
        "memory_mb": _megabytes(row.get("memory_limit"), row.get("memory_limit_bytes")),
    }
    return {name: value for name, value in limits.items() if value} or None


def _seconds(*values: Any) -> float | None:
    for value in values:
        if isinstance(value, Mapping):
            value = (value.get("seconds") or 0) + (value.get("nanos") or 0) / 1e9
        if isinstance(value, str):
            matched = _DURATION.fullmatch(value)
            value = float(matched[1]) if matched else None
        if isinstance(value, int | float) and value > 0:
            return float(value)
    return None


def _megabytes(megabytes: Any, size_bytes: Any) -> int | None:
    if isinstance(megabytes, str):
        matched = _SIZE.fullmatch(megabytes)
        megabytes = float(matched[1]) if matched else None
    if isinstance(megabytes, int | float) and megabytes > 0:
        return math.ceil(megabytes)
    if isinstance(size_bytes, int | float) and size_bytes > 0:
        return math.ceil(size_bytes / _MEGABYTE)
    return None


def _private(text: Any) -> list[Mapping[str, Any]]:
    """Return test cases: JSON, or JSON in a pickled text in zlib in base64. Raises ValueError."""
    text = plain(text)
    if not text or isinstance(text, list):
        return text or []
    if not isinstance(text, str):
        raise ValueError("private_test_cases: neither a text nor a list")
    try:
        if not text.lstrip().startswith("["):
            text = _Texts(io.BytesIO(zlib.decompress(base64.b64decode(text)))).load()
        cases = loads(text) if isinstance(text, str) else text
    except (ValueError, TypeError, EOFError, pickle.UnpicklingError, zlib.error):
        raise ValueError("private_test_cases: not in LiveCodeBench's form") from None
    if not isinstance(cases, list):
        raise ValueError("private_test_cases: no list")
    return cases


class _Texts(pickle.Unpickler):
    """Unpickler of plain data: pickles with classes or functions are refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}: only a text is expected")
