"""Streamed responses: results and trajectories as they finish, and the output of a command.

Leave a stream early with `aclose()` or an `async with` block. The connection then ends, and the
service cancels queued work and kills running work.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from types import TracebackType
from typing import Self, TypeVar

from proctor_client import wire
from proctor_client._runtime import AsyncItems

T = TypeVar("T")


class _AsyncStream(AsyncIterator[T]):
    """Iterator and context manager over streamed items."""

    def __init__(self, items: AsyncItems[T]) -> None:
        self._items = items

    async def __anext__(self) -> T:
        return await anext(self._items)

    async def aclose(self) -> None:
        """End an open connection."""
        await self._items.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class AsyncRewardStream(_AsyncStream[wire.Result]):
    """Results of a batch as they finish; `summary` is available afterwards."""

    def __init__(self, items: AsyncItems[wire.Result | wire.Summary]) -> None:
        super().__init__(self._results(items))
        self._summary: wire.Summary | None = None

    @property
    def summary(self) -> wire.Summary:
        """Summary of the batch. Raises RuntimeError before the last result is read."""
        return _last_value(self._summary, "summary")

    async def _results(
        self, items: AsyncItems[wire.Result | wire.Summary]
    ) -> AsyncItems[wire.Result]:
        async with aclosing(items):
            async for item in items:
                if isinstance(item, wire.Summary):
                    self._summary = item
                else:
                    yield item


class AsyncRolloutStream(_AsyncStream[wire.Trajectory]):
    """Trajectories of a rollout as they finish; `summary` is available afterwards."""

    def __init__(self, items: AsyncItems[wire.Trajectory | wire.RolloutSummary]) -> None:
        super().__init__(self._trajectories(items))
        self._summary: wire.RolloutSummary | None = None

    @property
    def summary(self) -> wire.RolloutSummary:
        """Summary of the rollout. Raises RuntimeError before the last trajectory is read."""
        return _last_value(self._summary, "summary")

    async def _trajectories(
        self, items: AsyncItems[wire.Trajectory | wire.RolloutSummary]
    ) -> AsyncItems[wire.Trajectory]:
        async with aclosing(items):
            async for item in items:
                if isinstance(item, wire.RolloutSummary):
                    self._summary = item
                else:
                    yield item


class AsyncExecStream(_AsyncStream[wire.ExecLine]):
    """Output of a command as the command prints; the last line carries the result.

    Raises SandboxTimeoutError after the last line if a time limit ended the command.
    """

    def __init__(self, items: AsyncItems[wire.ExecLine]) -> None:
        super().__init__(items)
        self._result: wire.ExecResult | None = None

    async def __anext__(self) -> wire.ExecLine:
        line = await super().__anext__()
        self._result = line.result or self._result
        return line

    @property
    def result(self) -> wire.ExecResult:
        """Result of the command. Raises RuntimeError before the last line is read."""
        return _last_value(self._result, "result")


def _last_value(value: T | None, name: str) -> T:
    if value is None:
        raise RuntimeError(f"the {name} comes last: iterate to the end first")
    return value
