"""Gaps between the objects of a fork server, which would scatter the new objects of its sandboxes.

Standard library only.
"""

from __future__ import annotations

from ..linux import kernel

_STEP, _LARGEST_OF_POOL, _POOL_BYTES, _POOL_HEADER = 16, 512, 1 << 14, 48
_MOST_POOLS = 16  # so many of a size are filled at most


def fill() -> list[object]:
    """Fill the gaps between objects, and return the fillers.

    New objects of a sandbox would otherwise go into gaps all over the memory, where each costs the
    copy of a page. CPython takes objects of up to 512 bytes, in steps of 16, from pools of 16 kB,
    and larger ones from malloc.
    """
    fillers: list[object] = []
    for size in range(_STEP, _LARGEST_OF_POOL + 1, _STEP):
        blocks = (_POOL_BYTES - _POOL_HEADER) // size
        in_pool: dict[int, int] = {}
        for _ in range(_MOST_POOLS * blocks):
            fillers.append(_filler(size))
            pool = id(fillers[-1]) // _POOL_BYTES
            in_pool[pool] = in_pool.get(pool, 0) + 1
            if in_pool[pool] == blocks - 2:  # a new pool: no gap is left
                while id(fillers[-1]) // _POOL_BYTES == pool:
                    fillers.pop()
                break
    kernel.fill_heap()
    return fillers


def _filler(size: int) -> object:
    """Make an object of `size` bytes."""
    if size == 16:
        return object()
    if size == 32:
        return float(size)
    return bytes(size - b"".__sizeof__())
