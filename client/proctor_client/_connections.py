"""The connections of a client: made when they are needed, for one process and one event loop."""

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
    """How to connect: where to, by which token, and in tests over which transport. Never changes.

    The settings of TLS are read here, once: a child that was forked while another thread did so
    could not, since the locks of that are held for good.
    """

    def __init__(self, address: Address, transport: Any = None) -> None:
        self.address = address
        self._transport = transport
        self._tls = httpx.create_ssl_context() if transport is None else False
        self._pid = os.getpid()

    def client(self) -> httpx.Client:
        """Connections for threads. Raises ProctorConnectionError, see `_check_transport`."""
        self._check_transport()
        return httpx.Client(
            base_url=self.address.url,
            headers=self.address.headers(),
            limits=limits(),
            transport=self._transport,
            verify=self._tls,
        )

    def async_client(self) -> httpx.AsyncClient:
        """Connections for an event loop. Raises ProctorConnectionError, see `_check_transport`."""
        self._check_transport()
        return httpx.AsyncClient(
            base_url=self.address.url,
            headers=self.address.headers(),
            limits=limits(),
            transport=self._transport,
            verify=self._tls,
        )

    def _check_transport(self) -> None:
        """Raises ProctorConnectionError in a fork for a transport that was given and has sockets."""
        has_sockets = isinstance(self._transport, httpx.HTTPTransport | httpx.AsyncHTTPTransport)
        if has_sockets and self._pid != os.getpid():
            raise ProctorConnectionError(
                f"{self.address.url}: a forked process cannot use its parent's transport"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.address, self._transport)

    def __deepcopy__(self, memo: object) -> Self:
        """Itself: a test's transport is to hear of the copy's requests, too."""
        return self


class _Service:
    """What is known of the service at the other end.

    `has_answered`: whether it ever answered this client, here or in the process that this one was
    forked from. `inherited` are exchanges of such a process, kept so that nothing ends them here.
    """

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self.url = str(connector.address.url)
        self.has_answered = False
        self.is_closed = False
        self.inherited: list[object] = []

    def check_open(self) -> None:
        """Raises ClientClosedError after the end."""
        if self.is_closed:
            raise ClientClosedError("this client is closed")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._connector,)


class Connections(_Service):
    """For threads. A copy has the same address and token, and no connection yet."""

    def __init__(self, connector: Connector) -> None:
        super().__init__(connector)
        self._http = PerProcess(connector.client)
        self._http.get()  # what it imports is not to be imported while another thread forks

    def http(self) -> httpx.Client:
        """This process's connections. Raises ClientClosedError."""
        self.check_open()
        return self._http.get()

    def renew(self, http: httpx.Client) -> None:
        """Trust none of these any more. Other calls that use them end undisturbed."""
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
    """For event loops: in another loop than the one that made them, connections fail or hang."""

    def __init__(self, connector: Connector) -> None:
        super().__init__(connector)
        self._loops = PerProcess(_Loops)

    def http(self) -> httpx.AsyncClient:
        """This process's connections of the running loop. Raises ClientClosedError."""
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
        """As Connections.renew."""
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
