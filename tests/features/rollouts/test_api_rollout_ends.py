"""POST /rollout over a real connection, with a real policy server: errors, ends and logs."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from captured_logs import log_lines
from constants import constants
from grace import grace_period
from harness import Gate, NoBackend, running_service
from policy_server import Act, Asked, calls, completion, fails, hangs, policy_server, says
from requests_under_way import asking
from rollout_requests import CODE, KEY, NDJSON, Row, ask, playing, reasons, request, task
from waits import WAIT_SECONDS

from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes
from proctor_service.settings import Settings

# ---------------------------------------------------------------- errors and ends


def test_an_endpoint_that_fails_is_an_error_in_each_trajectory_and_never_a_reward() -> None:
    def script(asked: Asked) -> Act:
        return fails(500) if asked.task == "Write b." else says(CODE)

    with constants(policy_attempts=1), playing(script) as (server, _, client):
        answer = ask(client, request(server.url, task("a"), task("b"), task("c")))
        metrics = client.get("/metrics").text
    assert reasons(answer) == ["passed", "policy_unavailable", "passed"]
    failed = answer["trajectories"][1]
    assert (failed["reward"], failed["verdict"]) == (None, None)
    assert failed["error"]["retryable"] is True
    assert failed["error"]["message"].startswith("policy: HTTP 500")
    assert answer["summary"] == {
        "count": 3,
        "judged": 2,
        "passed": 2,
        "errors": 1,
        "mean_reward": 1.0,
    }
    assert 'proctor_trajectories_total{outcome="passed"} 2.0' in metrics
    assert 'proctor_trajectories_total{outcome="policy_unavailable"} 1.0' in metrics
    assert 'proctor_policy_seconds_count{outcome="answered"} 2.0' in metrics
    assert 'proctor_policy_seconds_count{outcome="failed"} 1.0' in metrics
    assert "proctor_trajectory_turns_sum 2.0" in metrics


def test_so_many_at_once_and_the_others_after_them() -> None:
    at_once: list[int] = []
    under_way = 0
    lock = threading.Lock()
    enough = threading.Event()

    def act(handler: Any) -> None:
        nonlocal under_way
        with lock:
            under_way += 1
            at_once.append(under_way)
            if under_way == 3:
                enough.set()
        assert enough.wait(WAIT_SECONDS)
        with lock:
            under_way -= 1
        handler.send_json(completion({"content": CODE}))

    with constants(max_rollouts=3), playing(lambda asked: act) as (server, _, client):
        answer = ask(client, request(server.url, trajectories_per_task=30))
    assert reasons(answer) == ["passed"] * 30
    assert max(at_once) == 3


def test_what_waits_for_its_turn_has_the_same_deadline() -> None:
    with constants(max_rollouts=1), playing(lambda asked: hangs) as (server, service, client):
        body = request(server.url, trajectories_per_task=3, deadline_seconds=8)
        answer = ask(client, body)
        assert service.parts.core.running == frozenset()
    assert reasons(answer) == ["deadline"] * 3
    assert len(server.received) == 1


@pytest.mark.parametrize("headers", [{}, NDJSON])
def test_a_client_that_goes_away_ends_its_trajectories(headers: dict[str, str]) -> None:
    gate = Gate()

    def script(asked: Asked) -> Act:
        return hangs if asked.task == "Write a." else says("```\nb\n```")

    with constants(max_rollouts=4), playing(script, judge=gate) as (server, service, client):
        body = request(server.url, task("a"), task("b"), trajectories_per_task=50)
        body["tasks"] = body["tasks"][::-1]
        with client.stream("POST", "/rollout", json=body, headers=headers):
            server.wait_for(4)
            service.until(lambda: len(gate.entered) == 4)
        service.until(lambda: not service.parts.core.running)
        assert len(gate.cancelled) == 4
        assert service.parts.core.queue.busy == 0
        service.call(gate.open)
        assert reasons(ask(client, request(server.url, task("b")))) == ["passed"]
    assert len(server.received) == 5


def test_draining_refuses_what_comes_and_hands_back_what_is_not_done() -> None:
    gate, backend = Gate(), NoBackend()

    def script(asked: Asked) -> Act:
        return hangs if asked.task == "Write slow." else says("```\nquick\n```")

    with (
        grace_period() as grace,
        policy_server(script) as server,
        constants(max_rollouts=2),
        running_service(
            Settings(grace_seconds=grace.seconds), judge=gate, backend=backend
        ) as service,
    ):
        body = request(server.url, task("slow"), task("quick"), task("late"))
        with service.client() as client, asking(service, "/rollout", body) as asked:
            service.until(lambda: bool(gate.entered))
            server.wait_for(2)
            service.drain()
            service.call(gate.open)
            late = client.post("/rollout", json=request(server.url))
            grace.end()
        answer = asked.result()
    assert (late.status_code, late.json()["error"]["reason"]) == (503, "draining")
    assert reasons(answer.json()) == ["cancelled", "passed", "cancelled"]
    assert all(
        each["reward"] is None and each["error"]["retryable"]
        for each in answer.json()["trajectories"][::2]
    )
    assert backend.closed


async def breaks(submission: Submission, backend: Sandboxes) -> Judgement:
    """A judge that breaks."""
    raise KeyError("secret")


def test_a_bug_of_ours_is_an_error_that_tells_nothing() -> None:
    with playing(lambda asked: says(CODE), judge=breaks) as (server, _, client):
        answer = ask(client, request(server.url))
    assert reasons(answer) == ["judge_failed"]
    assert "secret" not in json.dumps(answer)


# ---------------------------------------------------------------- what gets out


def logged(
    capsys: pytest.CaptureFixture[str], level: str, script: Any, body: Row
) -> tuple[list[Row], str]:
    """The lines that the service logs while it answers, and all the client gets to see."""
    with (
        log_lines(capsys, level) as lines,
        constants(policy_attempts=1),
        playing(script) as (server, _, client),
    ):
        body["policy"]["base_url"] = server.url
        text = client.post("/rollout", json=body).text + client.get("/metrics").text
    return lines, text


@pytest.mark.parametrize(
    "script",
    [
        lambda asked: says(f"{CODE}\n{KEY}"),
        lambda asked: fails(401, f"Incorrect API key provided: {KEY}", **{"X-Echo": KEY}),
        lambda asked: calls((KEY, KEY)),
    ],
)
def test_the_key_is_nowhere_even_at_debug(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, script: Any
) -> None:
    monkeypatch.setenv("OPENAI_LOG", "debug")
    lines, text = logged(capsys, "debug", script, request("", policy={"api_key": KEY}))
    assert lines
    assert KEY not in json.dumps(lines)
    assert KEY not in text


def test_a_line_for_each_trajectory_and_no_texts(capsys: pytest.CaptureFixture[str]) -> None:
    def script(asked: Asked) -> Act:
        return fails(500) if asked.task == "b hidden" else says(f"{CODE} hidden")

    body = request("", task("a", prompt="a hidden"), task("b", prompt="b hidden"), job="run-1")
    lines, _ = logged(capsys, "info", script, body)
    ended = [line for line in lines if line["message"] == "a trajectory ended"]
    first, second = sorted(ended, key=lambda line: str(line["task_id"]))
    assert first["rollout_id"].startswith("ro_")
    assert (first["task_id"], first["job"], first["turns"]) == ("a", "run-1", 1)
    assert (first["verdict"], first["reward"], first["error"]) == ("passed", 1.0, None)
    assert first["duration_seconds"] > 0
    assert (second["verdict"], second["reward"]) == (None, None)
    assert second["error"] == "policy_unavailable"
    assert not any("hidden" in json.dumps(line) for line in lines)
