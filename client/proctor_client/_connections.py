"""Connections of a client, opened on first use, for one process and one event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any, Self

import httpx

from proctor_client._connection import Address, limits
from proctor_client._process import PerProcess
from proctor_client.errors import ClientClosedError, ProctorConnectionError


class Connector:
    """Immutable connection settings: address, token, TLS, and in tests a transport.

    The constructor loads the TLS settings once. Loading in a forked child could deadlock, if
    another thread of the parent held the locks of the TLS library during the fork.
    """

    def __init__(self, address: Address, transport: Any = None) -> None:
        self.address = address
        self._transport = transport
        self._tls = httpx.create_ssl_context() if transport is None else False
        self._pid = os.getpid()

    def client(self) -> httpx.Client:
        """Return connections for threads. Raises ProctorConnectionError, as `_check_transport`."""
        self._check_transport()
        return httpx.Client(
            base_url=self.address.url,
            headers=self.address.headers(),
            limits=limits(),
            transport=self._transport,
            verify=self._tls,
        )

    def async_client(self) -> httpx.AsyncClient:
        """Return connections for an event loop. Raises ProctorConnectionError."""
        self._check_transport()
        return httpx.AsyncClient(
            base_url=self.address.url,
            headers=self.address.headers(),
            limits=limits(),
            transport=self._transport,
            verify=self._tls,
        )

    def _check_transport(self) -> None:
        """Raise ProctorConnectionError in a forked child if the caller's transport has sockets."""
        has_sockets = isinstance(self._transport, httpx.HTTPTransport | httpx.AsyncHTTPTransport)
        if has_sockets and self._pid != os.getpid():
            raise ProctorConnectionError(
                f"{self.address.url}: a forked process cannot use its parent's transport"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.address, self._transport)

    def __deepcopy__(self, memo: object) -> Self:
        """Return the same object, so that a test's transport also receives the copy's requests."""
        return self


class _Service:
    """State of the service as seen by this client.

    `has_answered` is true if the service ever answered this client, here or in the process from
    which this process was forked. `inherited` keeps exchanges of a parent process alive, so that
    they are not finalized here.
    """

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self.url = str(connector.address.url)
        self.has_answered = False
        self.is_closed = False
        self.inherited: list[object] = []

    def check_open(self) -> None:
        """Raise ClientClosedError if the client is closed."""
        if self.is_closed:
            raise ClientClosedError("this client is closed")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._connector,)


class Connections(_Service):
    """Connections for threads. A copy keeps address and token, and opens its own connections."""

    def __init__(self, connector: Connector) -> None:
        super().__init__(connector)
        self._http = PerProcess(connector.client)
        self._http.get()  # created here, so that its imports cannot run while another thread forks

    def http(self) -> httpx.Client:
        """Return this process's connections. Raises ClientClosedError."""
        self.check_open()
        return self._http.get()

    def renew(self, http: httpx.Client) -> None:
        """Replace these connections for later calls. Calls in progress finish undisturbed."""
        self._http.renew(http)

    def close(self) -> None:
        """Close this process's connections."""
        self.is_closed = True
        http = self._http.peek()
        if http is not None:
            http.close()


class _Loops:
    """One process's connections, by event loop."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.http_by_loop: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}


class AsyncConnections(_Service):
    """Connections for event loops, separate for each loop: in another loop they fail or hang."""

    def __init__(self, connector: Connector) -> None:
        super().__init__(connector)
        self._loops = PerProcess(_Loops)

    def http(self) -> httpx.AsyncClient:
        """Return this process's connections for the running loop. Raises ClientClosedError."""
        loop, loops = asyncio.get_running_loop(), self._loops.get()
        with loops.lock:
            self.check_open()
            known = loops.http_by_loop
            for gone in [each for each in known if each.is_closed()]:
                del known[gone]
            if loop not in known:
                known[loop] = self._connector.async_client()
            return known[loop]

    def renew(self, http: httpx.AsyncClient) -> None:
        """Replace these connections for later calls, as Connections.renew."""
        loop, loops = asyncio.get_running_loop(), self._loops.get()
        with loops.lock:
            if loops.http_by_loop.get(loop) is http:
                del loops.http_by_loop[loop]

    async def aclose(self) -> None:
        """Close this loop's connections, and have this process's other loops close theirs."""
        loops = self._loops.get()
        with loops.lock:
            self.is_closed = True
            clients, loops.http_by_loop = loops.http_by_loop, {}
        for loop, http in clients.items():
            if loop is asyncio.get_running_loop():
                await http.aclose()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(http.aclose(), loop)
