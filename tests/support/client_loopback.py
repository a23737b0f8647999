"""A small HTTP server on loopback that does what it is told, for the client's tests."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeAlias

from proctor_client import wire
from proctor_client.testing import FakeClock

TOKEN = "hunter2-and-then-some"
COUNT = 3


class Handler(BaseHTTPRequestHandler):
    """Notes the request, and answers by the next act of the script."""

    protocol_version = "HTTP/1.1"
    server: Loopback

    def do_POST(self) -> None:
        """A request with a body."""
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.do_GET()

    def do_GET(self) -> None:
        """A request without one."""
        self.server.received.append({name.lower(): text for name, text in self.headers.items()})
        self.server.asked.append(self.requestline.rpartition(" ")[0])
        self.server.script.popleft()(self)

    do_PUT, do_DELETE = do_POST, do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Keep standard error for failures."""


Act: TypeAlias = Callable[[Handler], None]


class Loopback(ThreadingHTTPServer):
    """Bound at once, so that the port is taken, and refusing connections until `start`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self.script: deque[Act] = deque()
        self.received: list[dict[str, str]] = []
        self.asked: list[str] = []
        self.bodies: list[bytes] = []
        self.clock = FakeClock()
        self._thread: threading.Thread | None = None
        self.server_bind()

    @property
    def url(self) -> str:
        """The address; its port was the system's choice."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def start(self, *script: Act) -> None:
        """Listen, and act by `script`."""
        self.script.extend(script)
        self.server_activate()
        # A short poll lets shutdown() return soon; requests do not wait for it.
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        """Give the port back."""
        if self._thread is not None:
            self.shutdown()
            self._thread.join()
        self.server_close()

    def keys(self) -> set[str]:
        """The different keys that came."""
        return {each["idempotency-key"] for each in self.received if "idempotency-key" in each}


def send(status: int, body: bytes, kind: str = "application/json", **headers: str) -> Act:
    """A whole answer."""

    def act(handler: Handler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        for name, text in headers.items():
            handler.send_header(name.replace("_", "-"), text)
        handler.end_headers()
        handler.wfile.write(body)

    return act


def refuse(status: int, reason: str, **headers: str) -> Act:
    """A refusal in the contract's form."""
    problem = wire.Problem(reason=reason, message=f"no, {TOKEN}")
    return send(status, wire.ProblemBody(error=problem).model_dump_json().encode(), **headers)


def drop(handler: Handler) -> None:
    """The connection breaks without an answer."""
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def lines(*parts: bytes, breaks: bool) -> Act:
    """A stream, in chunks; if it breaks, then without the chunk that ends it."""

    def act(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/x-ndjson")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in parts:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            handler.wfile.flush()
        if breaks:
            drop(handler)
        else:
            handler.wfile.write(b"0\r\n\r\n")

    return act


def result(index: int) -> wire.Result:
    """A pass whose output would trip what splits lines as Python does."""
    return wire.Result(
        index=index,
        evaluation_id=f"ev_{index}",
        reward=1.0,
        verdict="passed",
        stdout="é\u2028é",
        integrity="separated",
        cache="miss",
    )


def line(index: int) -> bytes:
    return result(index).model_dump_json().encode() + b"\n"


SUMMARY = wire.Summary(
    count=COUNT, judged=COUNT, passed=COUNT, no_code=0, errors=0, mean_reward=1.0
)
LAST_LINE = wire.SummaryLine(summary=SUMMARY).model_dump_json().encode() + b"\n"
WHOLE = wire.RewardResponse(results=[result(index) for index in range(COUNT)], summary=SUMMARY)
JUDGED = send(200, WHOLE.model_dump_json().encode())
ALIVE = send(200, b'{"status": "ok"}')
