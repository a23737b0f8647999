"""Idempotency-Key: one request however often it is sent."""

from __future__ import annotations

from typing import Any

import httpx
from constants import constants
from harness import Gate, Service, exec_request, running_service
from requests_under_way import asking, hanging_up

from proctor_service.errors import InvalidTask, SandboxLost
from proctor_service.http.body import name_request
from proctor_service.http.task_store import TaskStore
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes
from proctor_service.scheduling.queue import MOST_ATTEMPTS
from proctor_service.settings import Settings

KEY = {"Idempotency-Key": "k1"}
NDJSON = {"Accept": "application/x-ndjson"}


def post(client: httpx.Client, body: dict[str, Any], **headers: str) -> httpx.Response:
    return client.post("/reward", json=body, headers=KEY | headers)


def hang_up_on(service: Service, body: dict[str, Any], gate: Gate) -> None:
    """Sends a request with the key, and goes away once its first item runs."""
    with hanging_up(service, "/reward", body, **KEY):
        service.until(lambda: bool(gate.entered))


def test_a_repeated_request_gets_the_first_ones_answer_in_either_form() -> None:
    gate = Gate()
    gate.open()
    with running_service(judge=gate) as service, service.client() as client:
        body = exec_request("a", "b", cache=False)
        first = post(client, body)
        assert post(client, body).json() == first.json()
        lines = post(client, body, **NDJSON).text.splitlines()
        assert len(lines) == 3
        other = post(client, exec_request("c"))
        assert other.status_code == 422
        assert "idempotency-key" in other.json()["error"]["message"]
        assert client.post("/reward", json=body, headers={"Idempotency-Key": ""}).status_code == 422
    assert sorted(gate.entered) == ["a", "b"]


def test_work_goes_on_without_its_client_and_the_retry_joins_it() -> None:
    gate = Gate()
    with running_service(Settings(slots=1), judge=gate) as service:
        body, jobs = exec_request("a", "b"), service.parts.core.running
        hang_up_on(service, body, gate)
        service.until(lambda: not any(job._readers for job in jobs))
        with asking(service, "/reward", body, headers=KEY) as retry:
            service.until(lambda: any(job._readers for job in jobs))
            service.call(gate.open)
        answer = retry.result().json()
    assert answer["summary"]["passed"] == 2
    assert (gate.entered, gate.cancelled) == (["a", "b"], [])


def test_orphaned_work_ends_after_a_while_and_the_retry_judges_the_rest() -> None:
    gate = Gate()
    with (
        constants(orphan_seconds=0.01),
        running_service(Settings(slots=2), judge=gate) as service,
        service.client() as client,
    ):
        body = exec_request("a", "b", cache=False)
        service.call(lambda: gate.release("a"))
        hang_up_on(service, body, gate)
        service.until(lambda: not service.parts.core.running)
        assert gate.cancelled == ["b"]
        service.call(gate.open)
        answer = post(client, body).json()
    assert answer["summary"]["passed"] == 2
    assert gate.entered == ["a", "b", "b"]


def test_judged_items_stand_and_retryable_errors_are_judged_anew() -> None:
    ends: dict[str, list[Judgement | Exception]] = {
        "good": [Judgement("passed")],
        "lost": [*(SandboxLost("x") for _ in range(MOST_ATTEMPTS)), Judgement("passed")],
        "broken": [InvalidTask("x")],
    }
    seen: list[str] = []

    async def judge(submission: Submission, backend: Sandboxes) -> Judgement:
        seen.append(submission.source)
        end = ends[submission.source].pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    with running_service(judge=judge) as service, service.client() as client:
        body = exec_request("good", "lost", "broken", cache=False)
        first = post(client, body).json()
        assert [each["reward"] for each in first["results"]] == [1.0, None, None]
        second = post(client, body).json()
        assert [each["reward"] for each in second["results"]] == [1.0, 1.0, None]
        assert second["results"][0] == first["results"][0]
        assert second["results"][2] == first["results"][2]
        assert post(client, body).json() == second
    assert [seen.count(source) for source in ends] == [1, MOST_ATTEMPTS + 1, 1]


def test_a_refusal_is_not_remembered() -> None:
    gate = Gate()
    settings = Settings(slots=1, max_queued=1)
    with running_service(settings, judge=gate) as service, service.client() as client:
        with asking(service, "/reward", exec_request("x", "y")):
            service.until(lambda: bool(gate.entered))
            assert post(client, exec_request("a")).status_code == 429
            service.call(gate.open)
        assert post(client, exec_request("a")).json()["summary"]["passed"] == 1


class Finished:
    """What the ledger needs of a batch, done at once."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.done = True

    def when_done(self, then: Any) -> None:
        then()

    def cancel(self, why: str) -> None:
        """Done already."""


def test_the_ledger_forgets_what_is_old_and_what_is_too_much() -> None:
    now = [0.0]
    ledger: TaskStore[Any] = TaskStore(keep_seconds=10, max_bytes=5000, clock=lambda: now[0])
    names = [name_request("t", str(number), b"body") for number in range(4)]
    batches: list[Any] = [Finished(1500) for _ in names]
    for name, batch in zip(names[:3], batches, strict=False):
        ledger.remember(name, batch)
        now[0] += 1
    assert [ledger.find(name) for name in names[:3]] == [None, *batches[1:3]]
    now[0] = 11.0
    assert ledger.find(names[1]) is None
    assert ledger.find(names[2]) is batches[2]
    now[0] = 50.0
    assert ledger.find(names[3]) is None
    assert len(ledger) == 0


def test_the_ledger_keeps_a_job_that_took_longer_than_it_keeps_jobs() -> None:
    now = [0.0]
    ledger: TaskStore[Any] = TaskStore(keep_seconds=10, max_bytes=5000, clock=lambda: now[0])
    name, ends = name_request("t", "long", b"body"), list[Any]()

    class Long(Finished):
        def when_done(self, then: Any) -> None:
            ends.append(then)

    long: Any = Long(1500)
    ledger.remember(name, long)
    now[0] = 100.0
    ends[0]()
    now[0] = 109.0
    assert ledger.find(name) is long
    now[0] = 111.0
    assert ledger.find(name) is None
