"""A stop at any moment of a request: the answer is a 503 which clients and proxies follow."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from harness import Gate, Service, exec_request, one_answer, running_service
from waits import WAIT_SECONDS

from proctor_service.rewards import routes
from proctor_service.settings import Settings

BODY = json.dumps(exec_request("a")).encode()
HEAD = b"POST /reward HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(BODY)
SOON = Settings(grace_seconds=0.1)
"""Ends requests that do not end by themselves after the least time."""


@contextmanager
def connected(service: Service, sent: bytes = b"") -> Iterator[socket.socket]:
    """A connection that the service has, with some bytes sent on it."""
    port = int(service.url.rpartition(":")[2])
    known = len(service.server.server_state.connections)
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as connection:
        connection.sendall(sent)
        service.until(lambda: len(service.server.server_state.connections) > known)
        yield connection


def check_refused(answer: bytes, reason: str) -> None:
    """Check for an answer of the service with a wish to retry."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    fields = head.lower().split(b"\r\n")
    assert fields[0].startswith(b"http/1.1 503 "), answer
    assert {b"proctor-wire: 1", b"connection: close"} <= set(fields), answer
    error = json.loads(rest)["error"]
    assert b"retry-after: %d" % error["retry_after_seconds"] in fields
    assert (error["reason"], error["retryable"]) == (reason, True)


@pytest.mark.parametrize(
    "sent",
    [b"", HEAD[:9], HEAD[:-1], HEAD, HEAD + BODY[:9]],
    ids=["nothing", "a word", "most of the head", "the head", "part of the body"],
)
def test_a_request_that_is_not_whole_at_the_end_is_refused(sent: bytes) -> None:
    with running_service(SOON) as service, connected(service, sent) as connection:
        service.drain()
        check_refused(one_answer(connection), "draining")
        connection.sendall(b"later bytes")  # are no reason for a reset, which could lose the answer
        assert connection.recv(1) == b""


def test_a_body_that_comes_during_the_stop_is_read_to_its_end() -> None:
    with running_service() as service, connected(service, HEAD + BODY[:9]) as connection:
        service.until(lambda: bool(service.server.server_state.tasks))
        service.drain()
        service.until(lambda: not service.server.servers[0].is_serving())
        connection.sendall(BODY[9:])
        check_refused(one_answer(connection), "draining")
        service.thread.join(WAIT_SECONDS)
        assert not service.thread.is_alive()


@pytest.mark.parametrize("where", ["reading", "preparing"])
def test_a_request_that_is_prepared_for_too_long_is_interrupted(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    async def stuck(*_: Any) -> None:
        begun.append(where)
        await asyncio.Event().wait()

    if where == "reading":
        monkeypatch.setattr(routes, "parse_body", stuck)
    else:
        monkeypatch.setattr(routes.Translation, "items", stuck)
    with running_service(SOON) as service, connected(service, HEAD + BODY) as connection:
        service.until(lambda: bool(begun))
        service.drain()
        check_refused(one_answer(connection), "cancelled")
        assert connection.recv(1) == b""


def test_a_kept_connection_is_refused_during_the_stop_and_closed_after_it() -> None:
    gate = Gate()
    with (
        running_service(Settings(slots=1), judge=gate) as service,
        connected(service, HEAD + BODY) as at_work,
        connected(service) as kept,
        connected(service) as idle,
    ):
        for each in (kept, idle):
            each.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one_answer(each).startswith(b"HTTP/1.1 200")
        service.until(lambda: bool(gate.entered))
        service.drain()
        kept.sendall(HEAD + BODY)
        check_refused(one_answer(kept), "draining")
        service.call(gate.open)
        assert b'"reward":1.0' in one_answer(at_work)
        assert idle.recv(1) == b""
