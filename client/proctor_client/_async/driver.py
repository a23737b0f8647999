"""Driver for event loops: runs a flow against httpx; the flow makes the decisions.

`finish` is for flows with one emitted item, `drive` for flows with many.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

import httpx

from proctor_client._connections import AsyncConnections
from proctor_client._fair_semaphore import FairSemaphore
from proctor_client._flow import (
    REQUEST_ID,
    SOUND_STATUSES,
    Answer,
    Emit,
    Flow,
    Read,
    Reply,
    Send,
    Sleep,
)
from proctor_client._http import shut_down, trace_headers
from proctor_client._runtime import AsyncItems, Clock, is_set_async, within_async
from proctor_client.errors import ProctorConnectionError, ProctorTimeoutError, from_transport

T = TypeVar("T")


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
        """Return the only item of the flow."""
        items: list[T] = []
        async for each in self.drive(flow, is_held=False):
            items.append(each)
        [item] = items
        return item

    async def drive(self, flow: Flow[T], *, is_held: bool = True) -> AsyncItems[T]:
        """Yield the items of the flow as they arrive.

        `is_held`: the caller may hold the answer open, and make other calls meanwhile. So held
        answers and other calls have separate permits, so that neither waits for the other.
        """
        self._connections.check_open()
        permits = self._connections.permits(is_held=is_held)
        exchange = AsyncExchange(self._connections, permits, self._clock)
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
        """Close the connections."""
        await self._connections.aclose()


class AsyncExchange:
    """I/O of one flow, with one open answer at a time, in the process that began the flow."""

    def __init__(self, connections: AsyncConnections, permits: FairSemaphore, clock: Clock) -> None:
        self._connections = connections
        self._permits = permits
        self._permit: asyncio.Event | None = None  # with a permit, or in the queue for one
        self._clock = clock
        self._pid = os.getpid()
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None

    async def perform(self, step: Send | Read | Sleep) -> Reply:
        """Carry out `step` and return the reply; a transport error is returned as a ProctorError.

        Raises ClientClosedError.
        """
        if isinstance(step, Sleep):
            await self.aclose()
            await self._clock.sleep_async(step.seconds)
            return None
        try:
            if isinstance(step, Send):
                return await within_async(step.left_seconds, lambda: self._send(step))
            chunks = self._chunks
            assert chunks is not None
            return await within_async(step.left_seconds, lambda: anext(chunks, None))
        except httpx.RequestError as error:
            self._connections.check_open()  # raises ClientClosedError if closed just now
            has_answered = self._connections.has_answered
            return from_transport(error, url=self._connections.url, has_answered=has_answered)
        except TimeoutError:
            message = f"{self._connections.url}: no whole answer until the call's end"
            return ProctorTimeoutError(message)
        except RuntimeError:
            self._connections.check_open()
            raise

    def check_process(self) -> None:
        """Raise ProctorConnectionError in a forked child: the exchange belongs to its parent."""
        if self._pid != os.getpid():
            raise ProctorConnectionError(
                f"{self._connections.url}: this call was begun by another process, and is its"
            )

    async def aclose(self) -> None:
        """Close the open answer, if this process opened an answer."""
        if self._pid != os.getpid():
            self._connections.inherited.append(self)
            return
        try:
            if self._response is not None:
                if not self._response.is_closed:
                    shut_down(self._response)
                await self._response.aclose()
        finally:
            if self._permit is not None:
                self._permits.leave(self._permit)
            self._response = self._permit = None

    async def _send(self, step: Send) -> Reply:
        await self.aclose()
        end = self._clock.monotonic() + step.left_seconds
        self._permit = asyncio.Event()
        self._permits.join(self._permit)
        if not await is_set_async(self._permit, step.left_seconds):
            raise TimeoutError
        http = self._connections.http()
        request = _request(http, step, self._connections.extensions())
        self._response = response = await http.send(request, stream=True)
        is_sound = response.status_code in SOUND_STATUSES
        if not self._is_answer_to(step, response.headers, is_sound):
            await self.aclose()  # unread, so that httpx does not reuse the connection
            self._connections.renew(http)
            message = f"{self._connections.url}: the answer is to another request"
            return ProctorConnectionError(message, retryable=True)
        self._connections.has_answered |= REQUEST_ID in response.headers
        self._chunks = response.aiter_bytes()
        parts: list[bytes] = []
        if not (step.streams and is_sound):
            async for chunk in self._chunks:
                parts.append(chunk)
                if self._clock.monotonic() >= end:
                    raise TimeoutError
        return Answer(response.status_code, response.headers, b"".join(parts))

    def _is_answer_to(self, step: Send, headers: Mapping[str, str], is_sound: bool) -> bool:
        """Return True if the answer repeats the request's id.

        A proxy's error lacks the id; so do all answers behind a proxy that drops the header.
        """
        if REQUEST_ID not in headers:
            return not (is_sound and self._connections.repeats_ids)
        ids = {each.strip() for each in headers[REQUEST_ID].split(",")}
        self._connections.repeats_ids |= is_sound
        return ids == {step.headers[REQUEST_ID]}


def _request(http: httpx.AsyncClient, step: Send, extensions: dict[str, Any]) -> httpx.Request:
    return http.build_request(
        step.method,
        step.path,
        headers={**step.headers, **trace_headers()},
        content=step.content,
        timeout=httpx.Timeout(step.read_seconds, connect=step.connect_seconds),
        extensions=extensions,
    )
