"""Shares over HTTP: priorities, quotas by tenant, and requests that could not begin in time."""

from __future__ import annotations

import json
import math
from contextlib import ExitStack
from functools import partial
from typing import Any

import httpx
import pytest
from harness import Gate, Service, exec_request, running_service
from policy_server import calls, policy_server
from pydantic import SecretStr, ValidationError
from requests_under_way import asking
from sandbox_server import problem
from scripted_sandboxes import FakeBackend

from proctor_service.errors import Busy
from proctor_service.settings import Settings

TOKENS = SecretStr(json.dumps({"a": "token-a", "b": "token-b"}))


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer token-{name}"}


def entered_in_turn(service: Service, gate: Gate, bodies: list[dict[str, Any]]) -> list[str]:
    """The order in which the first of each body ran: one slot, and the first body holds it."""
    queue = service.parts.core.queue

    def taken(count: int) -> bool:
        return queue.busy + queue.queued == count

    with ExitStack() as asked:
        for number, body in enumerate(bodies, 1):
            asked.enter_context(asking(service, "/reward", body))
            service.until(partial(taken, number))
        service.call(gate.open)
    return gate.entered


def test_an_evaluation_goes_first() -> None:
    gate = Gate()
    with running_service(Settings(slots=1), judge=gate) as service:
        bodies = [
            exec_request("holder"),
            exec_request("training"),
            exec_request("evaluation", priority="evaluation", job="other"),
        ]
        order = entered_in_turn(service, gate, bodies)
        assert order == ["holder", "evaluation", "training"]
        with service.client() as client:
            wrong = client.post("/reward", json=exec_request("x", priority="urgent"))
            assert problem(wrong, 422, "invalid_request").message.startswith("priority: ")


def test_a_tenants_quota_of_slots_is_for_that_tenant() -> None:
    gate = Gate()
    settings = Settings(slots=4, tenant_slots={"a": 1}, tokens=TOKENS)
    with running_service(settings, judge=gate) as service:
        of_a, of_b = exec_request("a1", "a2", "a3"), exec_request("b1", "b2")
        with (
            asking(service, "/reward", of_a, headers=bearer("a")),
            asking(service, "/reward", of_b, headers=bearer("b")),
        ):
            service.until(lambda: len(gate.entered) == 3)
            assert sorted(gate.entered) == ["a1", "b1", "b2"]
            assert service.parts.core.queue.queued == 2
            service.call(gate.open)
        assert len(gate.entered) == 5


def test_a_tenants_quota_of_sandboxes_is_for_that_tenant() -> None:
    settings = Settings(tenant_sandboxes={"*": 2, "b": 0}, tokens=TOKENS)
    with running_service(settings, backend=FakeBackend()) as service, service.client() as client:
        made = [client.post("/sandboxes", json={}, headers=bearer("a")) for _ in range(2)]
        refused = client.post("/sandboxes", json={}, headers=bearer("a"))
        assert problem(refused, 429, "quota_exceeded").retryable
        assert int(refused.headers["retry-after"]) >= 1
        problem(client.post("/sandboxes", json={}, headers=bearer("b")), 429, "quota_exceeded")
        client.delete(f"/sandboxes/{made[0].json()['id']}", headers=bearer("a"))
        assert client.post("/sandboxes", json={}, headers=bearer("a")).status_code == 201


def test_what_could_not_begin_in_time_is_a_429_and_is_asked_only_of_what_needs_a_turn(
    monkeypatch: pytest.MonkeyPatch, service: Service, client: httpx.Client
) -> None:
    asked: list[tuple[Any, ...]] = []

    reserve = service.parts.core.queue.reserve

    def late(places: int, whose: Any, start_by: Any = None) -> Any:
        if start_by is None:
            return reserve(places, whose)
        asked.append((whose, start_by[0]))
        raise Busy("its turn would come in about 99 s, after its deadline", 39.0)

    monkeypatch.setattr(service.parts.core.queue, "reserve", late)
    answer = client.post("/reward", json=exec_request("x", job="j", priority="evaluation"))
    assert problem(answer, 429, "busy").retry_after_seconds == 39.0
    assert answer.headers["retry-after"] == "39"
    assert asked == [(("local", "j"), "evaluation")]
    nothing = {"submissions": [{"completion": "prose"}], "grader": {"kind": "exec"}}
    assert client.post("/reward", json=nothing).json()["summary"]["no_code"] == 1
    assert len(asked) == 1


@pytest.mark.slow
def test_a_rollout_that_runs_goes_on_while_the_service_drains() -> None:
    with running_service(Settings(slots=1), judge=None) as service:
        asked_of_policy = 0

        def play(asked: Any) -> Any:
            nonlocal asked_of_policy
            asked_of_policy += 1
            if asked_of_policy == 1:  # in the middle of the first turn
                service.drain()
                return calls(("execute_code", {"code": "print('still here')"}))
            assert "still here" in asked.last
            return calls(("submit_solution", {"code": "def f():\n    return 1"}))

        with policy_server(play) as policy, service.client() as client:
            task = {
                "id": "t",
                "prompt": "f",
                "grader": {"kind": "asserts", "tests": ["assert f() == 1"]},
            }
            body = {"tasks": [task], "policy": {"base_url": policy.url, "model": "m"}}
            [trajectory] = client.post("/rollout", json=body).json()["trajectories"]
        assert (trajectory["reward"], trajectory["error"]) == (1.0, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"tenant_weights": {"a": 0.0}},
        {"tenant_weights": {"a": -1.0}},
        {"tenant_weights": {"a": math.inf}},
        {"tenant_weights": {"a": 1e-320}},
        {"tenant_slots": {"a": 0}},
        {"tenant_sandboxes": {"a": -1}},
    ],
)
def test_shares_that_make_no_sense_are_refused_at_the_start(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Settings(**fields)
