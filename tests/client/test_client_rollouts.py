"""Rollouts by both clients, against the fake service."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from typing import Any

import pytest
from client_blocking import Kind, a_client
from client_requests import Watching

from proctor_client import (
    BusyError,
    InvalidRequestError,
    ProctorConnectionError,
    ProctorError,
    ProtocolError,
    wire,
)
from proctor_client.testing import FakeProctor

API_KEY = "sk-do/not+show=me"
POLICY = {"base_url": "http://policy.test/v1", "model": "m", "api_key": API_KEY}
GRADER = {"kind": "asserts", "tests": ["assert f() == 1"]}
TASKS = [{"id": name, "prompt": f"write {name}", "grader": GRADER} for name in ("one", "two")]


def shown(error: BaseException) -> str:
    """Everything that a log could show of an exception, but the frames' own variables."""
    return "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))


# ---------------------------------------------------------------- what is sent, what comes back


def test_a_rollout_is_sent_as_meant_and_comes_back_in_order(kind: Kind) -> None:
    proctor = FakeProctor(roll_out=lambda task, index: float(task.id == "one" and index == 0))
    with a_client(kind, proctor) as client:
        answer = client.rollout(
            [TASKS[0], wire.RolloutTask.model_validate(TASKS[1])],
            policy=POLICY,
            agent={"kind": "tools", "tools": ["bash", "submit_solution"], "max_turns": 5},
            trajectories_per_task=2,
            tags=("run-7",),
            limits=wire.Limits(memory_mb=64),
            deadline_seconds=90,
        )
    assert [(each.task_id, each.index) for each in answer.trajectories] == [
        ("one", 0),
        ("one", 1),
        ("two", 0),
        ("two", 1),
    ]
    assert [each.reward for each in answer.trajectories] == [1.0, 0.0, 0.0, 0.0]
    assert (answer.summary.count, answer.summary.mean_reward) == (4, 0.25)
    [request] = proctor.requests
    assert json.loads(request.content) == {
        "tasks": TASKS,
        "policy": POLICY,
        "agent": {"kind": "tools", "tools": ["bash", "submit_solution"], "max_turns": 5},
        "trajectories_per_task": 2,
        "tags": ["run-7"],
        "limits": {"memory_mb": 64},
        "deadline_seconds": 90.0,
    }
    assert request.idempotency_key is None


def test_trajectories_come_as_they_finish_and_then_the_summary(kind: Kind) -> None:
    error = wire.ItemError(reason="policy_unavailable", message="away", retryable=True)
    proctor = FakeProctor(roll_out=lambda task, index: error if task.id == "one" else "passed")
    with (
        a_client(kind, proctor) as client,
        client.rollout_stream(TASKS, policy=POLICY) as trajectories,
    ):
        assert next(trajectories).error == error
        with pytest.raises(RuntimeError, match="iterate to the end"):
            _ = trajectories.summary
        assert [each.reward for each in trajectories] == [1.0]
        assert (trajectories.summary.errors, trajectories.summary.mean_reward) == (1, 1.0)
    assert proctor.requests[0].headers["accept"] == "application/x-ndjson"


def test_choices_come_through_without_loss(kind: Kind) -> None:
    choice = {
        "finish_reason": "stop",
        "index": 0,
        "message": {"role": "assistant", "content": "é\u2028", "annotations": []},
        "logprobs": {"content": [{"token": "a", "logprob": -1e-05, "top_logprobs": []}]},
        "vendor_field": {"kept": [1, None]},
    }
    whole = wire.Trajectory(task_id="", index=0, messages_and_choices=[choice], reward=1.0)
    proctor = FakeProctor(roll_out=lambda task, index: whole)
    with a_client(kind, proctor) as client:
        answer = client.rollout(TASKS[:1], policy=POLICY)
        streamed = list(client.rollout_stream(TASKS[:1], policy=POLICY))
    assert [*answer.trajectories] == streamed
    assert streamed[0].messages_and_choices == [choice]


def test_the_waiting_time_exceeds_the_deadline(kind: Kind) -> None:
    proctor = Watching()
    with a_client(kind, proctor) as client:
        client.rollout(TASKS, policy=POLICY, deadline_seconds=100)
        client.rollout(TASKS, policy=POLICY)
    assert [each["read"] for each in proctor.timeouts] == [130.0, 3630.0]


# ---------------------------------------------------------------- what is not done twice


def test_what_was_refused_is_sent_again(kind: Kind) -> None:
    played: list[str] = []

    def play(task: wire.RolloutTask, index: int) -> str:
        played.append(task.id)
        return "passed"

    proctor = FakeProctor(roll_out=play)
    proctor.fail_next(status=429, reason="busy", retry_after_seconds=3)
    proctor.fail_next(reason="draining")
    with a_client(kind, proctor) as client:
        client.rollout(TASKS, policy=POLICY)
        proctor.fail_next(status=429, reason="quota_exceeded")
        assert len(list(client.rollout_stream(TASKS, policy=POLICY))) == 2
    assert played == ["one", "two"] * 2
    assert proctor.clock.sleeps[0] == 3.0


@pytest.mark.parametrize("after_results", [None, 0, 1, 2])
def test_a_stream_that_breaks_is_not_begun_anew(
    proctor: FakeProctor, client: Any, after_results: int | None
) -> None:
    proctor.drop_next(after_results=after_results)
    seen: list[wire.Trajectory] = []
    trajectories = client.rollout_stream(TASKS, policy=POLICY)
    with pytest.raises(ProctorConnectionError):
        seen.extend(trajectories)
    assert len(seen) == (after_results or 0)
    assert len(proctor.requests) == 1
    assert proctor.clock.sleeps == []


def test_an_answer_that_is_lost_is_not_asked_for_again(proctor: FakeProctor, client: Any) -> None:
    proctor.drop_next()
    proctor.answer_next(b"<h1>Bad Gateway</h1>", status=502)
    proctor.fail_next(status=500, reason="internal")
    for kind_of_error in (ProctorConnectionError, ProtocolError, ProctorError):
        with pytest.raises(kind_of_error):
            client.rollout(TASKS, policy=POLICY)
    assert len(proctor.requests) == 3
    assert proctor.clock.sleeps == []


def test_a_service_that_stays_busy(proctor: FakeProctor, client: Any) -> None:
    proctor.fail_next(20, status=429, reason="busy")
    with pytest.raises(BusyError):
        client.rollout(TASKS, policy=POLICY)


# ---------------------------------------------------------------- what is not what it should be


@pytest.mark.parametrize(
    ("tasks", "options", "named"),
    [
        ([], {}, "tasks"),
        ("one", {}, "tasks"),
        (TASKS[0], {}, "tasks"),
        ([{**TASKS[0], "promt": "x"}], {}, "tasks.0.promt"),
        ([{"id": "one", "prompt": "x"}], {}, "tasks.0.grader"),
        (TASKS, {"policy": {"model": "m"}}, "policy.base_url"),
        (TASKS, {"agent": {"kind": "magic"}}, "agent"),
        (TASKS, {"agent": {"kind": "tools", "tools": ["rm"]}}, "agent.tools.tools.0"),
        (TASKS, {"trajectories_per_task": 0}, "trajectories_per_task"),
        (TASKS, {"trajectories_per_task": 4000}, "at most 4096 trajectories"),
        (TASKS, {"tags": "run"}, "tags"),
        (TASKS, {"deadline": 3}, "deadline"),
        ([{**TASKS[0], "prompt": "\ud800"}], {}, "tasks.0.prompt: a lone surrogate"),
        (TASKS, {"policy": {**POLICY, "api_key": 7}}, "policy.api_key"),
    ],
)
def test_a_rollout_at_fault_is_refused_here_by_name(
    proctor: FakeProctor, client: Any, tasks: Any, options: dict[str, Any], named: str
) -> None:
    for call in (client.rollout, client.rollout_stream):
        with pytest.raises(InvalidRequestError) as caught:
            call(tasks, **{"policy": POLICY, **options})
        assert named in caught.value.message
        assert API_KEY not in shown(caught.value)
    assert proctor.requests == []


def line(task_id: str) -> bytes:
    return wire.Trajectory(task_id=task_id, index=0, reward=0.0).model_dump_json().encode() + b"\n"


LAST = b'{"summary": {"count": 2, "judged": 2, "passed": 0, "errors": 0}}\n'


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (line("one") + LAST, "1 trajectories are missing"),
        (line("one") + line("one") + line("two") + LAST, "too many, of task 'one'"),
        (line("three"), "too many, of task 'three'"),
        (b"<html>\n", "not JSON"),
        (b"[]\n", "not a JSON object"),
        (b'{"index": 0}\n', "no trajectory: task_id"),
        (line("one") + line("two") + b'{"summary": 1}\n', "no trajectory"),
    ],
)
def test_a_stream_that_breaks_the_contract(
    proctor: FakeProctor, client: Any, body: bytes, named: str
) -> None:
    proctor.answer_next(body)
    trajectories = client.rollout_stream(TASKS, policy=POLICY)
    with pytest.raises(ProtocolError, match=named):
        list(trajectories)


def test_an_answer_with_trajectories_in_another_order(proctor: FakeProctor, client: Any) -> None:
    summary = wire.RolloutSummary(count=2, judged=0, passed=0, errors=0)
    swapped = [wire.Trajectory(task_id=name, index=0) for name in ("two", "one")]
    answer = wire.RolloutResponse(trajectories=swapped, summary=summary)
    proctor.answer_next(answer.model_dump_json().encode())
    with pytest.raises(ProtocolError, match="order"):
        client.rollout(TASKS, policy=POLICY)


def test_leaving_early_closes_the_answer() -> None:
    async def in_a_loop() -> None:
        async with proctor.async_client() as client:
            async with client.rollout_stream(TASKS, policy=POLICY) as trajectories:
                await anext(trajectories)
            with pytest.raises(StopAsyncIteration):
                await anext(trajectories)

    proctor = FakeProctor()
    asyncio.run(in_a_loop())
    with proctor.client() as client:
        with client.rollout_stream(TASKS, policy=POLICY) as trajectories:
            next(trajectories)
        assert list(trajectories) == []


# ---------------------------------------------------------------- the policy's key


def test_the_key_is_in_the_body_and_nowhere_else(
    proctor: FakeProctor, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said = f"the policy has the key {API_KEY}"
    proctor.fail_next(reason="draining", message=said)  # retried, and logged
    proctor.fail_next(status=400, reason="odd", message=said)
    proctor.answer_next(f"Bearer {API_KEY}".encode(), status=500)
    # Cut in the middle of the key, unless it is taken out first.
    proctor.answer_next(b"x" * 110 + API_KEY.encode(), status=500)
    problem = b'{"error": {"reason": "internal", "message": "%s"}}\n' % said.encode()
    proctor.answer_next(problem)
    told = []
    for _ in range(3):
        with pytest.raises(ProctorError) as caught:
            client.rollout(TASKS, policy=wire.Policy.model_validate(POLICY))
        told.append(shown(caught.value))
    stream = client.rollout_stream(TASKS, policy=POLICY)
    with pytest.raises(ProctorError) as caught:
        list(stream)
    told.append(shown(caught.value))
    assert "attempt 1 of /rollout failed" in caplog.text
    for text in (caplog.text, *told):
        assert API_KEY[:8] not in text
    assert "[secret]" in told[0]
    assert {json.loads(each.content)["policy"]["api_key"] for each in proctor.requests} == {API_KEY}


def test_no_repr_shows_the_key() -> None:
    from proctor_client._flow import Policy, Send
    from proctor_client._rollout_calls import RolloutCalls, rollout_request
    from proctor_client._runtime import Clock

    request = rollout_request(TASKS, POLICY, {})
    calls = RolloutCalls(Policy(), Clock())
    call = calls._call(request, accept="application/json")
    send = next(calls.rollout(TASKS, POLICY, {}))
    assert isinstance(send, Send)
    assert API_KEY.encode() in (send.content or b"")
    assert API_KEY not in repr(request) + str(request) + repr(call) + repr(send)
    assert API_KEY not in request.model_dump_json()


def test_a_rollout_without_a_key(proctor: FakeProctor, client: Any) -> None:
    proctor.fail_next(status=400, reason="odd", message="no key")
    policy = {"base_url": "http://policy.test/v1", "model": "m"}
    with pytest.raises(ProctorError, match="no key"):
        client.rollout(TASKS, policy=policy)
    client.rollout(TASKS, policy={**policy, "api_key": ""})
    assert "api_key" not in json.loads(proctor.requests[0].content)["policy"]
