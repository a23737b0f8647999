"""Insertion of untrusted items into sets and dicts, in short steps.

An attacker can choose items with colliding hashes; each insertion then compares an item with all
earlier items. So insertion runs in steps, short even in this case, and raises ``Malformed`` if the
total time is too long.
"""

from __future__ import annotations

import time
from collections import OrderedDict as _OrderedDict
from itertools import islice
from typing import Any

from .limits import Malformed

# Worst-case number of compared parts in a step: about 30 ms.
_STEP_COMPARISONS = 1_000_000
_SPARE_SECONDS = 0.05
_now = time.thread_time


def fill_set(target: set[Any], items: list[Any], weight: int, seconds_each: float) -> None:
    """Put items into a set.

    ``weight``: number of parts of all items together. Raises ``Malformed`` if the thread uses more
    CPU time than ``seconds_each`` per item plus 50 ms; an honest item takes below a microsecond.
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
    """Put alternating keys and values of a list into a dict. See ``fill_set``."""
    if len(flat) % 2:
        raise Malformed("a key without a value")
    keys, values = islice(flat, 0, None, 2), islice(flat, 1, None, 2)
    pairs = zip(keys, values)  # Python 3.8 has no `strict`
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
