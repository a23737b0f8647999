"""The answers that come bit by bit: results as they finish, then the batch in one line."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from types import TracebackType
from typing import Self

from proctor_client import wire


class RewardStream(Iterator[wire.Result]):
    """The results of a batch as they finish; afterwards its `summary`.

    Leave early by `close()` or a `with` block: it ends the connection, and the service then cancels
    what has not started.
    """

    def __init__(self, items: Generator[wire.Result | wire.Summary, None, None]) -> None:
        self._items = items
        self._summary: wire.Summary | None = None

    def __next__(self) -> wire.Result:
        item = next(self._items)
        if isinstance(item, wire.Summary):
            self._summary = item
            item = next(self._items)  # nothing follows: this ends the iteration
            assert isinstance(item, wire.Result)
        return item

    @property
    def summary(self) -> wire.Summary:
        """The batch in one line. Raises RuntimeError before the last result was taken."""
        return _known(self._summary)

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


class AsyncRewardStream(AsyncIterator[wire.Result]):
    """As RewardStream, for `async for` and `async with`."""

    def __init__(self, items: AsyncGenerator[wire.Result | wire.Summary, None]) -> None:
        self._items = items
        self._summary: wire.Summary | None = None

    async def __anext__(self) -> wire.Result:
        item = await anext(self._items)
        if isinstance(item, wire.Summary):
            self._summary = item
            item = await anext(self._items)  # nothing follows: this ends the iteration
            assert isinstance(item, wire.Result)
        return item

    @property
    def summary(self) -> wire.Summary:
        """The batch in one line. Raises RuntimeError before the last result was taken."""
        return _known(self._summary)

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


def _known(summary: wire.Summary | None) -> wire.Summary:
    if summary is None:
        raise RuntimeError("the summary comes after the last result: iterate to the end first")
    return summary
