"""Drivers: run a flow against httpx, in a thread or in an event loop.

`finish` is for flows with one emitted item, `drive` for flows with many.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, TypeVar

from proctor_client._clock import Clock
from proctor_client._connections import AsyncConnections, Connections
from proctor_client._exchange import AsyncExchange, Exchange
from proctor_client._flow import Emit, Flow, Reply

T = TypeVar("T")


class Driver:
    """Driver for threads. Many threads may share a driver."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections = connections
        self._clock = clock

    @property
    def has_answered(self) -> bool:
        """True if the service ever answered."""
        return self._connections.has_answered

    def finish(self, flow: Flow[T]) -> T:
        """Return the only item of the flow."""
        [item] = self.drive(flow)
        return item

    def drive(self, flow: Flow[T]) -> Generator[T, None, None]:
        """Yield the items of the flow as they arrive."""
        self._connections.check_open()
        exchange = Exchange(self._connections, self._clock)
        reply: Reply = None
        try:
            while True:
                exchange.check_process()
                step = flow.send(reply)
                if isinstance(step, Emit):
                    self._connections.has_answered = True
                    yield step.item
                    reply = None
                else:
                    reply = exchange.perform(step)
        except StopIteration:
            return
        finally:
            flow.close()
            exchange.close()

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()


class AsyncDriver:
    """Driver for event loops. Many event loops may share a driver."""

    def __init__(self, connections: AsyncConnections, clock: Clock) -> None:
        self._connections = connections
        self._clock = clock

    @property
    def has_answered(self) -> bool:
        """True if the service ever answered."""
        return self._connections.has_answered

    async def finish(self, flow: Flow[T]) -> T:
        """Async version of Driver.finish."""
        [item] = [each async for each in self.drive(flow)]
        return item

    async def drive(self, flow: Flow[T]) -> AsyncGenerator[T, None]:
        """Async version of Driver.drive."""
        self._connections.check_open()
        exchange = AsyncExchange(self._connections, self._clock)
        reply: Reply = None
        try:
            while True:
                exchange.check_process()
                step = flow.send(reply)
                if isinstance(step, Emit):
                    self._connections.has_answered = True
                    yield step.item
                    reply = None
                else:
                    reply = await exchange.perform(step)
        except StopIteration:
            return
        finally:
            flow.close()
            await exchange.aclose()

    async def aclose(self) -> None:
        """Close this loop's connections, and have other running loops close theirs."""
        await self._connections.aclose()


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`. A cancellation takes effect only after `work` ends."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.cancelled() or task.exception()  # read, or asyncio logs an error
        raise cancelled
    return task.result()
