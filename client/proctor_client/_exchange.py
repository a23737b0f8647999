"""The I/O of both clients: carries out what a flow asks for, and knows nothing of why."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx

from proctor_client._clock import Clock
from proctor_client._flow import SOUND_STATUSES, Answer, Read, Reply, Send, Sleep
from proctor_client._trace import trace_headers
from proctor_client.errors import from_transport


class Exchange:
    """Carries out the steps of one flow, one answer open at a time."""

    def __init__(self, http: httpx.Client, clock: Clock) -> None:
        self._http = http
        self._clock = clock
        self._response: httpx.Response | None = None
        self._chunks: Iterator[bytes] = iter(())

    def perform(self, step: Send | Read | Sleep) -> Reply:
        """The reply to `step`; what the transport raises is one too, as a ProctorError."""
        if isinstance(step, Sleep):
            self._clock.sleep(step.seconds)
            return None
        try:
            return self._send(step) if isinstance(step, Send) else next(self._chunks, None)
        except httpx.RequestError as error:
            return from_transport(error)

    def close(self) -> None:
        """Close the answer that is open, if there is one."""
        if self._response is not None:
            self._response.close()

    def _send(self, step: Send) -> Answer:
        self.close()
        request = self._http.build_request(
            step.method,
            step.path,
            headers={**step.headers, **trace_headers()},
            content=step.content,
            timeout=_timeout(step),
        )
        self._response = response = self._http.send(request, stream=True)
        self._chunks = response.iter_bytes()
        is_open = step.streams and response.status_code in SOUND_STATUSES
        return Answer(response.status_code, response.headers, b"" if is_open else response.read())


class AsyncExchange:
    """As Exchange, for an event loop."""

    def __init__(self, http: httpx.AsyncClient, clock: Clock) -> None:
        self._http = http
        self._clock = clock
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None

    async def perform(self, step: Send | Read | Sleep) -> Reply:
        """As Exchange.perform."""
        if isinstance(step, Sleep):
            await self._clock.sleep_async(step.seconds)
            return None
        try:
            if isinstance(step, Send):
                return await self._send(step)
            assert self._chunks is not None
            return await anext(self._chunks, None)
        except httpx.RequestError as error:
            return from_transport(error)

    async def aclose(self) -> None:
        """As Exchange.close."""
        if self._response is not None:
            await self._response.aclose()

    async def _send(self, step: Send) -> Answer:
        await self.aclose()
        request = self._http.build_request(
            step.method,
            step.path,
            headers={**step.headers, **trace_headers()},
            content=step.content,
            timeout=_timeout(step),
        )
        self._response = response = await self._http.send(request, stream=True)
        self._chunks = response.aiter_bytes()
        is_open = step.streams and response.status_code in SOUND_STATUSES
        body = b"" if is_open else await response.aread()
        return Answer(response.status_code, response.headers, body)


def _timeout(step: Send) -> httpx.Timeout:
    """Waiting for a free connection is waiting for an answer: the pool is this side's business."""
    return httpx.Timeout(step.read_seconds, connect=step.connect_seconds)
