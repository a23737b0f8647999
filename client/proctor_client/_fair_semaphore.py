"""FairSemaphore of requests: a bounded number at once, first come, first served, without I/O or waiting.

httpx also lets requests wait for a connection, but searches all of them at each change: with some
hundred waiting requests, the search takes all of a core. So each request needs a permit before httpx.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Protocol


class Event(Protocol):
    """A threading.Event or an asyncio.Event, on which a call waits."""

    def set(self) -> None:
        """Wake the call."""

    def clear(self) -> None:
        """Have the call wait for the next `set`."""


class FairSemaphore:
    """Semaphore of an event loop, or of all threads of a process. Thread-safe."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: OrderedDict[Event, None] = OrderedDict()
        # Reentrant, because a garbage collection within may close a stream, which gives up its permit.
        self._lock = threading.RLock()

    def join(self, event: Event) -> None:
        """Queue for a permit; `event` is set with the permit, which may be at once."""
        with self._lock:
            self._waiting[event] = None
            self._serve()

    def leave(self, event: Event) -> None:
        """Give the permit back, or the place in the queue."""
        with self._lock:
            if event in self._waiting:
                del self._waiting[event]
            else:
                self._free += 1
                self._serve()

    def wake_all(self) -> None:
        """Wake all waiting calls, because the client was closed."""
        with self._lock:
            self._free += len(self._waiting)
            self._serve()

    def _serve(self) -> None:
        while self._free > 0 and self._waiting:
            event, _ = self._waiting.popitem(last=False)
            self._free -= 1
            event.set()
