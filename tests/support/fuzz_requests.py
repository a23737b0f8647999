"""Requests that no client of ours would send, the way they are sent, and what every answer must be.

They go out as bytes over a socket: no HTTP library would let half of them through.
"""

from __future__ import annotations

import gzip
import http.client
import json
import logging
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_from_bytes

from fuzz_json import bodies, mutated, odd_json
from harness import Service
from hypothesis import strategies as st

from proctor_client.wire import ProblemBody

HANG_SECONDS = 60.0
"""No answer within this time is a hang."""

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "PROPFIND")
KEYS = (
    b"", b" ", b"k", b"k" * 255, b"k" * 256, b"k" * 30_000, b"\xff\xfe", b"\x00", b"a\x01b",
    b"\t", "ключ".encode(), b"a,b", b'"', b"\x7f", b"a\x0bb",
)  # fmt: skip
CONTENT_TYPES = (
    b"application/json", b"application/json; charset=utf-16", b"text/plain", b"", b"\xff",
    b"multipart/form-data", b"multipart/form-data; boundary=x", b"application/x-ndjson",
    b"application/x-www-form-urlencoded", b"application/" + b"x" * 5000,
)  # fmt: skip
ACCEPTS = (b"application/json", b"application/x-ndjson", b"*/*", b"", b"text/html;q=nan", b"\xff")
HEADERS: Mapping[bytes, tuple[bytes, ...]] = {
    b"Idempotency-Key": KEYS,
    b"Content-Type": CONTENT_TYPES,
    b"Accept": ACCEPTS,
    b"Authorization": (b"Bearer", b"Bearer ", b"Bearer \xff", b"Basic eDp5", b"bearer x y", b"\x80"),
    b"Content-Encoding": (b"gzip", b"br", b"identity", b"gzip, gzip", b"\xff"),
    b"Expect": (b"100-continue", b"200-ok"),
    b"traceparent": (b"00-" + b"f" * 32 + b"-" + b"1" * 16 + b"-01", b"00-0-0-0", b"\xff"),
    b"Proctor-Forwarded": (b"1", b""),
    b"Cookie": (b"x" * 8000,),
    b"Connection": (b"close", b"keep-alive", b"Upgrade", b"\xff"),
    b"Upgrade": (b"websocket", b"h2c"),
    b"Range": (b"bytes=0-1",),
    b"Host": (b"", b"x" * 300, b"a b"),
    b"X-HTTP-Method-Override": (b"DELETE",),
}  # fmt: skip
SEGMENTS = (
    b"", b".", b"..", b"%2e%2e", b"%00", b"%ff", b"%", b"%zz", b"a%2fb", b"%C3%A9", b"x" * 300,
    b"\xc3\xa9", b"\x80", b"sb_" + b"0" * 32, b"sb_0", b"1", b"t", b"{id}", b"*", b"a\tb", b"%0d%0a",
)  # fmt: skip
QUERY_NAMES = (
    b"tag",
    b"status",
    b"missing_ok",
    b"hold_seconds",
    b"job",
    b"x",
    b"",
    b"%ff",
    b"tag[]",
)
QUERY_VALUES = (
    b"a", b"", b"running", b"gone", b"true", b"maybe", b"nan", b"inf", b"-1", b"1e999", b"0.000001",
    b"%00", b"%ff", b"%F0%9F%98%80", b"x" * 3000, b"a&tag=b", b"%ED%A0%80", b"1_0",
)  # fmt: skip


@dataclass(frozen=True)
class Route:
    """A route, and bodies that it takes. `{id}` in a path is a sandbox that lives."""

    method: str
    path: str
    seeds: Sequence[Any] = ()


@dataclass(frozen=True)
class Asked:
    """A request, as it goes out. `{id}` in its target is filled in before."""

    method: str
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes | None = None
    chunks: int = 0

    def wire(self, sandbox_id: str) -> bytes:
        """All its bytes."""
        target = self.target.replace(b"{id}", sandbox_id.encode())
        head = [self.method.encode() + b" " + target + b" HTTP/1.1"]
        given = {name.lower() for name, _ in self.headers}
        if b"host" not in given:
            head.append(b"Host: proctor")
        head += [name + b": " + value for name, value in self.headers]
        body = self.body or b""
        if self.chunks:
            head.append(b"Transfer-Encoding: chunked")
            body = b"".join(_chunks(body, self.chunks)) + b"0\r\n\r\n"
        elif self.body is not None:
            head.append(b"Content-Length: %d" % len(body))
        return b"\r\n".join(head) + b"\r\n\r\n" + body


@dataclass(frozen=True)
class Answered:
    """An answer; a status of 0 is a connection that was closed without one."""

    status: int
    kind: str = ""
    body: bytes = b""


def _chunks(body: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(body), size):
        piece = body[at : at + size]
        yield b"%x\r\n%s\r\n" % (len(piece), piece)


# ---------------------------------------------------------------- strategies


@st.composite
def requests(draw: Callable[..., Any], route: Route) -> Asked:
    """A request to this route: mostly its method and path, with a body that is nearly right."""
    method, target = route.method, route.path.encode()
    if draw(st.integers(0, 19)) == 0:
        method = draw(st.sampled_from(METHODS))
    if draw(st.integers(0, 11)) == 0:
        target = draw(targets(route))
    if draw(st.integers(0, 4)) == 0:
        target += b"?" + draw(queries)
    body = None
    if route.seeds:
        body = draw(bodies(mutated(route.seeds) if draw(st.integers(0, 19)) else odd_json))
    headers = draw(odd_headers) if draw(st.integers(0, 4)) == 0 else ()
    if (b"Content-Encoding", b"gzip") in headers and body is not None:
        body = gzip.compress(body, 1)
    chunks = draw(st.sampled_from((0, 0, 0, 1000, 7))) if body and len(body) < 3000 else 0
    return Asked(method, target, headers, body, chunks)


@st.composite
def _one_header(draw: Callable[..., Any]) -> tuple[bytes, bytes]:
    name = draw(st.sampled_from(sorted(HEADERS)))
    texts = st.sampled_from(HEADERS[name] * 4 + (None,))
    value = draw(texts)
    value = draw(st.binary(max_size=12)) if value is None else value
    return name, value.replace(b"\r", b"").replace(b"\n", b"")


odd_headers = st.lists(_one_header(), min_size=1, max_size=4).map(tuple)
queries = st.lists(
    st.tuples(st.sampled_from(QUERY_NAMES), st.sampled_from(QUERY_VALUES)), min_size=1, max_size=5
).map(lambda pairs: b"&".join(b"=".join(pair) for pair in pairs))
segments = st.sampled_from(SEGMENTS) | st.binary(min_size=1, max_size=6).map(
    lambda data: quote_from_bytes(data, safe="").encode()
)


@st.composite
def targets(draw: Callable[..., Any], route: Route) -> bytes:
    """The route's path with odd segments in the place of some, or behind it."""
    parts = [part.encode() for part in route.path.split("/")[1:]]
    at = draw(st.integers(0, len(parts)))
    parts[at : at + 1] = draw(st.lists(segments, min_size=1, max_size=2))
    return b"/" + b"/".join(parts)


@st.composite
def streams(draw: Callable[..., Any]) -> bytes:
    """Bytes on a connection that are almost a request."""
    body = draw(st.sampled_from((b"{}", b"", b'{"submissions":[]}', b"x" * 5000)))
    framing = draw(st.sampled_from(FRAMINGS)).replace(b"LENGTH", b"%d" % len(body))
    line = draw(st.sampled_from(REQUEST_LINES))
    data: bytes = line + b"\r\nHost: x\r\n" + framing + b"\r\n" + body
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=3)) + data[at + draw(st.integers(0, 3)) :]
    return data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 3)) == 0 else data


REQUEST_LINES = (
    b"POST /reward HTTP/1.1", b"POST /compat/run_code HTTP/1.1", b"GET /healthz HTTP/1.0",
    b"POST http://h/reward HTTP/1.1", b"POST * HTTP/1.1", b"CONNECT a:1 HTTP/1.1",
    b"POST /reward HTTP/9.9", b"POST /reward", b"post /reward HTTP/1.1", b"FOO /reward HTTP/1.1",
    b"POST  /reward HTTP/1.1", b"POST /r\xffeward HTTP/1.1", b"PUT /sandboxes/x/files/y HTTP/1.1",
    b"POST /reward?" + b"q" * 9000 + b" HTTP/1.1", b"PRI * HTTP/2.0",
)  # fmt: skip
FRAMINGS = (
    b"Content-Length: LENGTH\r\n", b"", b"Content-Length: 99999\r\n", b"Content-Length: -1\r\n",
    b"Content-Length: 1\r\nContent-Length: 2\r\n", b"Content-Length: 0x10\r\n",
    b"Content-Length: " + b"9" * 40 + b"\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip\r\n", b"Transfer-Encoding: chunked\r\nContent-Length: LENGTH\r\n",
    b"Content-Length: LENGTH\r\nExpect: 100-continue\r\n", b"X: " + b"y" * 70_000 + b"\r\n",
    b"Content-Length: LENGTH\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
)  # fmt: skip


# ---------------------------------------------------------------- sending


class Sender:
    """Sends requests to a service over one connection, as long as it is kept."""

    def __init__(self, service: Service) -> None:
        host, _, port = service.url.removeprefix("http://").partition(":")
        self._address = (host, int(port))
        self._connection: socket.socket | None = None

    def send(self, asked: Asked, sandbox_id: str) -> Answered:
        """The answer. Raises TimeoutError for a hang."""
        data = asked.wire(sandbox_id)
        fresh = self._connection is None
        try:
            return self._exchange(data, asked.method)
        except (ConnectionError, http.client.HTTPException):
            self.close()
            if fresh:
                return Answered(0)
        return self.send(asked, sandbox_id)  # the one before ended the connection

    def throw(self, data: bytes) -> Answered:
        """Sends bytes on a connection of their own, says that no more come, and reads an answer."""
        self.close()
        with suppress(ConnectionError, http.client.HTTPException):
            connection = self._connect()
            connection.sendall(data)
            with suppress(OSError):  # it may be closed by now
                connection.shutdown(socket.SHUT_WR)
            return self._read(connection, "GET")
        return Answered(0)

    def close(self) -> None:
        """Ends the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> socket.socket:
        if self._connection is None:
            self._connection = socket.create_connection(self._address, HANG_SECONDS)
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._connection

    def _exchange(self, data: bytes, method: str) -> Answered:
        connection = self._connect()
        connection.sendall(data)
        return self._read(connection, method)

    def _read(self, connection: socket.socket, method: str) -> Answered:
        with http.client.HTTPResponse(connection, method=method) as response:
            response.begin()
            kind = response.headers.get("content-type", "")
            answered = Answered(response.status, kind, response.read())
            if response.will_close:
                self.close()
        return answered


# ---------------------------------------------------------------- what an answer must be


def check(answered: Answered, allowed: frozenset[int]) -> None:
    """Asserts that an answer is one of the contract, with one of these statuses if it is a 5xx."""
    status = answered.status
    assert status < 500 or status in allowed, answered
    if not answered.body:
        return
    if status >= 400:
        assert answered.kind == "application/json", answered
        ProblemBody.model_validate(strict(answered.body))
    elif answered.kind == "application/json":
        strict(answered.body)
    elif answered.kind == "application/x-ndjson":
        for line in answered.body.splitlines():
            strict(line)


def strict(data: bytes) -> Any:
    """What JSON says that every parser takes: valid UTF-8, no NaN, no lone surrogates."""
    value = json.loads(data.decode(), parse_constant=_refuse)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@dataclass
class Complaints(logging.Handler):
    """What the service logs as an error: a fault that it hid behind an answer."""

    found: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(logging.ERROR)

    __hash__ = logging.Handler.__hash__

    def emit(self, record: logging.LogRecord) -> None:
        """Notes it, with its traceback."""
        self.found.append(logging.Formatter().format(record))


@contextmanager
def complaints() -> Iterator[list[str]]:
    """All errors that are logged in the block, by anybody."""
    handler = Complaints()
    logging.getLogger().addHandler(handler)
    try:
        yield handler.found
    finally:
        logging.getLogger().removeHandler(handler)
