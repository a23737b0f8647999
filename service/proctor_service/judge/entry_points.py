"""Entry points: which function of a submission the tests call.

    f                 a function
    Solution().f      a method of a new object
    Solution.f        a function or method of the class itself
    f, with either    `Solution().f`, or else the function `f`: the sandbox decides, where the submission is

A target is the form of an entry point for a sandbox (`guest/function_calls.py`).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from proctor_service.codec import values
from proctor_service.errors import InvalidTask

_DOTTED = re.compile(r"[^\W\d]\w*(\(\))?(\.[^\W\d]\w*)*")
"""Names of functions, methods and attributes: `f`, `Solution().f`, `a.b.f`; not `f(1)`."""


def normal(entry_point: str) -> str:
    """Return an entry point with its names as Python normalises them. Raises InvalidTask."""
    found = unicodedata.normalize("NFKC", entry_point)
    if not _DOTTED.fullmatch(found):
        raise InvalidTask(f"entry_point: {entry_point[:100]!r} names no function")
    return found


def either(entry_point: str) -> list[str]:
    """Return the target of `either` for a normal entry point: its last name."""
    return [entry_point.rpartition(".")[2]]


def target_of(entry_point: str) -> Any:
    """Return the target of a normal entry point. Raises InvalidTask for `a.b.f` and `Solution()`."""
    owner, dot, name = entry_point.rpartition(".")
    if "." in owner or name.endswith(")"):
        raise InvalidTask(
            f"entry_point: {entry_point[:100]!r} is not f, Solution().f or Solution.f"
        )
    if not dot:
        return name
    if owner.endswith("()"):
        return [owner[:-2], values.encode([]), values.encode({}), name]
    return [owner, name]
