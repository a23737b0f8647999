"""Reads of /proc whose size a sandbox chooses, in a thread of their own.

The event loop may read what is constant in size, or bounded: a few processes. What may be larger, such as
the mappings of a process or the threads of a crowd, is read here. One read at a time for each sandbox
and purpose; then that rests for a while, so that a hostile sandbox takes a part of a core at most.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from proctor_service.sandbox.backends.local import procfs
from proctor_service.sandbox.backends.local.memory import MemoryLimit, exceeds

T = TypeVar("T")

_log = logging.getLogger(__name__)
_THREADS = 1  # more would contend with the loop for the interpreter, and for cores
_REST = 3  # times as long as it took


class Reads:
    """Runs reads in threads, and hands what they found to the event loop."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="procfs")
        self._tasks: dict[tuple[object, str], asyncio.Task[None]] = {}
        self._rests_until: dict[tuple[object, str], float] = {}

    def start(
        self, owner: object, purpose: str, read: Callable[[], T], then: Callable[[T], None]
    ) -> None:
        """Reads in a thread, and calls `then` on the loop; nothing, while the last one runs or rests."""
        key = (owner, purpose)
        now = time.monotonic()
        self._rests_until = {k: until for k, until in self._rests_until.items() if until > now}
        if key in self._tasks or key in self._rests_until:
            return
        task = asyncio.get_running_loop().create_task(self._run(key, read, then))
        self._tasks[key] = task

    async def run(self, read: Callable[[], T]) -> T:
        """Reads in a thread, for who waits for it."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, read)

    async def close(self) -> None:
        """Ends; what is being read is thrown away."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _run(
        self, key: tuple[object, str], read: Callable[[], T], then: Callable[[T], None]
    ) -> None:
        began = time.monotonic()
        try:
            then(await self.run(read))
        except Exception:
            _log.exception("a look at a sandbox failed")
        finally:
            del self._tasks[key]
            now = time.monotonic()
            self._rests_until[key] = now + _REST * (now - began)


def left_running(pid: int, limit: MemoryLimit) -> tuple[bool, bool]:
    """Whether a process has no descendants, and whether all together hold more than the limit."""
    pids = procfs.tree(pid)
    return len(pids) == 1, exceeds(pids, limit)


def background(pid: int) -> tuple[float, bool]:
    """CPU time of a process and its descendants, in seconds, and whether one of them would run."""
    pids = procfs.tree(pid)
    return procfs.cpu_seconds(pids), procfs.any_is_runnable(pids)
