"""Thread for reads of /proc with sandbox-controlled size.

The event loop performs only reads of constant or bounded size, for a few processes. Larger reads, like
the memory mappings of a process or thousands of threads, run here. Each sandbox has at most a single read
per purpose at a time, followed by a pause. So a hostile sandbox occupies at most a fraction of a core.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from proctor_service.sandbox.linux import procfs
from proctor_service.sandbox.local.memory import MemoryLimit, exceeds

T = TypeVar("T")

_log = logging.getLogger(__name__)
_THREADS = 1  # more would contend with the loop for the interpreter, and for cores
_REST = 3  # pause after a read, in multiples of its duration


class Reads:
    """Runs reads in a thread and passes their results to the event loop."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="procfs")
        self._tasks: dict[tuple[object, str], asyncio.Task[None]] = {}
        self._rests_until: dict[tuple[object, str], float] = {}

    def start(
        self, owner: object, purpose: str, read: Callable[[], T], then: Callable[[T], None]
    ) -> None:
        """Run `read` in a thread, then call `then` on the loop.

        Ignored while the previous read of this owner and purpose runs or its pause lasts.
        """
        key = (owner, purpose)
        now = time.monotonic()
        self._rests_until = {k: until for k, until in self._rests_until.items() if until > now}
        if key in self._tasks or key in self._rests_until:
            return
        task = asyncio.get_running_loop().create_task(self._run(key, read, then))
        self._tasks[key] = task

    async def run(self, read: Callable[[], T]) -> T:
        """Run `read` in the thread and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, read)

    async def close(self) -> None:
        """Stop, and discard the results of running reads."""
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
        except procfs.Unread as error:
            _log.warning("a look at a sandbox failed: %s", error)
        except Exception:
            _log.exception("a look at a sandbox failed")
        finally:
            del self._tasks[key]
            now = time.monotonic()
            self._rests_until[key] = now + _REST * (now - began)


def left_running(pid: int, limit: MemoryLimit) -> tuple[bool, bool]:
    """Return (no descendants, memory above the limit) for a process and its descendants."""
    pids = procfs.tree(pid)
    return len(pids) == 1, exceeds(pids, limit)


def background(pid: int) -> tuple[float, bool]:
    """Return CPU seconds of a process and its descendants, and True if a thread is runnable."""
    pids = procfs.tree(pid)
    return procfs.cpu_seconds(pids), procfs.any_is_runnable(pids)
