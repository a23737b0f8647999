"""Requests to other replicas: to the holder of a sandbox, or to all replicas.

A forwarded request carries the client's token, and the receiving replica checks the token again. A
header marks forwarded requests, and a replica answers marked requests itself, which excludes loops.
If a replica is unreachable, or fails its health checks during a request, its sandboxes count as
lost.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from proctor_service.errors import Draining, SandboxLost
from proctor_service.features.replicas.identity import Identity, address_in
from proctor_service.features.replicas.peers import Peers
from proctor_service.http.body import FORWARDED

log = logging.getLogger(__name__)

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 10.0
"""Time limit for each answer to a request sent to all replicas; late replicas are left out."""
PULSE_SECONDS = 2.0
MOST_MISSED_PULSES = 3


@dataclass(frozen=True, slots=True)
class Question:
    """Request for another replica. `target`: path and query as the client sent them."""

    method: str
    target: bytes
    headers: Mapping[str, str]
    body: AsyncIterator[bytes] | bytes | None = field(default=None, repr=False)


class Replicas:
    """This replica and its peers; `on_outcome` gets `answered` or `unreachable` per request."""

    def __init__(
        self,
        identity: Identity,
        peers: Peers,
        on_outcome: Callable[[str], None] = lambda outcome: None,
    ) -> None:
        self.identity = identity
        self._peers = peers
        self._on_outcome = on_outcome
        self._http: httpx.AsyncClient | None = None
        self._draining = False
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def holder(self, sandbox_id: str) -> str:
        """Return the URL of the replica with a sandbox of another replica.

        Raises SandboxLost if the holder is gone, or was an earlier run of this replica.
        """
        url = await self._peers.at(address_in(sandbox_id))
        if url is None:
            raise SandboxLost("the replica that held this sandbox is gone")
        return url

    @asynccontextmanager
    async def ask(
        self, url: str, question: Question, seconds: float | None = None
    ) -> AsyncIterator[httpx.Response]:
        """Send a request to a replica; yield the response as a stream.

        Raises SandboxLost if the replica is unreachable, stops answering during the read, or takes
        longer than `seconds`. Raises Draining once this replica drains.
        """
        if self._draining:
            raise Draining("the service is stopping", 1.0)
        self._under_way += 1
        self._idle.clear()
        outcome = "answered"
        try:
            async with asyncio.timeout(seconds) as limit:
                pulse = asyncio.create_task(self._watch(url, limit))
                try:
                    async with self.sent(url, question) as response:
                        yield response
                finally:
                    pulse.cancel()
        except (httpx.HTTPError, TimeoutError) as error:
            outcome = "unreachable"
            log.warning("a replica does not answer", extra={"replica": url, "why": repr(error)})
            raise SandboxLost("the replica that held this sandbox does not answer") from None
        finally:
            self._on_outcome(outcome)
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def others(self) -> list[str]:
        """Return the URLs of all other replicas known now."""
        return await self._peers.urls()

    async def ask_all(self, question: Question) -> list[bytes | None]:
        """Return the answer bodies of all other replicas; None unless the status is 200."""
        return await asyncio.gather(*(self._ask(url, question) for url in await self._peers.urls()))

    async def drain(self) -> None:
        """Refuse to forward new requests, and wait for the answers to the forwarded ones."""
        self._draining = True
        await self._idle.wait()

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()

    async def _ask(self, url: str, question: Question) -> bytes | None:
        try:
            async with self.ask(url, question, ANSWER_SECONDS) as response:
                body = await response.aread()
        except (SandboxLost, Draining):
            return None
        if response.status_code != httpx.codes.OK:
            log.warning("a replica refuses", extra={"replica": url, "status": response.status_code})
            return None
        return body

    @asynccontextmanager
    async def sent(self, url: str, question: Question) -> AsyncIterator[httpx.Response]:
        """Send a request to a replica; yield the response as a stream, without health checks.

        Raises httpx.HTTPError.
        """
        http = self._client()
        request = http.build_request(
            question.method,
            url,
            headers={**question.headers, FORWARDED: "1", "accept-encoding": "identity"},
            content=question.body,
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
            # Send the raw target: a URL object would normalize a path such as files/a/../b.
            extensions={"target": question.target},
        )
        response = await http.send(request, stream=True)
        try:
            yield response
        finally:
            await response.aclose()

    async def _watch(self, url: str, limit: asyncio.Timeout) -> None:
        """Check the health of a replica every 2 s; end the wait after 3 missed answers in a row.

        A refused connection ends the wait at once.
        """
        missed = 0
        while missed < MOST_MISSED_PULSES:
            await asyncio.sleep(PULSE_SECONDS)
            try:
                await self._client().get(f"{url}/healthz", timeout=CONNECT_SECONDS)
                missed = 0
            except httpx.ConnectError:
                break
            except httpx.HTTPError:
                missed += 1
        limit.reschedule(asyncio.get_running_loop().time())

    def _client(self) -> httpx.AsyncClient:
        """Return the HTTP client, created in the running loop, without keep-alive connections.

        A kept connection to an ended replica would fail, and look like a failure of its successor.
        """
        if self._http is None:
            self._http = httpx.AsyncClient(
                trust_env=False,
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
                verify=ssl.create_default_context(),
            )
        return self._http
