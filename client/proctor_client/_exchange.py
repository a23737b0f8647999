"""I/O of both clients: carries out the steps of a flow, and makes no decisions."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Mapping

import httpx

from proctor_client._clock import Clock
from proctor_client._connections import AsyncConnections, Connections
from proctor_client._flow import (
    REQUEST_ID,
    SOUND_STATUSES,
    Answer,
    Read,
    Reply,
    Send,
    Sleep,
)
from proctor_client._trace import trace_headers
from proctor_client.errors import ProctorConnectionError, from_transport


class Exchange:
    """I/O of one flow, with one open answer at a time, in the process that began the flow."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections = connections
        self._clock = clock
        self._pid = os.getpid()
        self._response: httpx.Response | None = None
        self._chunks: Iterator[bytes] = iter(())

    def perform(self, step: Send | Read | Sleep) -> Reply:
        """Carry out `step` and return the reply; a transport error is returned as a ProctorError.

        Raises ClientClosedError.
        """
        if isinstance(step, Sleep):
            self._clock.sleep(step.seconds)
            return None
        try:
            return self._send(step) if isinstance(step, Send) else next(self._chunks, None)
        except httpx.RequestError as error:
            known = self._connections.has_answered
            return from_transport(error, url=self._connections.url, known=known)
        except RuntimeError:
            self._connections.check_open()  # raises ClientClosedError if closed just now
            raise

    def check_process(self) -> None:
        """Raise ProctorConnectionError in a forked child: the exchange belongs to its parent."""
        _check_process(self._pid, self._connections.url)

    def close(self) -> None:
        """Close the open answer, if there is one and if this process opened it."""
        if self._pid != os.getpid():
            self._connections.inherited.append(self)
        elif self._response is not None:
            self._response.close()

    def _send(self, step: Send) -> Reply:
        self.close()
        http = self._connections.http()
        request = _request(http, step)
        self._response = response = http.send(request, stream=True)
        if not _is_answer_to(step, response.headers):
            self.close()  # unread, so that httpx does not reuse the connection
            self._connections.renew(http)
            return _another_answer(self._connections.url)
        self._connections.has_answered |= REQUEST_ID in response.headers
        self._chunks = response.iter_bytes()
        is_open = step.streams and response.status_code in SOUND_STATUSES
        return Answer(response.status_code, response.headers, b"" if is_open else response.read())


class AsyncExchange:
    """Async version of Exchange."""

    def __init__(self, connections: AsyncConnections, clock: Clock) -> None:
        self._connections = connections
        self._clock = clock
        self._pid = os.getpid()
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None

    async def perform(self, step: Send | Read | Sleep) -> Reply:
        """Async version of Exchange.perform."""
        if isinstance(step, Sleep):
            await self._clock.sleep_async(step.seconds)
            return None
        try:
            if isinstance(step, Send):
                return await self._send(step)
            assert self._chunks is not None
            return await anext(self._chunks, None)
        except httpx.RequestError as error:
            known = self._connections.has_answered
            return from_transport(error, url=self._connections.url, known=known)
        except RuntimeError:
            self._connections.check_open()
            raise

    def check_process(self) -> None:
        """Raise ProctorConnectionError in a forked child, as Exchange.check_process."""
        _check_process(self._pid, self._connections.url)

    async def aclose(self) -> None:
        """Async version of Exchange.close."""
        if self._pid != os.getpid():
            self._connections.inherited.append(self)
        elif self._response is not None:
            await self._response.aclose()

    async def _send(self, step: Send) -> Reply:
        await self.aclose()
        http = self._connections.http()
        request = _request(http, step)
        self._response = response = await http.send(request, stream=True)
        if not _is_answer_to(step, response.headers):
            await self.aclose()
            self._connections.renew(http)
            return _another_answer(self._connections.url)
        self._connections.has_answered |= REQUEST_ID in response.headers
        self._chunks = response.aiter_bytes()
        is_open = step.streams and response.status_code in SOUND_STATUSES
        body = b"" if is_open else await response.aread()
        return Answer(response.status_code, response.headers, body)


def _request(http: httpx.Client | httpx.AsyncClient, step: Send) -> httpx.Request:
    # A wait for a free connection counts as a wait for the answer: the pool is a client detail.
    return http.build_request(
        step.method,
        step.path,
        headers={**step.headers, **trace_headers()},
        content=step.content,
        timeout=httpx.Timeout(step.read_seconds, connect=step.connect_seconds),
    )


def _is_answer_to(step: Send, headers: Mapping[str, str]) -> bool:
    """Return True if the answer repeats the request's id. Services before 0.2 repeat no id."""
    return headers.get(REQUEST_ID, step.headers[REQUEST_ID]) == step.headers[REQUEST_ID]


def _another_answer(url: str) -> ProctorConnectionError:
    return ProctorConnectionError(f"{url}: the answer is to another request", retryable=True)


def _check_process(pid: int, url: str) -> None:
    if pid != os.getpid():
        raise ProctorConnectionError(f"{url}: this call was begun by another process, and is its")
