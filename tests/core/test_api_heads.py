"""Request heads that are too long, too slow, or too many."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from harness import Gate, Service, exec_request, one_answer, running_service
from pydantic import SecretStr
from waits import WAIT_SECONDS

from proctor_service.http import body as bodies
from proctor_service.http import heads
from proctor_service.http import server as serving
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes
from proctor_service.settings import Settings

START = b"POST /reward HTTP/1.1\r\nHost: proctor\r\n"
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: proctor\r\n\r\n"
LAST_HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: proctor\r\nConnection: close\r\n\r\n"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service that waits for a head one second, and for at most four at once."""
    monkeypatch.setattr(heads, "HEAD_SECONDS", 1.0)
    monkeypatch.setattr(serving, "MOST_UNFINISHED", 4)
    with running_service() as running:
        yield running


def connect(service: Service) -> socket.socket:
    """A new connection; close it."""
    address = httpx.URL(service.url)
    return socket.create_connection((address.host, address.port), WAIT_SECONDS)


def send_until_closed(connection: socket.socket, data: bytes, most: int = 1) -> int:
    """Sends it so often, and stops when the service has closed the connection. Bytes sent."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        for _ in range(most):
            connection.sendall(data)
            sent += len(data)
    return sent


def everything(connection: socket.socket) -> bytes:
    """What comes until the service closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            found += piece
    return found


def assert_refused(answer: bytes, status: int) -> None:
    """It is one answer with that status, and the contract's body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer[:300]
    assert b"connection: close" in head
    error = json.loads(body)["error"]
    assert error["reason"] == "invalid_request"
    assert error["retryable"] is (status == 408)


@pytest.mark.parametrize(
    "head",
    [
        START + b"X-Long: " + b"a" * 70_000 + b"\r\n\r\n",
        START + b"X-Long: " + b"a" * 70_000,
        START + b"a" * 70_000,
        START + b"".join(b"X-%d: %s\r\n" % (i, b"a" * 900) for i in range(80)) + b"\r\n",
        START + b"".join(b"X-%d: a\r\n" % i for i in range(100)) + b"\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: proctor\r\n\r\n",
        b"GET /" + b"a" * 70_000,
        b"\r\n" * 35_000,
        START + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: " + b"a" * 90_000,
        START + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: a\r\n" * 100,
        START + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"a" * 90_000,
    ],
    ids=[
        "value", "unfinished value", "unfinished name", "many bytes", "many fields", "target",
        "unfinished target", "empty lines", "trailer", "many trailers", "chunk extension",
    ],
)  # fmt: skip
def test_a_head_that_is_too_large_is_a_431(service: Service, head: bytes) -> None:
    with connect(service) as connection:
        send_until_closed(connection, head)
        assert_refused(everything(connection), 431)


def test_a_head_just_below_the_bounds_is_served(service: Service) -> None:
    fields = b"".join(b"X-%d: %s\r\n" % (i, b"a" * 600) for i in range(97))
    with connect(service) as connection:
        connection.sendall(LAST_HEALTHZ[:-2] + fields + b"\r\n")
        assert everything(connection).startswith(b"HTTP/1.1 200 ")


def test_an_endless_head_is_refused_while_it_comes(service: Service) -> None:
    with connect(service) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        send_until_closed(connection, START + b"X-Long: ")
        assert send_until_closed(connection, b"a" * 65536, 1024) < 16 << 20
        assert_refused(everything(connection), 431)


def test_requests_sent_in_a_row_are_all_answered(service: Service) -> None:
    body = json.dumps(exec_request("x" * 40_000)).encode()
    reward = START + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with connect(service) as connection:
        connection.sendall((reward + HEALTHZ) * 5 + LAST_HEALTHZ)
        assert everything(connection).count(b"HTTP/1.1 200 ") == 11


def test_a_flood_of_requests_in_a_row_is_cut(service: Service) -> None:
    with connect(service) as connection:
        send_until_closed(connection, b"GET / HTTP/1.1\r\n\r\n" * 50_000)
        answers = everything(connection).count(b"HTTP/1.1 404 ")
    assert 0 < answers <= heads.MOST_PIPELINED + 1
    assert not service.call(lambda: service.server.server_state.tasks)


def test_work_ends_with_its_connection_though_requests_wait_behind_it() -> None:
    gate = Gate()
    body = json.dumps(exec_request("held")).encode()
    with running_service(judge=gate) as service:
        with connect(service) as connection:
            connection.sendall(START + b"Content-Length: %d\r\n\r\n" % len(body) + body + HEALTHZ)
            service.until(lambda: gate.entered == ["held"])
        service.until(lambda: gate.cancelled == ["held"])


def test_a_trailer_adds_no_field_to_the_head() -> None:
    settings = Settings(tokens=SecretStr('{"us": "secret"}'))
    with running_service(settings) as service, connect(service) as connection:
        connection.sendall(
            b"GET /capacity HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"0\r\nAuthorization: Bearer secret\r\n\r\n"
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_a_connection_ends_though_a_body_comes_after_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "KEEP_ALIVE_SECONDS", 1)
    settings = Settings(tokens=SecretStr('{"us": "secret"}'))
    with running_service(settings) as service, connect(service) as connection:
        connection.sendall(START + b"Content-Length: 2\r\n\r\n")
        assert one_answer(connection).startswith(b"HTTP/1.1 401 ")
        connection.sendall(b"{}")
        assert everything(connection) == b""


def test_a_body_that_does_not_come_is_a_408(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "SILENT_SECONDS", 0.25)
    with connect(service) as connection:
        connection.sendall(START + b"Content-Length: 10\r\n\r\n{")
        assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_comes_byte_by_byte_is_given_up(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.25)
    with connect(service) as connection:
        connection.sendall(START + b"Content-Length: 100000\r\n\r\n")
        answers: list[bytes] = []
        reading = threading.Thread(target=lambda: answers.append(one_answer(connection)))
        reading.start()
        while reading.is_alive():
            with contextlib.suppress(ConnectionError):
                connection.sendall(b" ")
            reading.join(0.01)
    assert answers[0].startswith(b"HTTP/1.1 408 ")
    assert b"not whole after 0.25 s" in answers[0]


async def prints_much(submission: Submission, backend: Sandboxes) -> Judgement:
    return Judgement("passed", passed=1, total=1, stdout="x" * 500_000)


def test_a_client_that_does_not_read_its_answer_loses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service would hold the answer for as long as the connection is there."""
    monkeypatch.setattr(heads, "UNREAD_SECONDS", 0.25)
    body = json.dumps({**exec_request(*map(str, range(60))), "cache": False}).encode()
    with running_service(judge=prints_much) as service, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(WAIT_SECONDS)
        address = httpx.URL(service.url)
        connection.connect((address.host, address.port))
        connection.sendall(START + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        service.until(lambda: bool(service.server.server_state.connections))
        service.until(lambda: not service.server.server_state.connections)
        with contextlib.suppress(ConnectionResetError):
            assert len(everything(connection)) < 60 * 500_000


def test_a_bad_head_behind_a_good_request_does_not_take_its_answer(service: Service) -> None:
    with connect(service) as connection:
        send_until_closed(connection, HEALTHZ + START + b"X-Long: " + b"a" * 200_000)
        assert everything(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("sent", [b"", b"G", START, START + b"X: a\r\n", b"\r\n"])
def test_a_head_that_does_not_come_is_a_408(impatient: Service, sent: bytes) -> None:
    with connect(impatient) as connection:
        connection.sendall(sent)
        assert_refused(everything(connection), 408)


@pytest.mark.parametrize("sent", [b"G", b"\r\n"])
def test_a_later_head_that_does_not_come_is_a_408(impatient: Service, sent: bytes) -> None:
    with connect(impatient) as connection:
        connection.sendall(HEALTHZ)
        assert one_answer(connection).startswith(b"HTTP/1.1 200 ")
        connection.sendall(sent)
        assert_refused(everything(connection), 408)


def test_an_idle_connection_and_a_slow_body_are_left_alone(impatient: Service) -> None:
    body = json.dumps(exec_request("x")).encode()
    with connect(impatient) as idle, connect(impatient) as slow, connect(impatient) as silent:
        idle.sendall(HEALTHZ)
        assert one_answer(idle).startswith(b"HTTP/1.1 200 ")
        slow.sendall(START + b"Content-Length: %d\r\n\r\n" % len(body) + body[:5])
        assert_refused(everything(silent), 408)  # as much time has passed for the others
        idle.sendall(LAST_HEALTHZ)
        assert everything(idle).startswith(b"HTTP/1.1 200 ")
        slow.sendall(body[5:])
        assert slow.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_an_answer_to_http_1_0_is_not_chunked(service: Service) -> None:
    body = json.dumps(exec_request("x", "y")).encode()
    fields = b"Accept: application/x-ndjson\r\nContent-Length: %d\r\n\r\n" % len(body)
    with connect(service) as connection:
        connection.sendall(b"POST /reward HTTP/1.0\r\nConnection: keep-alive\r\n" + fields + body)
        head, _, streamed = everything(connection).partition(b"\r\n\r\n")
        assert b" 200 " in head
        assert b"chunked" not in head
        assert len([json.loads(line) for line in streamed.splitlines()]) >= 2
    with connect(service) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        head, _, whole = everything(connection).partition(b"\r\n\r\n")
        assert b"content-length: %d" % len(whole) in head
        assert json.loads(whole)["status"] == "ok"


@pytest.mark.parametrize("path", ["/healthz/", "/reward/", "/sandboxes/"])
def test_nobody_is_sent_to_where_the_host_header_says(service: Service, path: str) -> None:
    with service.client() as client:
        answer = client.get(path, headers={"Host": "somebody.example"})
    assert answer.status_code in (403, 404, 405)
    assert "somebody" not in answer.text + str(answer.headers)


@pytest.mark.parametrize("path", ["/reward", "/sandboxes"])
def test_two_keys_are_a_400(service: Service, path: str) -> None:
    with service.client() as client:
        keys = [("Idempotency-Key", "one"), ("Idempotency-Key", "two")]
        answer = client.post(path, json=exec_request("x"), headers=keys)
    assert answer.status_code == 400
    assert answer.json()["error"]["reason"] == "invalid_request"


def test_beyond_the_bound_the_oldest_unfinished_request_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "MOST_UNFINISHED", 4)
    with running_service() as service, contextlib.ExitStack() as open_ones:
        connections = [open_ones.enter_context(connect(service)) for _ in range(7)]
        for connection in connections[:3]:
            assert_refused(everything(connection), 408)
        for connection in connections[3:]:
            connection.sendall(LAST_HEALTHZ)
            assert everything(connection).startswith(b"HTTP/1.1 200 ")


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_refused_connections_hold_few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "LINGER_SECONDS", 600.0)
    monkeypatch.setattr(serving, "MOST_UNFINISHED", 4)
    with running_service() as service, contextlib.ExitStack() as open_ones:
        before = _open_files()
        count = 4 + 4 * heads.MOST_LINGERING
        connections = [open_ones.enter_context(connect(service)) for _ in range(count)]
        for connection in connections[:-4]:
            assert_refused(everything(connection), 408)
        held = _open_files() - before - len(connections)
        assert held <= 4 + 2 * heads.MOST_LINGERING  # sandboxes may be coming up as well


def test_the_bytes_of_unfinished_heads_are_bounded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heads, "MOST_UNFINISHED_BYTES", 100_000)
    with running_service() as service, contextlib.ExitStack() as open_ones:
        connections = [open_ones.enter_context(connect(service)) for _ in range(3)]
        for connection in connections:
            connection.sendall(START + b"X-Long: " + b"a" * 45_000)
        assert_refused(everything(connections[0]), 408)
        connections[2].sendall(b"\r\n\r\n")
        assert connections[2].recv(65536).startswith(b"HTTP/1.1 ")
