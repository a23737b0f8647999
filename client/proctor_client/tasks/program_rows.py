"""Rows of contests: programs with stdin and stdout, and functions called with JSON."""

from __future__ import annotations

import base64
import io
import json
import pickle
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from proctor_client.tasks.fields import Row, cases_of, decoded, optional_text, stream
from proctor_client.tasks.ground_truth import TOLERANCE, calls_of, programs_of
from proctor_client.tasks.task import Imports, Method, Task

_ID_KEYS = ("task_id", "id", "name", "question_id", "problem_id")
_SOLUTION_KEYS = ("solution", "code", "reference", "solutions")
_TESTS_KEYS = ("tests", "test_cases", "input_output", "public_tests")
_TESTS_OF_CONTESTS = ("public_tests", "private_tests", "generated_tests")
_PYTHON3 = (3, "PYTHON3")
"""The language of a solution in CodeContests, as its number and as its name."""

_MODULES = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random"),
    *("statistics", "itertools", "functools", "operator", "io", "sys", "json", "typing"),
)
_CONTEST_IMPORTS = (
    "".join(f"from {name} import *\n" for name in _MODULES),
    f"from builtins import *\nimport {', '.join(_MODULES)}",
    "sys.setrecursionlimit(50000)",
)
"""What the harnesses of LiveCodeBench, APPS and TACO import before each solution."""
_EQUAL_DECIMALS = 1e-15
"""LiveCodeBench compares the numbers of a line as decimals: 1.0 is 1, and 0.33 is not 0.333."""


def stdio(row: Row, place: str) -> Task:
    """Programs with stdin and stdout; names of the fields as in several data sets."""
    grader = {
        "kind": "stdio",
        "cases": _cases(row),
        "compare": row.get("compare", "tokens"),
        "tolerance": row.get("tolerance", 0.0),
    }
    fields: dict[str, Any] = {"grader": grader}
    fields |= {key: row[key] for key in ("limits", "language") if key in row}
    text = optional_text(row, "text", "prompt", "question", "description")
    return Task(_name(row, place), place, fields, _solution(row), text=text)


def apps(row: Row, place: str) -> Task:
    """APPS and TACO: `input_output` and `solutions` are JSON in texts."""
    tests = decoded(row, "input_output") if row.get("input_output") else None
    if not isinstance(tests, Mapping) or not tests.get("inputs"):
        raise ValueError("input_output: no tests")
    solutions = decoded(row, "solutions") if row.get("solutions") else []
    reference = solutions[0] if isinstance(solutions, list) and solutions else None
    starter = str(row.get("starter_code") or "")
    inputs, outputs = tests["inputs"], tests.get("outputs") or []
    task = _contest(inputs, outputs, tests.get("fn_name"), starter or str(reference), TOLERANCE)
    return _named(task, row, place, reference, _with_starter(row, starter))


def livecodebench(row: Row, place: str) -> Task:
    """LiveCodeBench: public and private test cases; the private ones are compressed."""
    cases = [*decoded(row, "public_test_cases"), *_private(row["private_test_cases"])]
    metadata = decoded(row, "metadata") if row.get("metadata") else {}
    starter = str(row.get("starter_code") or "")
    functional = any(each.get("testtype") == "functional" for each in cases)
    name = metadata.get("func_name") if functional else None
    if functional and not name:
        raise ValueError("metadata: no func_name")
    inputs = [each["input"] for each in cases]
    task = _contest(inputs, [each["output"] for each in cases], name, starter, _EQUAL_DECIMALS)
    return _named(task, row, place, None, _with_starter(row, starter))


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
    grader = programs_of(inputs, outputs)
    text = optional_text(row, "description")
    return Task(_name(row, place), place, {"grader": grader}, reference, text=text)


def _contest(
    inputs: Sequence[Any], outputs: Sequence[Any], function: str | None, sample: str, most: float
) -> Task:
    """Return a task without a name. `sample`: text that shows whether `class Solution` is asked."""
    if not function:
        cases = cases_of(inputs, outputs)
        grader: Mapping[str, Any] = {"kind": "stdio", "cases": cases, "tolerance": most}
        return Task("", "", {"grader": grader}, stub=Imports(_CONTEST_IMPORTS))
    in_class = "class Solution" in sample
    grader = calls_of(function, inputs, outputs, in_class=in_class)
    return Task("", "", {"grader": grader}, stub=Method(function, in_class, _CONTEST_IMPORTS))


def _named(task: Task, row: Row, place: str, reference: str | None, text: str | None) -> Task:
    return Task(_name(row, place), place, task.fields, reference, task.stub, text)


def _with_starter(row: Row, starter: str) -> str | None:
    text = optional_text(row, "question", "question_content")
    return f"{text}\n\n{starter}" if text and starter else text


def _private(text: Any) -> list[Mapping[str, Any]]:
    """Return test cases: JSON, or JSON in a pickled text in zlib in base64. Raises ValueError."""
    if not isinstance(text, str):
        raise ValueError("private_test_cases: no text")
    try:
        if not text.lstrip().startswith("["):
            text = _Texts(io.BytesIO(zlib.decompress(base64.b64decode(text)))).load()
        cases = json.loads(text)
    except (ValueError, TypeError, EOFError, pickle.UnpicklingError, zlib.error):
        raise ValueError("private_test_cases: not in LiveCodeBench's form") from None
    if not isinstance(cases, list):
        raise ValueError("private_test_cases: no list")
    return cases


class _Texts(pickle.Unpickler):
    """Unpickler of plain data: a pickle that names a class or a function is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}: only a text is expected")


# ---------------------------------------------------------------- programs in general


def _cases(row: Row) -> list[dict[str, str]]:
    tests: Any = next((row[key] for key in _TESTS_KEYS if row.get(key)), row)
    if isinstance(tests, str):  # some sets hold the tests as JSON in a string
        tests = json.loads(tests)
    if isinstance(tests, Mapping):
        if tests.get("fn_name"):
            raise ValueError("tests of a function (fn_name): the format stdio is for programs")
        return cases_of(_column(tests, "input"), _column(tests, "output"))
    if not isinstance(tests, list) or not all(isinstance(test, Mapping) for test in tests):
        raise ValueError("no tests: a list of {stdin, stdout}, or {inputs, outputs}")
    return [{"stdin": _side(test, "in"), "stdout": _side(test, "out")} for test in tests]


def _column(tests: Row, name: str) -> list[Any]:
    column = tests.get(f"{name}s", tests.get(name))
    if not isinstance(column, list):
        raise ValueError(f"no tests: a list of {{stdin, stdout}}, or lists; {name}s is missing")
    return column


def _side(test: Row, name: str) -> str:
    return stream(test.get(f"std{name}", test.get(f"{name}put")), name)


def _solution(row: Row) -> str | None:
    found = next((row[key] for key in _SOLUTION_KEYS if row.get(key)), None)
    if isinstance(found, list):
        found = found[0]
    if found is None or isinstance(found, str):
        return found
    raise ValueError("the solution is no text")


def _name(row: Row, place: str) -> str:
    found = next((str(row[key]) for key in _ID_KEYS if row.get(key) is not None), None)
    return place.rpartition(":")[2] if found is None else found
