"""Commands in sandboxes over a real connection, with scripted sandboxes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from requests_under_way import hanging_up
from sandbox_server import NDJSON, ServerUnderTest, problem, serving

from proctor_client import wire
from proctor_service.errors import SandboxLost, SandboxUnavailable
from proctor_service.sandboxes.routes import MOST_PIECES, Output


def test_an_execution_has_every_field_of_the_contract(hotel: ServerUnderTest, sandbox: str) -> None:
    found = hotel.exec(sandbox, "say", "out", "!err").json()
    assert found["usage"].pop("queue_seconds") >= 0
    assert found == {
        "exit_code": 0,
        "stdout": "out",
        "stderr": "!err",
        "ending": "exited",
        "truncated": False,
        "usage": {"cpu_seconds": 0.5, "wall_seconds": 1.0, "peak_memory_mb": 2.0},
    }
    assert set(found) == set(wire.ExecResult.model_fields)
    limited = hotel.exec(sandbox, "overrun").json()
    assert (limited["ending"], limited["exit_code"]) == ("wall_limit", None)


def test_code_and_stdin_are_taken_as_they_are(hotel: ServerUnderTest, sandbox: str) -> None:
    body = {"code": "a b", "stdin": "ü\ud800\0", "timeout_seconds": 2.5}
    answer = hotel.client.post(f"/sandboxes/{sandbox}/exec", content=json.dumps(body))
    assert answer.json()["stdout"] == "ab"
    assert hotel.guest.stdin == b"\xc3\xbc\xed\xa0\x80\0"


def test_output_comes_as_lines_and_the_result_last(hotel: ServerUnderTest, sandbox: str) -> None:
    # The two bytes of an ü apart, and one that is no UTF-8.
    words = ["a", "!b", "c\xc3", "\xbc", "\xff", "!\xc3"]
    answer = hotel.exec(sandbox, "say", *words, **NDJSON)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    lines = [wire.ExecLine.model_validate_json(line) for line in answer.text.splitlines()]
    assert all(len(line.model_dump(exclude_none=True)) == 1 for line in lines)
    result = lines[-1].result
    assert result is not None
    assert (result.stdout, result.stderr) == ("acü\ufffd", "!b!\ufffd")
    assert "".join(line.stdout or "" for line in lines) == result.stdout
    assert "".join(line.stderr or "" for line in lines) == result.stderr
    assert [line.stdout or line.stderr for line in lines[:2]] == ["a", "!b"]


def test_lines_come_while_the_command_runs(hotel: ServerUnderTest, sandbox: str) -> None:
    body = {"command": ["say-and-wait", "early"]}
    url = f"/sandboxes/{sandbox}/exec"
    with hotel.client.stream("POST", url, json=body, headers=NDJSON) as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines)) == {"stdout": "early"}
        hotel.service.call(lambda: hotel.guest.release("said"))
        assert json.loads(next(lines))["result"]["stdout"] == "early"
        assert list(lines) == []


def test_what_breaks_under_way_is_a_last_line_and_before_that_an_error(
    hotel: ServerUnderTest,
) -> None:
    ids = [hotel.create()["id"] for _ in range(3)]
    stopped, lost, silent = hotel.inn.guests
    ends: list[Callable[[], Any]] = [
        lambda: hotel.client.delete(f"/sandboxes/{ids[0]}"),
        lambda: hotel.service.call(lambda: lost.lose(SandboxLost("gone"))),
    ]
    reasons = [("sandbox_stopped", False), ("sandbox_lost", False)]
    for sandbox_id, end, (reason, retryable) in zip(ids, ends, reasons, strict=False):
        body = {"command": ["say-and-wait", "early"]}
        url = f"/sandboxes/{sandbox_id}/exec"
        with hotel.client.stream("POST", url, json=body, headers=NDJSON) as answer:
            lines = answer.iter_lines()
            assert json.loads(next(lines)) == {"stdout": "early"}
            end()
            [last] = [wire.ExecLine.model_validate_json(line) for line in lines]
        assert last.error is not None
        assert (last.error.reason, last.error.retryable) == (reason, retryable)
    assert stopped.cancelled == ["said"]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(hotel.exec, ids[2], "wait", "a", **NDJSON)
        hotel.service.until(lambda: bool(silent.waiting))
        hotel.client.delete(f"/sandboxes/{ids[2]}")
        problem(asked.result(), 410, "sandbox_stopped")


def test_a_lost_sandbox_is_an_error_that_no_client_tries_again(
    hotel: ServerUnderTest, sandbox: str
) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(hotel.exec, sandbox, "wait", "a")
        hotel.service.until(lambda: bool(hotel.guest.waiting))
        hotel.service.call(lambda: hotel.guest.lose(SandboxLost("gone")))
        assert problem(asked.result(), 500, "sandbox_lost").retryable is False
    assert hotel.client.get(f"/sandboxes/{sandbox}").json()["status"] == "failed"
    problem(hotel.exec(sandbox, "true"), 500, "sandbox_lost")
    assert hotel.client.delete(f"/sandboxes/{sandbox}?missing_ok=true").json() == {"stopped": 0}


def test_no_sandbox_to_be_had_is_a_503_to_try_again(hotel: ServerUnderTest) -> None:
    hotel.inn.refusals.append(SandboxUnavailable("no room"))
    answer = hotel.client.post("/sandboxes", json={})
    assert problem(answer, 503, "sandbox_unavailable").retryable
    assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize("headers", [{}, NDJSON])
@pytest.mark.parametrize("command", [["wait", "said"], ["say-and-wait", "early"]])
def test_a_client_that_hangs_up_ends_its_command(
    hotel: ServerUnderTest,
    sandbox: str,
    headers: dict[str, str],
    command: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with hanging_up(hotel.service, f"/sandboxes/{sandbox}/exec", {"command": command}, **headers):
        hotel.service.until(lambda: bool(hotel.guest.waiting))
    hotel.service.until(lambda: hotel.guest.cancelled == ["said"])
    hotel.service.until(lambda: hotel.service.parts.core.queue.busy == 0)
    hotel.service.until(lambda: not hotel.service.server.server_state.tasks)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    found = hotel.client.get(f"/sandboxes/{sandbox}").json()
    assert (found["status"], found["exec_stats"]["errors"]) == ("running", 1)


def test_a_stream_that_nobody_reads_keeps_little() -> None:
    output = Output()
    for number in range(100_000):
        output.hear("stdout" if number % 2 else "stderr", b"x")
    assert len(output._pieces) <= MOST_PIECES + 1
    read = {"stdout": "", "stderr": ""}
    while (line := output.next_line()) is not None:
        for name, text in json.loads(line).items():
            read[name] += text
    assert (len(read["stdout"]), len(read["stderr"])) == (50_000, 50_000)
    output.hear("stdout", b"y" * (1 << 20))
    line = output.next_line()
    assert line is not None
    assert len(line) < 100_000


def test_the_metrics_count_commands_and_sandboxes() -> None:
    with serving() as hotel:
        first, second = [hotel.create()["id"] for _ in range(2)]
        hotel.exec(first, "true")
        hotel.exec(first, "false")
        hotel.exec(first, "overrun")
        hotel.client.delete(f"/sandboxes/{second}")
        lines = hotel.client.get("/metrics").text.splitlines()
    for line in (
        'proctor_execs_total{outcome="success"} 1.0',
        'proctor_execs_total{outcome="failure"} 1.0',
        'proctor_execs_total{outcome="error"} 1.0',
        "proctor_exec_seconds_count 3.0",
        'proctor_stateful_sandboxes{status="running"} 1.0',
        'proctor_stateful_sandboxes{status="stopped"} 1.0',
        'proctor_http_request_seconds_count{route="/sandboxes/{sandbox_id}/exec"} 3.0',
    ):
        assert line in lines, line


def test_many_threads_use_one_sandbox_while_it_is_stopped(
    hotel: ServerUnderTest, sandbox: str
) -> None:
    stop = threading.Barrier(11)

    def use(_: int) -> list[int]:
        with hotel.service.client() as client:
            stop.wait()
            url = f"/sandboxes/{sandbox}/exec"
            body = {"command": ["true"]}
            return [client.post(url, json=body).status_code for _ in range(20)]

    def end(_: int) -> list[int]:
        stop.wait()
        return [hotel.client.delete(f"/sandboxes/{sandbox}").status_code]

    with ThreadPoolExecutor(11) as pool:
        found = [pool.submit(use, number) for number in range(10)]
        assert pool.submit(end, 0).result() == [200]
    codes = [code for each in found for code in each.result()]
    assert set(codes) <= {200, 410}
    for each in found:
        assert each.result() == sorted(each.result())  # once it is over, it stays over
    assert hotel.service.parts.core.queue.busy == 0
