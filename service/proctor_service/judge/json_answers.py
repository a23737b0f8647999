"""Equality of a returned value with an expected JSON value.

`json`: JSON has no tuples and only text as keys, so a tuple or an array may match a list, and dict keys
are compared in their JSON form. `python`: a list is a list, and keys keep their types. `apps`: as `json`,
and an expected list of one item stands for the item, too. The walk follows the expected value, so it ends
even if the answer is cyclic or full of shared parts.
"""

from __future__ import annotations

import array
import json
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, Literal

from proctor_client.wire import long_integers
from proctor_service.codec import values
from proctor_service.judge.text import EXACT, Closeness

_SPARE_BYTES = 65_536
_LONGER_AT_MOST = 24
_MAX_KEY_BITS = 4096
_CONTAINERS = (list, tuple, dict, set, frozenset)


@dataclass(frozen=True, slots=True)
class Equality:
    """Rules by which a returned value equals the expected one."""

    kind: Literal["json", "python", "apps"] = "json"
    closeness: Closeness = EXACT

    def is_answer(self, line: bytes, expected: Any) -> bool:
        """Return True if an encoded value equals `expected`.

        An encoding far longer than the expected value can never be equal and stays unparsed.
        """
        spare = len(line) - _SPARE_BYTES
        if spare > 0 and spare > len(long_integers.dumps(expected)) * _LONGER_AT_MOST:
            return False
        try:
            value = values.decode(values.loads(line))
            return any(self._is_same(value, each) for each in self._accepted(expected))
        except (values.Malformed, ArithmeticError, RecursionError):  # a signalling NaN
            return False

    def _accepted(self, expected: Any) -> list[Any]:
        is_single = isinstance(expected, list) and len(expected) == 1
        return [expected, *(expected if is_single and self.kind == "apps" else ())]

    def _is_same(self, value: Any, expected: Any) -> bool:
        lists = (list, tuple, array.array) if self.kind != "python" else (list,)
        todo = [(value, expected)]
        while todo:
            got, wanted = todo.pop()
            if isinstance(wanted, list):
                if not isinstance(got, lists) or len(got) != len(wanted):
                    return False
                todo.extend(zip(got, wanted, strict=True))
            elif isinstance(wanted, dict):
                members = self._members(got, len(wanted)) if isinstance(got, dict) else None
                if members is None or members.keys() != wanted.keys():
                    return False
                todo.extend((members[key], wanted[key]) for key in wanted)
            elif isinstance(got, _CONTAINERS) or not self._is_same_scalar(got, wanted):
                return False
        return True

    def _is_same_scalar(self, got: Any, wanted: Any) -> bool:
        """Compare two integers exactly, other numbers by their closeness, and the rest by `==`."""
        numbers = isinstance(got, Real | Decimal) and isinstance(wanted, int | float)
        both_integers = isinstance(got, Integral) and isinstance(wanted, int)
        if got == wanted or self.closeness.is_exact or both_integers or not numbers:
            return bool(got == wanted)
        try:
            return self.closeness.accepts(float(got), float(wanted))
        except OverflowError:  # an int beyond the range of floats
            return False

    def _members(self, value: dict[Any, Any], count: int) -> dict[Any, Any] | None:
        """Return the items by their keys in JSON; None if not so many keys differ there."""
        if len(value) != count or self.kind == "python":
            return value if len(value) == count else None
        members = {_key(key): item for key, item in value.items()}
        # Two keys with the same JSON form make the answer wrong: their values are ambiguous.
        return members if len(members) == count else None


def _key(key: Any) -> Any:
    """Return a key in its JSON form; None, unequal to any text, if JSON has no such form."""
    if isinstance(key, int) and key.bit_length() > _MAX_KEY_BITS:
        return None
    if key is None or isinstance(key, bool | int | float):
        return json.dumps(key)
    return key if isinstance(key, str) else None
