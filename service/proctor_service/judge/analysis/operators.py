"""The operators of Python, by the names of their classes in `ast`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "Div": operator.truediv,
    "FloorDiv": operator.floordiv, "Mod": operator.mod, "BitAnd": operator.and_,
    "BitOr": operator.or_, "BitXor": operator.xor, "RShift": operator.rshift,
}  # fmt: skip
