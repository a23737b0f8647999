"""Sandboxes and rollouts over real connections, to a server that answers and breaks off as told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from client_blocking import Kind, a_client
from client_loopback import Act, Handler, Loopback, drop, lines, refuse, send
from waits import WAIT_SECONDS

from proctor_client import (
    AsyncClient,
    Client,
    ProctorConnectionError,
    ProctorError,
    ProctorTimeoutError,
    SandboxLostError,
    wire,
)
from proctor_client.testing import FakeClock

MADE = send(
    201,
    b'{"id": "sb_1", "status": "running", "tags": [], "backend": "loopback",'
    b' "created_at": "2026-01-01T00:00:00+00:00", "expires_at": "2026-01-01T00:10:00Z"}',
)
STOPPED = send(200, b'{"stopped": 1}')
RESULT = wire.ExecResult(exit_code=0, stdout="out", ending="exited")
RAN = send(200, RESULT.model_dump_json().encode())
LAST = b'{"result": ' + RESULT.model_dump_json().encode() + b"}\n"
NOTHING = send(204, b"")
TASK = {"id": "t", "prompt": "p", "grader": {"kind": "exec"}}
POLICY = {"base_url": "http://policy.test/v1", "model": "m"}


def use(
    kind: Kind, loopback: Loopback, work: Callable[[Any], Any], clock: FakeClock | None = None
) -> Any:
    """What `work` makes of an attached handle of the kind."""
    with a_client(kind, loopback.url, clock=clock or loopback.clock) as client:
        return work(client.attach("sb_1"))


def test_a_command_waits_for_a_service_that_is_away(kind: Kind, loopback: Loopback) -> None:
    class Restart(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if len(self.sleeps) == 3:
                loopback.start(RAN)

    assert use(kind, loopback, lambda sandbox: sandbox.exec(["x"]), Restart(0.5)) == RESULT
    assert loopback.asked == ["POST /sandboxes/sb_1/exec"]
    assert loopback.bodies == [b'{"command": ["x"]}']


@pytest.mark.parametrize(
    "act", [drop, send(502, b"<html>"), send(503, b"<html>"), refuse(500, "internal")]
)
def test_a_command_that_may_have_run_is_not_sent_again(
    kind: Kind, act: Act, loopback: Loopback
) -> None:
    loopback.start(act)
    with pytest.raises(ProctorError):
        use(kind, loopback, lambda sandbox: sandbox.exec(["x"]))
    assert len(loopback.received) == 1
    assert loopback.clock.sleeps == []


def test_a_command_whose_answer_does_not_come_is_not_sent_again(
    kind: Kind, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silence(handler: Handler) -> None:
        gone.wait(WAIT_SECONDS)
        handler.close_connection = True

    monkeypatch.setattr("proctor_client._sandbox_calls.QUEUE_SECONDS", 0.01)
    gone = threading.Event()
    loopback.start(silence)
    try:
        with pytest.raises(ProctorTimeoutError):
            use(kind, loopback, lambda sandbox: sandbox.exec(["x"], timeout_seconds=0.01))
    finally:
        gone.set()
    assert len(loopback.received) == 1


def test_a_refused_command_is_sent_again_without_a_key(kind: Kind, loopback: Loopback) -> None:
    loopback.start(refuse(429, "busy", Retry_After="7"), refuse(503, "draining"), RAN)
    assert use(kind, loopback, lambda sandbox: sandbox.exec(["x"])) == RESULT
    assert len(loopback.received) == 3
    assert loopback.keys() == set()
    assert loopback.clock.sleeps[0] == 7.0


def test_output_comes_while_the_command_runs(loopback: Loopback) -> None:
    heard = threading.Event()

    def speaks_and_listens(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(b'{"stdout": "first \xe2\x80\xa8"}\n')
        handler.wfile.flush()
        assert heard.wait(WAIT_SECONDS), "the first line was not handed on"
        handler.wfile.write(LAST)

    loopback.start(speaks_and_listens)
    with Client(loopback.url) as client, client.attach("sb_1").stream(["x"]) as output:
        assert next(output).stdout == "first \u2028"
        heard.set()
        assert next(output).result == RESULT
    assert loopback.received[0]["accept"] == "application/x-ndjson"


@pytest.mark.parametrize(
    ("parts", "kind_of_error"),
    [
        ((b'{"stdout": "a"}\n', b'{"std'), ProctorConnectionError),
        ((b'{"error": {"reason": "sandbox_lost", "message": "x"}}\n',), SandboxLostError),
    ],
)
def test_a_stream_that_breaks_is_not_begun_anew(
    kind: Kind, loopback: Loopback, parts: tuple[bytes, ...], kind_of_error: type[ProctorError]
) -> None:
    loopback.start(lines(*parts, breaks=True))
    with pytest.raises(kind_of_error):
        use(kind, loopback, lambda sandbox: list(sandbox.stream(["x"])))
    assert len(loopback.received) == 1
    assert loopback.clock.sleeps == []


def goes_away(ended: threading.Event, begin: bytes) -> Act:
    """A stream that begins, and then waits until the client has gone."""

    def act(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(begin)
        handler.wfile.flush()
        handler.connection.settimeout(WAIT_SECONDS)
        if handler.connection.recv(1) == b"":
            ended.set()

    return act


def test_leaving_a_command_or_a_rollout_early_ends_its_connection(loopback: Loopback) -> None:
    trajectory = wire.Trajectory(task_id="t", index=0).model_dump_json().encode() + b"\n"
    first, second = threading.Event(), threading.Event()
    loopback.start(goes_away(first, b'{"stdout": "a"}\n'), goes_away(second, trajectory))
    with Client(loopback.url) as client:
        with client.attach("sb_1").stream(["x"]) as output:
            next(output)
        assert first.wait(WAIT_SECONDS)
        with client.rollout_stream([TASK, TASK], policy=POLICY) as trajectories:
            next(trajectories)
        assert second.wait(WAIT_SECONDS)


async def test_cancelling_a_command_or_a_rollout_ends_its_connection(loopback: Loopback) -> None:
    asked = [threading.Event(), threading.Event()]
    ended = [threading.Event(), threading.Event()]

    def silent(number: int) -> Act:
        def act(handler: Handler) -> None:
            asked[number].set()
            handler.close_connection = True
            handler.connection.settimeout(WAIT_SECONDS)
            if handler.connection.recv(1) == b"":
                ended[number].set()

        return act

    loopback.start(silent(0), silent(1))

    async with AsyncClient(loopback.url) as client:
        works = (client.attach("sb_1").exec(["x"]), client.rollout([TASK], policy=POLICY))
        for number, work in enumerate(works):
            task = asyncio.create_task(work)
            assert await asyncio.to_thread(asked[number].wait, WAIT_SECONDS)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(ended[number].wait, WAIT_SECONDS)


def test_files_go_as_raw_bytes_by_paths_that_arrive_whole(kind: Kind, loopback: Loopback) -> None:
    data = bytes(range(256)) * 4096

    def work(sandbox: Any) -> Any:
        sandbox.write_file("/tmp/ü ?#%2F.bin", data)
        return sandbox.read_file("a/./b//c")

    loopback.start(drop, NOTHING, drop, send(200, data, "application/octet-stream"))
    assert use(kind, loopback, work) == data
    path = "/sandboxes/sb_1/files"
    assert loopback.asked == [
        *[f"PUT {path}/%2Ftmp/%C3%BC%20%3F%23%252F.bin"] * 2,
        *[f"GET {path}/a/b/c"] * 2,
    ]
    assert loopback.bodies == [data, data]
    assert loopback.received[0]["content-type"] == "application/octet-stream"
    assert loopback.keys() == set()


def test_a_creation_and_its_end_on_the_way(loopback: Loopback) -> None:
    loopback.start(drop, refuse(503, "sandbox_unavailable"), MADE, drop, STOPPED)
    with Client(loopback.url, clock=loopback.clock) as client, client.sandbox() as sandbox:
        assert sandbox.id == "sb_1"
    assert loopback.asked == [
        *["POST /sandboxes"] * 3,
        *["DELETE /sandboxes/sb_1?missing_ok=true"] * 2,
    ]
    assert len(loopback.keys()) == 1


def test_tags_are_quoted_on_the_way(loopback: Loopback) -> None:
    nothing = send(200, b'{"sandboxes": []}')
    loopback.start(nothing, nothing, nothing, STOPPED)
    with Client(loopback.url) as client:
        client.sandboxes()
        client.sandboxes(tags=["a b&c=d", "ü"], status="running")
        client.count_active(tags=["x"])
        client.stop_sandboxes(["#1", "#2"])
    assert loopback.asked == [
        "GET /sandboxes",
        "GET /sandboxes?tag=a+b%26c%3Dd&tag=%C3%BC&status=running",
        "GET /sandboxes?tag=x&status=pending&status=running",
        "DELETE /sandboxes?tag=%231&tag=%232",
    ]
