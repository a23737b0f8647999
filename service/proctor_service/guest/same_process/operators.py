"""The comparison operators of Python, by the names of their classes in `ast`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt, "LtE": operator.le,
    "Gt": operator.gt, "GtE": operator.ge, "In": lambda left, right: left in right,
    "NotIn": lambda left, right: left not in right,
}  # fmt: skip
