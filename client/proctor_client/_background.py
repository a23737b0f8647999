"""Background executions of a session: in threads, or in tasks of an event loop.

Threads and tasks differ in how work is begun, awaited and ended, so both forms are written out.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from proctor_client import wire
from proctor_client._runtime import PerProcess
from proctor_client.pending import AsyncPending, Pending
from proctor_client.sandbox import AsyncSandbox, Sandbox


class Threads:
    """Background executions in threads, at most `max_parallel` at once."""

    def __init__(self, max_parallel: int) -> None:
        self._finished_count = 0
        self._changed = PerProcess(threading.Condition)
        self._pool = PerProcess(
            partial(ThreadPoolExecutor, max_parallel, thread_name_prefix="proctor-session")
        )

    def submit(
        self, owner: object, sandbox: Sandbox, run: Callable[[], wire.ExecResult]
    ) -> Pending:
        """Begin or queue the execution."""
        future = self._pool.get().submit(run)
        pending = Pending(owner, sandbox, future)
        future.add_done_callback(lambda _: self._finished(pending))
        return pending

    def wait(self, pending: Sequence[Pending], count: int, timeout_seconds: float | None) -> None:
        """Wait until `count` of the executions are done, or for `timeout_seconds`."""
        changed = self._changed.get()
        with changed:
            changed.wait_for(lambda: sum(each.done for each in pending) >= count, timeout_seconds)

    def cancel(self) -> None:
        """Drop queued executions. Running executions end with their sandboxes."""
        self._pool.get().shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Wait for the end of running executions."""
        self._pool.get().shutdown()

    def _finished(self, pending: Pending) -> None:
        changed = self._changed.get()
        with changed:
            self._finished_count += 1
            pending.number = self._finished_count
            changed.notify_all()


class Tasks:
    """Background executions in tasks; their number is unlimited."""

    def __init__(self) -> None:
        self._finished_count = 0
        self._running: set[asyncio.Task[wire.ExecResult]] = set()

    def submit(
        self,
        owner: object,
        sandbox: AsyncSandbox,
        run: Callable[[], Coroutine[Any, Any, wire.ExecResult]],
    ) -> AsyncPending:
        """Begin the execution. Requires a running loop."""
        pending = AsyncPending(owner, sandbox, asyncio.create_task(run()))
        self._running.add(pending.task)
        pending.task.add_done_callback(lambda _: self._finished(pending))
        return pending

    async def wait(
        self, pending: Sequence[AsyncPending], count: int, timeout_seconds: float | None
    ) -> None:
        """Wait until `count` of the executions are done, or for `timeout_seconds`."""
        loop = asyncio.get_running_loop()
        end = None if timeout_seconds is None else loop.time() + timeout_seconds
        while sum(each.done for each in pending) < count:
            left = None if end is None else max(0.0, end - loop.time())
            tasks = [each.task for each in pending if not each.done]
            done, _ = await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break

    async def cancel(self) -> None:
        """Cancel the executions, and wait for their end."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def join(self) -> None:
        """Return at once: a cancelled execution has ended."""

    def _finished(self, pending: AsyncPending) -> None:
        self._running.discard(pending.task)
        self._finished_count += 1
        pending.number = self._finished_count
        if not pending.task.cancelled():
            pending.task.exception()  # read, so that asyncio logs no unretrieved exception
