"""Executions under way in the background, as a session hands them out."""

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
    """It gets its number when it is done: its owner's count up in the order of completion."""

    number: int | None = None

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.pid = os.getpid()

    @property
    def done(self) -> bool:
        """Whether `result` has its answer, which may be an exception."""
        return self.number is not None


class Pending(_Numbered):
    """An execution in `sandbox`, in a thread."""

    def __init__(self, owner: object, sandbox: Sandbox, future: Future[wire.ExecResult]) -> None:
        super().__init__(owner)
        self.sandbox = sandbox
        self._future = future

    def result(self, timeout_seconds: float | None = None) -> wire.ExecResult:
        """How it ended, once it has. Raises what Sandbox.exec raises.

        Raises TimeoutError when that takes longer than `timeout_seconds`, and
        concurrent.futures.CancelledError when the session was closed before it began. Raises
        RuntimeError in a child that was forked meanwhile.
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
        """How it ended, once it has. Raises what AsyncSandbox.exec raises.

        Raises CancelledError when the session was closed first. Whoever waits here may be
        cancelled without ending it.
        """
        return await asyncio.shield(self.task)


def distinct(owner: object, pending: Iterable[P], num_returns: int) -> tuple[list[P], int]:
    """Each once, and how many to wait for. Raises ValueError for no number, or another's pending."""
    if num_returns < 1:
        raise ValueError("num_returns: it must be 1 or more")
    found = list(dict.fromkeys(pending))
    if any(each.owner is not owner or each.pid != os.getpid() for each in found):
        raise ValueError(
            "pending: some are of another session or process, which alone hears of their end"
        )
    return found, min(num_returns, len(found))


def parted(pending: Iterable[P], num_returns: int) -> tuple[list[P], list[P]]:
    """At most `num_returns` that are done, in the order of completion; and the others."""
    pending = list(pending)
    done = sorted((each for each in pending if each.done), key=lambda each: each.number or 0)
    first = dict.fromkeys(done[:num_returns])
    return list(first), [each for each in pending if each not in first]
