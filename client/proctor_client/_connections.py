"""Address and limits of a client, and its connections: opened on first use, by process and loop."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Self, TypeAlias, TypedDict, TypeVar
from weakref import WeakSet

import httpx
from pydantic import SecretStr

from proctor_client._fair_semaphore import FairSemaphore
from proctor_client._flow import Policy
from proctor_client._http import end_socket
from proctor_client._runtime import Clock, PerProcess
from proctor_client._version import __version__
from proctor_client.errors import ClientClosedError, ProctorConnectionError

H = TypeVar("H", httpx.Client, httpx.AsyncClient)

LONGEST_LABEL = 63
MOST_REQUESTS = 256
"""Requests at once in a loop or in all threads, and as many answers that the caller holds open."""
CONNECTED = ("connection.connect_tcp.complete", "connection.start_tls.complete")
"""Events of httpcore that return a connection."""

DEFAULT_URL = "http://127.0.0.1:8080"
USER_AGENT = f"proctor-client/{__version__}"

Token: TypeAlias = str | SecretStr | None


class ClientOptions(TypedDict, total=False):
    """Constructor arguments except the address and the token."""

    timeout_seconds: float
    connect_timeout_seconds: float
    max_attempts: int
    retry_budget_seconds: float
    transport: Any
    clock: Clock | None


class Address:
    """URL of the service and its access token. The repr hides the token.

    Raises ValueError for a URL without an http(s) scheme or a host, for a URL with a
    user name, a password or a query, and for a token with characters other than visible ASCII. White space
    around the token, such as the last newline of a file, is removed.
    """

    def __init__(self, url: str, token: Token) -> None:
        try:
            self.url = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise ValueError(f"url: {error}") from None
        if self.url.scheme not in ("http", "https") or not self.url.host:
            raise ValueError("url: it must begin with http:// or https:// and name a host")
        if self.url.userinfo:
            # httpx would send user info as Basic auth, without the token, and show it in errors.
            raise ValueError("url: it must hold no user name or password; use `token`")
        if self.url.query or self.url.fragment:
            raise ValueError("url: it must hold no query and no fragment")
        if self.url.port is not None and not 1 <= self.url.port <= 65535:
            raise ValueError(f"url: there is no port {self.url.port}")
        labels = self.url.host.removesuffix(".").split(".")
        if not all(1 <= len(label) <= LONGEST_LABEL for label in labels):
            raise ValueError("url: its host is no name")
        if isinstance(token, SecretStr):
            token = token.get_secret_value()
        self.token = (token or "").strip()
        if not all("!" <= character <= "~" for character in self.token):
            # Checked here, because the errors of the HTTP library would print the whole header.
            raise ValueError("token: it must be visible ASCII characters without spaces")

    @classmethod
    def from_env(cls) -> Address:
        """Read the address from PROCTOR_URL and the token from PROCTOR_TOKEN; both are optional."""
        return cls(os.environ.get("PROCTOR_URL") or DEFAULT_URL, os.environ.get("PROCTOR_TOKEN"))

    def __repr__(self) -> str:
        return f"{str(self.url)!r}, token={'set' if self.token else None}"

    def headers(self) -> Mapping[str, str]:
        """Return the headers of every request."""
        headers = {"User-Agent": USER_AGENT}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers


def policy_of(address: Address, **fields: Any) -> Policy:
    """Build the retry policy from `fields`. Raises ValueError for a value out of range."""
    policy = Policy(**fields, secret=address.token, url=str(address.url))
    if policy.max_attempts < 1:
        raise ValueError("max_attempts: it must be 1 or more")
    if policy.retry_budget_seconds < 0:
        raise ValueError("retry_budget_seconds: it must be 0 or more")
    if policy.timeout_seconds <= 0 or policy.connect_timeout_seconds <= 0:
        raise ValueError("timeout_seconds, connect_timeout_seconds: they must be above 0")
    return policy


def limits() -> httpx.Limits:
    """Return the connection pool limits. Idle connections close after 4 s, before uvicorn's 5 s.

    No request waits in the pool: `FairSemaphore` lets as many in as there are connections. Few idle
    connections are best: httpcore polls each of them at every change, and compares all pairs.
    With 64 idle connections, 64 calls at once took three times the CPU time of new connections.
    """
    return httpx.Limits(
        max_connections=2 * MOST_REQUESTS, max_keepalive_connections=16, keepalive_expiry=4.0
    )


class Connector:
    """Immutable connection settings: address, token, TLS, and in tests a transport.

    The constructor loads the TLS settings once. Loading in a forked child could deadlock, if
    another thread of the parent held the locks of the TLS library during the fork. Raises ValueError
    for unreadable certificates of the environment.
    """

    def __init__(self, address: Address, transport: Any = None) -> None:
        self.address = address
        self._transport = transport
        try:
            self._tls = httpx.create_ssl_context() if transport is None else False
        except OSError as error:
            raise ValueError(f"SSL_CERT_FILE, SSL_CERT_DIR: {error}") from None
        self._pid = os.getpid()

    def client(self) -> httpx.Client:
        """Return connections for threads. Raises ProctorConnectionError, as `_check_transport`."""
        return self._made(httpx.Client)

    def async_client(self) -> httpx.AsyncClient:
        """Return connections for an event loop. Raises ProctorConnectionError."""
        return self._made(httpx.AsyncClient)

    def _made(self, kind: type[H]) -> H:
        self._check_transport()
        try:
            return kind(
                base_url=self.address.url,
                headers=self.address.headers(),
                limits=limits(),
                transport=self._transport,
                verify=self._tls,
            )
        except (ImportError, ValueError, httpx.InvalidURL) as error:  # HTTP_PROXY and the like
            message = f"{self.address.url}: the proxy of the environment: {error}"
            raise ProctorConnectionError(message) from None

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


class _Opened(Generic[H]):
    """Connections of a process by event loop; None stands for all threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sockets: WeakSet[socket.socket] = WeakSet()
        self.http_by_loop: dict[asyncio.AbstractEventLoop | None, H] = {}
        self.permits_by_loop: dict[asyncio.AbstractEventLoop | None, dict[bool, FairSemaphore]] = {}


class _Connections(Generic[H]):
    """Connections of a client, and its view of the service.

    A copy keeps address and token, and opens its own connections. `has_answered` is true if the
    service ever answered this client, here or in the process from which this process was forked.
    `repeats_ids` is true once a sound answer repeated the id of its request. `inherited` keeps
    exchanges of a parent process alive, which prevents their finalization here.
    """

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._opened: PerProcess[_Opened[H]] = PerProcess(_Opened)
        self.url = str(connector.address.url)
        self.has_answered = False
        self.repeats_ids = False
        self.is_closed = False
        self.inherited: list[object] = []

    def check_open(self) -> None:
        """Raise ClientClosedError if the client is closed."""
        if self.is_closed:
            raise ClientClosedError("this client is closed")

    def http(self) -> H:
        """Return the connections of this process and loop. Raises ClientClosedError."""
        loop, opened = self._loop(), self._opened.get()
        with opened.lock:
            self.check_open()
            clients = opened.http_by_loop
            _forget_closed(clients)
            if loop not in clients:
                clients[loop] = self._open()
            return clients[loop]

    def permits(self, *, is_held: bool) -> FairSemaphore:
        """Return the semaphore of this process and loop, for streams or for short calls."""
        loop, opened = self._loop(), self._opened.get()
        with opened.lock:
            permits = opened.permits_by_loop
            if loop not in permits:
                _forget_closed(permits)
                permits[loop] = {each: FairSemaphore(MOST_REQUESTS) for each in (True, False)}
            return permits[loop][is_held]

    def extensions(self) -> dict[str, Any]:
        """Return the options of httpx for each request."""
        return {}

    def renew(self, http: H) -> None:
        """Replace these connections for later calls. Calls in progress finish undisturbed."""
        loop, opened = self._loop(), self._opened.get()
        with opened.lock:
            if opened.http_by_loop.get(loop) is http:
                del opened.http_by_loop[loop]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._connector,)

    @abstractmethod
    def _open(self) -> H:
        """Open connections. Raises ProctorConnectionError."""

    @abstractmethod
    def _loop(self) -> asyncio.AbstractEventLoop | None:
        """Return the running event loop, or None for threads."""

    def _end(self) -> dict[asyncio.AbstractEventLoop | None, H]:
        """Mark the client as closed, and return this process's connections for their closing."""
        opened = self._opened.get()
        with opened.lock:
            self.is_closed = True
            clients, opened.http_by_loop = opened.http_by_loop, {}
            return clients


def _forget_closed(by_loop: dict[asyncio.AbstractEventLoop | None, Any]) -> None:
    for gone in [each for each in by_loop if each is not None and each.is_closed()]:
        del by_loop[gone]


def _wake(permits: Mapping[bool, FairSemaphore]) -> None:
    for each in permits.values():
        each.wake_all()


class Connections(_Connections[httpx.Client]):
    """Connections for threads, which share them."""

    def __init__(self, connector: Connector) -> None:
        super().__init__(connector)
        self.http()  # opened here, so that its imports cannot run while another thread forks

    def close(self) -> None:
        """Close this process's connections, and end the calls of other threads."""
        clients, opened = self._end(), self._opened.get()
        with opened.lock:
            connected = list(opened.sockets)
        for each in connected:
            end_socket(each)
        for permits in opened.permits_by_loop.values():
            _wake(permits)
        for http in clients.values():
            http.close()

    def extensions(self) -> dict[str, Any]:
        """Return the hook by which `close` knows the sockets."""
        return {"trace": self._note_socket}

    def _note_socket(self, event: str, info: Mapping[str, Any]) -> None:
        if event in CONNECTED:
            connected, opened = info["return_value"].get_extra_info("socket"), self._opened.get()
            with opened.lock:
                opened.sockets.add(connected)
            if self.is_closed:
                end_socket(connected)

    def _open(self) -> httpx.Client:
        return self._connector.client()

    def _loop(self) -> None:
        return None


class AsyncConnections(_Connections[httpx.AsyncClient]):
    """Connections for event loops, separate for each loop: in another loop they fail or hang."""

    async def aclose(self) -> None:
        """Close this loop's connections, and have this process's other loops close theirs."""
        ended = self._end()
        for loop, permits in list(self._opened.get().permits_by_loop.items()):
            if loop is not None and loop.is_running():
                loop.call_soon_threadsafe(_wake, permits)
        for loop, http in ended.items():
            if loop is asyncio.get_running_loop():
                await http.aclose()
            elif loop is not None and loop.is_running():
                asyncio.run_coroutine_threadsafe(http.aclose(), loop)

    def _open(self) -> httpx.AsyncClient:
        return self._connector.async_client()

    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()
