"""Filling sets and dicts with items that somebody else chose: a little at a time.

Hashes can be chosen to collide, and then each insertion compares an item with all before it. So
items go in by steps that are short even then, and after too long altogether it is ``Malformed``.
"""

from __future__ import annotations

import time
from collections import OrderedDict as _OrderedDict
from itertools import islice
from typing import Any

from .limits import Malformed

# Comparisons of parts that one step may take, at the worst: some 30 ms.
_STEP_COMPARISONS = 1_000_000
_SPARE_SECONDS = 0.05
_now = time.thread_time


def fill_set(target: set[Any], items: list[Any], weight: int, seconds_each: float) -> None:
    """Put items into a set.

    ``weight`` is how many parts all of them have together. Raises ``Malformed`` when that takes
    more than ``seconds_each`` for each and a little more: honest ones take below a microsecond.
    """
    step = max(1, _STEP_COMPARISONS // max(weight, 1))
    if len(items) <= step:
        target.update(items)
        return
    end = _now() + _SPARE_SECONDS + seconds_each * len(items)
    for start in range(0, len(items), step):
        target.update(items[start : start + step])
        if _now() > end:
            raise Malformed("hashes that collide")


def fill_dict(target: Any, flat: list[Any], weight: int, seconds_each: float) -> None:
    """Put keys and values, which take turns in a list, into a dict. See ``fill_set``."""
    if len(flat) % 2:
        raise Malformed("a key without a value")
    keys, values = islice(flat, 0, None, 2), islice(flat, 1, None, 2)
    pairs = zip(keys, values)  # noqa: B905  # Python 3.8 has no `strict`
    update = dict.update if type(target) is not _OrderedDict else _OrderedDict.update
    step = max(1, _STEP_COMPARISONS // max(weight, 1))
    count = len(flat) // 2
    if count <= step:
        update(target, pairs)
        return
    end = _now() + _SPARE_SECONDS + seconds_each * count
    for _ in range(0, count, step):
        update(target, islice(pairs, step))
        if _now() > end:
            raise Malformed("hashes that collide")
