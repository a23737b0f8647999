"""Background executions, as returned by a session's `submit`, and the threads or tasks they run in.

Threads and tasks differ in how work is begun, awaited and ended, so both forms are written out.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from proctor_client import wire
from proctor_client._runtime import PerProcess
from proctor_client.sandbox import AsyncSandbox, Sandbox

P = TypeVar("P", bound="_Numbered")


class _Numbered:
    """Base of background executions; the owner numbers them in order of completion."""

    number: int | None = None

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.pid = os.getpid()

    @property
    def done(self) -> bool:
        """True if `result` has an answer, which may be an exception."""
        return self.number is not None


class Pending(_Numbered):
    """An execution in `sandbox`, in a thread."""

    def __init__(self, owner: object, sandbox: Sandbox, future: Future[wire.ExecResult]) -> None:
        super().__init__(owner)
        self.sandbox = sandbox
        self._future = future

    def result(self, timeout_seconds: float | None = None) -> wire.ExecResult:
        """Wait for the end of the execution and return its result.

        Raises what Sandbox.exec raises, TimeoutError after `timeout_seconds`, and
        concurrent.futures.CancelledError if the session was closed before the execution began.
        Raises RuntimeError in a child that was forked in the meantime.
        """
        if self.pid != os.getpid() and not self._future.done():
            raise RuntimeError("this execution is another process's, which alone hears of its end")
        return self._future.result(timeout_seconds)


class AsyncPending(_Numbered):
    """An execution in `sandbox`, in a task."""

    def __init__(
        self, owner: object, sandbox: AsyncSandbox, task: asyncio.Task[wire.ExecResult]
    ) -> None:
        super().__init__(owner)
        self.sandbox = sandbox
        self.task = task

    async def result(self) -> wire.ExecResult:
        """Wait for the end of the execution and return its result.

        Raises what AsyncSandbox.exec raises, and CancelledError if the session was closed first.
        Cancelling the wait does not end the execution.
        """
        return await asyncio.shield(self.task)


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
        """Begin the execution, or queue it."""
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


def distinct(owner: object, pending: Iterable[P], num_returns: int) -> tuple[list[P], int]:
    """Return the executions without duplicates, and the number to wait for.

    Raises ValueError for `num_returns` below 1, and for an execution of another session or process.
    """
    if num_returns < 1:
        raise ValueError("num_returns: it must be 1 or more")
    found = list(dict.fromkeys(pending))
    if any(each.owner is not owner or each.pid != os.getpid() for each in found):
        raise ValueError(
            "pending: some are of another session or process, which alone hears of their end"
        )
    return found, min(num_returns, len(found))


def parted(pending: Iterable[P], num_returns: int) -> tuple[list[P], list[P]]:
    """Return at most `num_returns` completed executions, in order of completion; and the rest."""
    pending = list(pending)
    done = sorted((each for each in pending if each.done), key=lambda each: each.number or 0)
    first = dict.fromkeys(done[:num_returns])
    return list(first), [each for each in pending if each not in first]
