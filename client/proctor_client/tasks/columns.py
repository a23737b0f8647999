"""Conversion of a data set's row to the fields of a submission that define its judging.

Data sets store tests under several names. `task_from_columns` knows the names of MBPP and
HumanEval, and a column `grader` with any grader of the service. For other data sets, pass a
function of your own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]
TaskOf: TypeAlias = Callable[[Row], Mapping[str, Any]]
"""Function from a row to the fields of a wire.Submission, without the completion.

The fields are `grader`, and optionally `files`, `limits`, `language`, `scoring`,
`negative_control`, `environment`. The function raises BadTask for a row that cannot be judged.
"""

GRADER = "grader"
TESTS = ("tests", "test_list", "test")
SETUP = ("setup", "test_setup_code")


class MissingColumns(ValueError):
    """Raised when no column of the data set defines the judging of a completion."""


class BadTask(ValueError):
    """Raised for a row that cannot be judged. Its completions get no reward, rather than 0.0."""


def task_from_columns(row: Row) -> Mapping[str, Any]:
    """Return the grader defined by a row's columns.

    Either `grader`: a grader of the service, as a dict, or as JSON text, which Arrow leaves
    unchanged. Or `tests`, `test_list` or `test`: Python statements, as a list or a text, optionally
    with `setup` or `test_setup_code`, `test_imports` and `entry_point`. Raises MissingColumns if
    none of these columns exists, and BadTask if their values define no grader.
    """
    if row.get(GRADER) is not None:
        return {"grader": _grader(row[GRADER])}
    for name in TESTS:
        if row.get(name) is not None:
            return {"grader": _asserts(row, row[name], name)}
    if not any(name in row for name in (GRADER, *TESTS)):
        names = ", ".join(sorted(row)) or "none"
        raise MissingColumns(
            f"no column says how to judge: one of {', '.join((GRADER, *TESTS))} is needed, or "
            f"`task=` with a function of yours; the columns are: {names}"
        )
    raise BadTask("the row has neither a grader nor tests")


def _grader(value: object) -> dict[str, Any]:
    if isinstance(value, str):
        value = _json(value)
    if not isinstance(value, Mapping):
        raise BadTask(f"{GRADER}: neither an object nor JSON text of one")
    # Arrow gives every row the fields of all kinds of graders, most of them None.
    return {name: field for name, field in value.items() if field is not None}


def _asserts(row: Row, tests: object, name: str) -> dict[str, Any]:
    if isinstance(tests, str):
        parsed = _json(tests) if tests.lstrip().startswith("[") else None
        tests = parsed if isinstance(parsed, list) else [tests]
    if not isinstance(tests, list | tuple) or not tests:
        raise BadTask(f"{name}: no list of tests")
    imports = row.get("test_imports") or ()
    parts = [imports] if isinstance(imports, str) else imports
    if not isinstance(parts, Iterable):
        raise BadTask("test_imports: neither a text nor a list")
    setup = [part for part in (*parts, *(row.get(each) for each in SETUP)) if part]
    if not all(isinstance(part, str) for part in setup):
        raise BadTask(f"test_imports, {', '.join(SETUP)}: not all are texts")
    grader: dict[str, Any] = {"kind": "asserts", "tests": list(tests)}
    text = "\n".join(setup)
    if text:
        grader["setup"] = text
    if row.get("entry_point"):
        grader["entry_point"] = row["entry_point"]
    return grader


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
