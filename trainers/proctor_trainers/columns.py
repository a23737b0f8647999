"""From a row of a data set to the fields of a submission that say how it is judged.

Data sets come with tests under a few names. `task_from_columns` knows those of MBPP and HumanEval,
and a column `grader` with any grader of the service; for all else give a function of your own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]
TaskOf: TypeAlias = Callable[[Row], Mapping[str, Any]]
"""Makes of a row the fields of a wire.Submission, without the completion: `grader`, and maybe
`files`, `limits`, `language`, `scoring`. Raises BadTask for a row that cannot be judged."""

GRADER = "grader"
TESTS = ("tests", "test_list", "test")
SETUP = ("setup", "test_setup_code")


class MissingColumns(ValueError):
    """The data set has no column that says how a completion is judged."""


class BadTask(ValueError):
    """A row that cannot be judged. Its completions get no reward, not 0.0."""


def task_from_columns(row: Row) -> Mapping[str, Any]:
    """The grader that a row's columns give.

    `grader`: one of the service's, as a dict, or as JSON text, in which Arrow changes nothing. Or
    `tests`, `test_list` or `test`: Python statements, a list or one text, with `setup` or
    `test_setup_code`, `test_imports` and `entry_point` where there are such. Raises MissingColumns
    when there is none of these, and BadTask when they hold nothing that judges.
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
    # Rows with graders of several kinds have all fields of all kinds in Arrow, most of them None.
    return {name: field for name, field in value.items() if field is not None}


def _asserts(row: Row, tests: object, name: str) -> dict[str, Any]:
    if isinstance(tests, str):
        parsed = _json(tests) if tests.lstrip().startswith("[") else None
        tests = parsed if isinstance(parsed, list) else [tests]
    if not isinstance(tests, list | tuple) or not tests:
        raise BadTask(f"{name}: no list of tests")
    imports = row.get("test_imports") or ()
    setup = [imports] if isinstance(imports, str) else list(imports)
    setup += [row.get(each) for each in SETUP]
    grader: dict[str, Any] = {"kind": "asserts", "tests": list(tests)}
    text = "\n".join(part for part in setup if part)
    if text:
        grader["setup"] = text
    if row.get("entry_point"):
        grader["entry_point"] = row["entry_point"]
    return grader


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
