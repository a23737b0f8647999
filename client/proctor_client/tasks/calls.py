"""Graders for functions: arguments and expected values in the forms of the data sets.

The checkers of APPS, TACO and PRIME have rules of their own, the equality `apps`: among the arguments, keys
of an object become integers if written as integers, and an expected list with a single item stands for the
list or for the item.
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

    A submission may have either. A call is its arguments with a value, or a text with a line of JSON for
    each argument, with a value in JSON. With `in_class`, messages name the method. Raises BadTask.
    """
    if not name.isidentifier():
        raise BadTask(f"fn_name: {name[:100]!r} is no name of a function")
    cases = [_case(arguments, value) for arguments, value in pairs_of(inputs, outputs)]
    _check_numbers(cases)
    return {
        "kind": "calls",
        "entry_point": f"Solution().{name}" if in_class else name,
        "method": "either",
        "cases": cases,
        "equality": equality,
    }


def _case(arguments: Any, value: Any) -> dict[str, Any]:
    """Return a call with its expected value: both are values, or both texts. Raises BadTask."""
    if isinstance(arguments, list):
        return {"args": arguments, "expected": value}
    if not isinstance(arguments, str):
        raise BadTask("an input of a call is neither a list nor lines of JSON")
    try:
        args = [loads(line) for line in arguments.split("\n")] if arguments.strip() else []
    except (ValueError, RecursionError):
        raise BadTask("an input of a call is no JSON") from None
    try:
        return {"args": args, "expected": loads(value) if isinstance(value, str) else value}
    except (ValueError, RecursionError):
        return {"args": args, "expected": value}  # not written as JSON: it stands for itself


def _check_numbers(cases: Sequence[Mapping[str, Any]]) -> None:
    """Raise BadTask for numbers beyond JSON, and for values nested too deeply."""
    try:
        dumps(cases, _FINITE)
    except RecursionError:
        raise BadTask("an input or output of a call is nested too deeply") from None
    except ValueError:
        raise BadTask("an input or output of a call is not finite") from None
