"""Which exceptions end a test, and which of the submission's may reach the tests as themselves."""

from __future__ import annotations

from typing import Any

from .crossing_classes import ALL_CONTROL, control_names, is_made_here
from .handles import Refused

_MOST_PLACES = 3


def may_cross(error: BaseException, wanted: frozenset[str]) -> bool:
    """Whether an exception is an ordinary one, or one that the tests name around the call."""
    control = control_names(error)
    if isinstance(error, Exception) and not control:
        return True
    own = {cls.__name__ for cls in type(error).__mro__ if is_made_here(cls)}
    return bool(wanted & control) or bool((wanted - ALL_CONTROL) & own)


def is_telling(error: BaseException) -> bool:
    """Whether an exception of the tests says how a test ends, so that nobody may swallow it."""
    if isinstance(error, (AssertionError, Refused)) or not isinstance(error, Exception):
        return True
    return bool(control_names(error))


def checked_places(places: Any) -> list[tuple[int, str]]:
    """Line and function of the last places of a failure, as far as they make sense."""
    found = []
    for place in places[-_MOST_PLACES:] if type(places) is list else []:
        if type(place) is list and [type(part) for part in place] == [int, str]:
            found.append((min(max(place[0], 0), 100_000), place[1][:80]))
    return found
