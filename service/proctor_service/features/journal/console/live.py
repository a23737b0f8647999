"""Bodies of pages that many browsers look at while they change: made once for all of them."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

from proctor_service.features.journal.answering.questions import Answer

STORED_SECONDS = 2.0
STORED_TIMES = 20
"""A body that took long to make is stored for this many times as long, so that looking at it never
takes more than a twentieth of a core."""
LONGEST_STORED_SECONDS = 30.0
MOST_STORED = 64


@dataclass(slots=True)
class _Entry:
    making: asyncio.Task[Answer]
    until: float = float("inf")


class Bodies:
    """Cache of bodies. Requests for the same body wait for one making."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()

    async def body(self, key: Hashable, make: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the body for a key, at most a few seconds old. Raises what `make` raises."""
        entry = self._entries.get(key)
        if entry is None or entry.until < time.monotonic():
            making = asyncio.ensure_future(self._made(key, make))
            making.add_done_callback(_retrieve)
            entry = self._entries[key] = _Entry(making)
            self._entries.move_to_end(key)
            while len(self._entries) > MOST_STORED:
                self._entries.popitem(last=False)
        return await asyncio.shield(entry.making)

    async def _made(self, key: Hashable, make: Callable[[], Awaitable[Answer]]) -> Answer:
        begun = time.monotonic()
        store_seconds = 0.0
        try:
            answer = await make()
            took = time.monotonic() - begun
            store_seconds = min(max(STORED_SECONDS, STORED_TIMES * took), LONGEST_STORED_SECONDS)
            return answer
        finally:
            entry = self._entries.get(key)
            if entry is not None and entry.making is asyncio.current_task():
                entry.until = time.monotonic() + store_seconds


def _retrieve(making: asyncio.Task[Answer]) -> None:
    """Take note of an error, also where every browser has left before it."""
    if not making.cancelled():
        making.exception()
