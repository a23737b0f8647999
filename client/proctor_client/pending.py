"""Background executions, as returned by a session's `submit`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TypeVar

from proctor_client import wire
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
