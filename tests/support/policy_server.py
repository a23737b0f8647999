"""An OpenAI-compatible chat endpoint on loopback that does what a script tells it to.

A script is a function from a request to an act. Acts answer with text or tool calls, fail with a
status, hang, hang up in the middle, or send bytes that are none of that.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

from waits import WAIT_SECONDS

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """One request to the policy."""

    path: str
    headers: Mapping[str, str]
    body: Json

    @property
    def messages(self) -> list[Json]:
        """The conversation so far."""
        found: list[Json] = self.body["messages"]
        return found

    @property
    def turn(self) -> int:
        """How often the policy has answered in it."""
        return sum(message["role"] == "assistant" for message in self.messages)

    @property
    def task(self) -> str:
        """The first thing that the user said."""
        return next(str(each["content"]) for each in self.messages if each["role"] == "user")

    @property
    def last(self) -> str:
        """The last thing that the policy was told."""
        return str(self.messages[-1]["content"])


class Handler(BaseHTTPRequestHandler):
    """Notes the request, and answers as the script says."""

    protocol_version = "HTTP/1.1"
    server: PolicyServer

    def do_POST(self) -> None:
        """A chat completion."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): text for name, text in self.headers.items()}
        asked = Asked(self.path, headers, json.loads(body))
        self.server.note(asked)
        try:
            self.server.script(asked)(self)
        except OSError:  # nobody listens any more
            self.close_connection = True

    def do_GET(self) -> None:
        """Nothing here is to be read."""
        self.server.note(Asked(self.path, {}, {"messages": []}))
        self.send_bytes(b"secret", "text/plain")

    def send_json(self, body: Json, status: int = 200, headers: Mapping[str, str] = {}) -> None:
        """Answers with JSON; what is no ASCII is escaped, lone surrogates too."""
        self.send_bytes(json.dumps(body).encode(), "application/json", status, headers)

    def send_bytes(
        self, body: bytes, kind: str, status: int = 200, headers: Mapping[str, str] = {}
    ) -> None:
        """Answers with these bytes."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep standard error for failures."""


Act: TypeAlias = Callable[[Handler], None]
Script: TypeAlias = Callable[[Asked], Act]


class PolicyServer(ThreadingHTTPServer):
    """Serves a script until it is killed."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = script
        self.received: list[Asked] = []
        self.dead = threading.Event()
        self._heard = threading.Condition()
        self._connections: set[socket.socket] = set()
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """What a policy's `base_url` is."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def note(self, asked: Asked) -> None:
        """Remembers a request."""
        with self._heard:
            self.received.append(asked)
            self._heard.notify_all()

    def wait_for(self, count: int) -> None:
        """Waits until so many requests have come."""
        with self._heard:
            came = self._heard.wait_for(lambda: len(self.received) >= count, WAIT_SECONDS)
        assert came, f"{len(self.received)} of {count} requests came"

    def kill(self) -> None:
        """Dies at once: what is under way is broken off, and what comes is refused."""
        if self.dead.is_set():
            return
        self.dead.set()
        self.shutdown()
        self.server_close()
        for connection in list(self._connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        self._thread.join(WAIT_SECONDS)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Keeps track of the connections, to break them off."""
        connection, address = super().get_request()
        self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """One connection less."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error here."""


@contextmanager
def policy_server(script: Script) -> Iterator[PolicyServer]:
    """A policy server, until the block ends."""
    server = PolicyServer(script)
    try:
        yield server
    finally:
        server.kill()


# ---------------------------------------------------------------- acts


def completion(
    message: Json, finish_reason: str = "stop", logprobs: Json | None = None, **more: Any
) -> Json:
    """A chat completion with one choice; `more` are fields of the choice."""
    choice = {
        "index": 0,
        "finish_reason": finish_reason,
        "logprobs": logprobs,
        "message": {"role": "assistant", **message},
        **more,
    }
    return {
        "id": "cmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "policy",
        "choices": [choice],
        "usage": {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13},
    }


def says(text: str | None, finish_reason: str = "stop", **more: Any) -> Act:
    """Answers with text."""
    return lambda handler: handler.send_json(completion({"content": text}, finish_reason, **more))


def calls(*wanted: tuple[str, Any], text: str | None = None, reason: str = "tool_calls") -> Act:
    """Answers with tool calls: names and arguments; arguments that are a string go as they are."""
    listed = [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": given if isinstance(given, str) else json.dumps(given),
            },
        }
        for number, (name, given) in enumerate(wanted)
    ]
    body = completion({"content": text, "tool_calls": listed}, reason)
    return lambda handler: handler.send_json(body)


def fails(status: int, message: str = "no", **headers: str) -> Act:
    """Answers with an error of OpenAI's form."""
    body = {"error": {"message": message, "type": "error", "code": None}}
    return lambda handler: handler.send_json(body, status, headers)


def sends(body: bytes, kind: str = "application/json", **headers: str) -> Act:
    """Answers 200 with these bytes."""
    return lambda handler: handler.send_bytes(body, kind, 200, headers)


def hangs(handler: Handler) -> None:
    """Never answers."""
    handler.server.dead.wait(3 * WAIT_SECONDS)
    handler.close_connection = True


def drips(handler: Handler) -> None:
    """Answers a byte at a time, and never to the end."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    while not handler.server.dead.wait(0.02):
        handler.wfile.write(b" ")
        handler.wfile.flush()
    handler.close_connection = True


def hangs_up(handler: Handler) -> None:
    """Closes the connection in the middle of the answer."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True
