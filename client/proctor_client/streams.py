"""Streamed responses: results and trajectories as they finish, and the output of a command.

Leave a stream early with `close()` or a `with` block. The connection then ends, and the service
cancels queued work and kills running work.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import aclosing, closing
from types import TracebackType
from typing import Self, TypeVar

from proctor_client import wire

T = TypeVar("T")


class _Stream(Iterator[T]):
    """Iterator and context manager over streamed items."""

    def __init__(self, items: Generator[T, None, None]) -> None:
        self._items = items

    def __next__(self) -> T:
        return next(self._items)

    def close(self) -> None:
        """End the connection, if it is open."""
        self._items.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _AsyncStream(AsyncIterator[T]):
    """Async version of _Stream, for `async for` and `async with`."""

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        self._items = items

    async def __anext__(self) -> T:
        return await anext(self._items)

    async def aclose(self) -> None:
        """End the connection, if it is open."""
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


class RewardStream(_Stream[wire.Result]):
    """Results of a batch as they finish; `summary` is available afterwards."""

    def __init__(self, items: Generator[wire.Result | wire.Summary, None, None]) -> None:
        super().__init__(self._results(items))
        self._summary: wire.Summary | None = None

    @property
    def summary(self) -> wire.Summary:
        """Summary of the batch. Raises RuntimeError before the last result is read."""
        return _known(self._summary, "summary")

    def _results(
        self, items: Generator[wire.Result | wire.Summary, None, None]
    ) -> Generator[wire.Result, None, None]:
        with closing(items):
            for item in items:
                if isinstance(item, wire.Summary):
                    self._summary = item
                else:
                    yield item


class AsyncRewardStream(_AsyncStream[wire.Result]):
    """Async version of RewardStream, for `async for` and `async with`."""

    def __init__(self, items: AsyncGenerator[wire.Result | wire.Summary, None]) -> None:
        super().__init__(self._results(items))
        self._summary: wire.Summary | None = None

    @property
    def summary(self) -> wire.Summary:
        """Summary of the batch, as RewardStream.summary."""
        return _known(self._summary, "summary")

    async def _results(
        self, items: AsyncGenerator[wire.Result | wire.Summary, None]
    ) -> AsyncGenerator[wire.Result, None]:
        async with aclosing(items):
            async for item in items:
                if isinstance(item, wire.Summary):
                    self._summary = item
                else:
                    yield item


class RolloutStream(_Stream[wire.Trajectory]):
    """Trajectories of a rollout as they finish; `summary` is available afterwards."""

    def __init__(self, items: Generator[wire.Trajectory | wire.RolloutSummary, None, None]) -> None:
        super().__init__(self._trajectories(items))
        self._summary: wire.RolloutSummary | None = None

    @property
    def summary(self) -> wire.RolloutSummary:
        """Summary of the rollout. Raises RuntimeError before the last trajectory is read."""
        return _known(self._summary, "summary")

    def _trajectories(
        self, items: Generator[wire.Trajectory | wire.RolloutSummary, None, None]
    ) -> Generator[wire.Trajectory, None, None]:
        with closing(items):
            for item in items:
                if isinstance(item, wire.RolloutSummary):
                    self._summary = item
                else:
                    yield item


class AsyncRolloutStream(_AsyncStream[wire.Trajectory]):
    """Async version of RolloutStream, for `async for` and `async with`."""

    def __init__(self, items: AsyncGenerator[wire.Trajectory | wire.RolloutSummary, None]) -> None:
        super().__init__(self._trajectories(items))
        self._summary: wire.RolloutSummary | None = None

    @property
    def summary(self) -> wire.RolloutSummary:
        """Summary of the rollout, as RolloutStream.summary."""
        return _known(self._summary, "summary")

    async def _trajectories(
        self, items: AsyncGenerator[wire.Trajectory | wire.RolloutSummary, None]
    ) -> AsyncGenerator[wire.Trajectory, None]:
        async with aclosing(items):
            async for item in items:
                if isinstance(item, wire.RolloutSummary):
                    self._summary = item
                else:
                    yield item


class ExecStream(_Stream[wire.ExecLine]):
    """Output of a command as the command prints; the last line carries the result.

    Raises SandboxTimeoutError after the last line if a time limit ended the command.
    """

    def __init__(self, items: Generator[wire.ExecLine, None, None]) -> None:
        super().__init__(items)
        self._result: wire.ExecResult | None = None

    def __next__(self) -> wire.ExecLine:
        line = super().__next__()
        self._result = line.result or self._result
        return line

    @property
    def result(self) -> wire.ExecResult:
        """Result of the command. Raises RuntimeError before the last line is read."""
        return _known(self._result, "result")


class AsyncExecStream(_AsyncStream[wire.ExecLine]):
    """Async version of ExecStream, for `async for` and `async with`."""

    def __init__(self, items: AsyncGenerator[wire.ExecLine, None]) -> None:
        super().__init__(items)
        self._result: wire.ExecResult | None = None

    async def __anext__(self) -> wire.ExecLine:
        line = await super().__anext__()
        self._result = line.result or self._result
        return line

    @property
    def result(self) -> wire.ExecResult:
        """Result of the command, as ExecStream.result."""
        return _known(self._result, "result")


def _known(value: T | None, name: str) -> T:
    if value is None:
        raise RuntimeError(f"the {name} comes last: iterate to the end first")
    return value
