"""Attributes and methods of the types which cross between two interpreters as data."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import inspect
from typing import Any

_words = str.split
_TYPES = (
    *(str, bytes, bytearray, int, float, complex, list, tuple, dict, set, frozenset),
    *(collections.deque, collections.Counter, collections.OrderedDict, collections.defaultdict),
    *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone),
    *(decimal.Decimal, fractions.Fraction),
)
_NUMPY_METHODS = _words(
    "all any argmax argmin argsort astype clip cumprod cumsum diagonal dot flatten item max mean min nonzero"
    " prod ravel repeat reshape round searchsorted sort squeeze std sum swapaxes take tobytes tolist trace"
    " transpose var view"
)
_NUMPY_FIELDS = _words("T dtype flat itemsize nbytes ndim shape size strides")


def _names(*, methods: bool) -> frozenset[str]:
    return frozenset(
        name
        for kind in _TYPES
        for name in dir(kind)
        if not name.startswith("_") and callable(getattr(kind, name)) is methods
    )


METHODS = _names(methods=True).union(_NUMPY_METHODS)
"""Names called by a test: `items` in `f(1).items()`."""
FIELDS = _names(methods=False).union(_NUMPY_FIELDS) - METHODS
"""Names read by a test: `year` in `f(1).year`."""
SPECIAL = frozenset(["__len__", "__getitem__", "__contains__", "__iter__", "__next__", "__class__"])
"""Special methods of data, sometimes called by name in tests."""
RETURNING_NONE = frozenset(
    _words(
        "add append appendleft clear difference_update discard extend extendleft insert intersection_update"
        " remove reverse rotate sort subtract symmetric_difference_update update"
    )
)
CHANGING = RETURNING_NONE | frozenset(["pop", "popitem", "popleft", "setdefault"])
"""Mutating methods; the first of them return None."""


def _least_arguments() -> dict[str, int]:
    found: dict[str, int] = {}
    for kind in _TYPES:
        for name in dir(kind):
            method = None if name.startswith("_") else getattr(kind, name)
            if callable(method):
                found[name] = min(found.get(name, 9), _least_of(method))
    return {name: least for name, least in found.items() if least and name not in _NUMPY_METHODS}


def _least_of(method: Any) -> int:
    """Return the number of arguments without a default, beside the object; 0 if unknown."""
    try:
        parameters = [*inspect.signature(method).parameters.values()]
    except (TypeError, ValueError):
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [each for each in parameters if each.kind in positional and each.default is each.empty]
    return max(len(needed) - (parameters[:1] != [] and parameters[0].name == "self"), 0)


LEAST_ARGUMENTS = _least_arguments()
"""Least number of arguments of a method, for any type of data: 1 for `get`."""
