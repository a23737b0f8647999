"""Graders for functions: arguments and expected values as the data sets write them.

The checkers of APPS, TACO and PRIME have rules of their own, the equality `apps`: keys of an object
among the arguments that are written as integers are integers, and an expected list of one item
stands for the list or for the item.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from proctor_client.tasks.fields import pairs_of
from proctor_client.tasks.task import BadTask
from proctor_client.wire.long_integers import dumps, loads

Equality = Literal["json", "apps"]
_FINITE = json.JSONEncoder(allow_nan=False)


def calls_of(
    name: str,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    equality: Equality = "apps",
    in_class: bool = False,
) -> Mapping[str, Any]:
    """Return a grader for calls of a function, or of the method of `class Solution`.

    A submission may have either. An input is a list of arguments, or a line of JSON for each. With
    `in_class`, messages name the method. Raises BadTask.
    """
    if not name.isidentifier():
        raise BadTask(f"fn_name: {name[:100]!r} is no name of a function")
    cases = [
        {"args": arguments_of(given), "expected": expected_of(value)}
        for given, value in pairs_of(inputs, outputs)
    ]
    _check_numbers(cases)
    return {
        "kind": "calls",
        "entry_point": f"Solution().{name}" if in_class else name,
        "method": "either",
        "cases": cases,
        "equality": equality,
    }


def arguments_of(value: Any) -> list[Any]:
    """Return the arguments of a call: a list, or a text with a line of JSON for each.

    Raises BadTask.
    """
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        raise BadTask("an input of a call is neither a list nor lines of JSON")
    try:
        return [loads(line) for line in value.split("\n")] if value.strip() else []
    except (ValueError, RecursionError):
        raise BadTask("an input of a call is no JSON") from None


def expected_of(value: Any) -> Any:
    """Return the expected value of a call: JSON in a text, or the value itself."""
    if not isinstance(value, str):
        return value
    try:
        return loads(value)
    except (ValueError, RecursionError):
        return value  # a text that is not written as JSON stands for itself


def _check_numbers(cases: Sequence[Mapping[str, Any]]) -> None:
    """Raise BadTask for numbers that JSON does not have, and for values that are nested too deeply."""
    try:
        dumps(cases, _FINITE)
    except RecursionError:
        raise BadTask("an input or output of a call is nested too deeply") from None
    except ValueError:
        raise BadTask("an input or output of a call is not finite") from None
