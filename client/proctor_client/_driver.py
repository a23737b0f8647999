"""The drivers: they run a flow against httpx, in a thread or in an event loop.

`finish` is for flows that emit one thing, `drive` for those that emit many.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, TypeVar

import httpx

from proctor_client._clock import Clock
from proctor_client._exchange import AsyncExchange, Exchange
from proctor_client._flow import Emit, Flow, Reply

T = TypeVar("T")


class Driver:
    """For threads; one serves many."""

    def __init__(self, http: httpx.Client, clock: Clock) -> None:
        self._http = http
        self._clock = clock

    def finish(self, flow: Flow[T]) -> T:
        """The one thing that the flow emits."""
        [item] = self.drive(flow)
        return item

    def drive(self, flow: Flow[T]) -> Generator[T, None, None]:
        """What the flow emits, as it comes."""
        exchange = Exchange(self._http, self._clock)
        reply: Reply = None
        try:
            while True:
                step = flow.send(reply)
                if isinstance(step, Emit):
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
        self._http.close()


class AsyncDriver:
    """For event loops. Each gets connections of its own, made by `connect` when it needs them."""

    def __init__(self, connect: Callable[[], httpx.AsyncClient], clock: Clock) -> None:
        self._connect = connect
        self._clock = clock
        self._lock = threading.Lock()
        self._http_by_loop: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}
        self._is_closed = False

    async def finish(self, flow: Flow[T]) -> T:
        """As Driver.finish."""
        [item] = [each async for each in self.drive(flow)]
        return item

    async def drive(self, flow: Flow[T]) -> AsyncGenerator[T, None]:
        """As Driver.drive."""
        exchange = AsyncExchange(self._http_of_this_loop(), self._clock)
        reply: Reply = None
        try:
            while True:
                step = flow.send(reply)
                if isinstance(step, Emit):
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
        """Close this loop's connections, and have other loops that still run close theirs."""
        with self._lock:
            self._is_closed = True
            clients, self._http_by_loop = self._http_by_loop, {}
        for loop, http in clients.items():
            if loop is asyncio.get_running_loop():
                await http.aclose()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(http.aclose(), loop)

    def _http_of_this_loop(self) -> httpx.AsyncClient:
        """Connections belong to the loop that made them; in another one they fail or hang."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("this AsyncClient is closed")
            for gone in [each for each in self._http_by_loop if each.is_closed()]:
                del self._http_by_loop[gone]
            if loop not in self._http_by_loop:
                self._http_by_loop[loop] = self._connect()
            return self._http_by_loop[loop]


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns. A cancellation that comes meanwhile waits until it is done."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.cancelled() or task.exception()  # taken note of: nobody will ask any more
        raise cancelled
    return task.result()
