"""The routes around the work, and what the OpenAPI page says about all of them."""

from __future__ import annotations

import json
from typing import Any

import httpx
from fastapi.routing import APIRoute
from harness import Gate, NoBackend, Service, exec_request, passes, running_service
from pydantic import SecretStr
from requests_under_way import asking

from proctor_client import wire
from proctor_service.app import build_app
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.observe.metrics import KEPT_SECONDS, MOST_JOBS, JobTable, Metrics
from proctor_service.outcomes import Item, NoCode, Outcome
from proctor_service.sandbox.interface import Sandboxes
from proctor_service.settings import Settings


def test_health_and_capacity_answer_while_a_large_batch_runs() -> None:
    gate = Gate()
    with running_service(Settings(slots=2), judge=gate) as service, service.client() as client:
        body = exec_request(*[str(number) for number in range(2000)])
        with asking(service, "/reward", body):
            service.until(lambda: service.parts.core.queue.queued == 1998)
            assert client.get("/healthz").json()["status"] == "ok"
            assert client.get("/readyz").json()["status"] == "ready"
            capacity = wire.Capacity.model_validate(client.get("/capacity").json())
            assert (capacity.slots, capacity.busy, capacity.queued) == (2, 2, 1998)
            service.call(gate.open)
        found = client.get("/capacity").json()
        assert (found["busy"], found["queued"]) == (0, 0)
        assert found["recent_rewards_per_second"] > 0


async def cheats(submission: Submission, backend: Sandboxes) -> Judgement:
    return Judgement("early_exit", hack_signals=("early_exit",))


def test_the_metrics_count_what_happened() -> None:
    with running_service(judge=cheats) as service, service.client() as client:
        client.post("/reward", json=exec_request("a", "a", job="run-1"))
        client.post("/reward", json=exec_request("a", wrong=1))
        client.get("/nothing/at/all")
        text = client.get("/metrics").text
    for line in (
        'proctor_rewards_total{job="run-1",verdict="early_exit"} 2.0',
        'proctor_reward_bucket{job="run-1",le="0.0"} 2.0',
        'proctor_hack_signals_total{kind="early_exit"} 2.0',
        'proctor_phase_seconds_count{phase="queue"} 1.0',
        'proctor_phase_seconds_count{phase="sandbox"} 1.0',
        'proctor_phase_seconds_count{phase="judge"} 1.0',
        'proctor_http_requests_total{method="POST",route="/reward",status="200"} 1.0',
        'proctor_http_requests_total{method="POST",route="/reward",status="422"} 1.0',
        'proctor_http_requests_total{method="any",route="none",status="404"} 1.0',
        'proctor_http_request_seconds_count{route="/reward"} 2.0',
        'proctor_sandboxes{status="running"} 0.0',
        "proctor_slots_busy 0.0",
        "proctor_queue_depth 0.0",
    ):
        assert line in text.splitlines(), line
    assert 'proctor_cache_total{result="miss"} 1.0' in text


def test_a_trainer_cannot_flood_the_labels() -> None:
    metrics = Metrics()
    for number in range(150):
        item = Item("ev_1", NoCode(), "me", f"job-{number}", 0.0)
        metrics.item_ended(item, Outcome(Judgement("no_code"), 0.0), 0.1)
    jobs = {
        sample.labels["job"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "proctor_rewards_total"
    }
    assert len(jobs) == 101
    assert "other" in jobs


def scraped(client: httpx.Client, token: str) -> str:
    """What a token shows on /metrics."""
    answer = client.get("/metrics", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200
    return answer.text


def test_a_tenant_sees_its_own_jobs_and_the_operator_those_of_all() -> None:
    tokens = {"a": "token-a", "b": "token-b", "prometheus": "token-p"}
    settings = Settings(tokens=SecretStr(json.dumps(tokens)), metrics_tenants=["prometheus"])
    with running_service(settings) as service, service.client() as client:
        for tenant in ("a", "b", "b"):
            headers = {"Authorization": f"Bearer {tokens[tenant]}"}
            for job in ("shared", f"of-{tenant}"):
                client.post("/reward", json=exec_request("x", job=job), headers=headers)
        shown = {tenant: scraped(client, token) for tenant, token in tokens.items()}
    assert 'proctor_rewards_total{job="shared",verdict="passed"} 1.0' in shown["a"]
    assert 'proctor_rewards_total{job="shared",verdict="passed"} 2.0' in shown["b"]
    assert "of-b" not in shown["a"]
    assert "of-a" not in shown["b"]
    for line in (
        'proctor_rewards_total{job="shared",tenant="a",verdict="passed"} 1.0',
        'proctor_rewards_total{job="of-b",tenant="b",verdict="passed"} 2.0',
        'proctor_reward_count{job="of-b",tenant="b"} 2.0',
        'proctor_reward_squares_total{job="of-a",tenant="a"} 1.0',
    ):
        assert line in shown["prometheus"].splitlines()
    for text in shown.values():
        assert "_created" not in text
        assert text.count("# TYPE proctor_reward histogram") == 1
        assert "proctor_queue_depth 0.0" in text


def test_a_tenant_that_asks_for_many_jobs_takes_no_other_tenants_place() -> None:
    table = JobTable([0.5, 1.0])
    for number in range(1000):
        table.add("a", f"job-{number}", "passed", 1.0)
    table.add("b", "mine", "failed", 0.0)
    assert [job for _, job, _ in table.seen("b")] == ["mine"]
    jobs = {job: counts for _, job, counts in table.seen("a")}
    assert len(jobs) == MOST_JOBS + 1
    assert jobs["other"].verdicts == {"passed": 1000 - MOST_JOBS}


def test_a_job_that_is_not_seen_any_more_makes_room() -> None:
    now = [0.0]
    table = JobTable([0.5, 1.0], lambda: now[0])
    for number in range(MOST_JOBS):
        table.add("a", f"old-{number}", "passed", 1.0)
    now[0] += KEPT_SECONDS / 2
    table.add("a", "old-0", "passed", 1.0)
    now[0] += KEPT_SECONDS * 0.6
    table.add("a", "new", "passed", 0.25)
    found = {job: counts for _, job, counts in table.seen()}
    assert set(found) == {"old-0", "new"}
    assert found["new"].buckets == [1, 0, 0]


def test_two_apps_share_no_metrics() -> None:
    first, second = (build_app(Settings(), NoBackend(), passes) for _ in range(2))
    assert first.state.parts.core.metrics.registry is not second.state.parts.core.metrics.registry


def examples_of(operation: dict[str, Any]) -> list[Any]:
    contents = [answer.get("content", {}) for answer in operation["responses"].values()]
    contents.append(operation.get("requestBody", {}).get("content", {}))
    return [form.get("example") for content in contents for form in content.values()]


def test_the_openapi_page_has_an_example_for_every_route(
    service: Service, client: httpx.Client
) -> None:
    schema = client.get("/openapi.json").json()
    assert "swagger" in client.get("/docs").text
    routes = {route.path for route in service.app.routes if isinstance(route, APIRoute)}
    assert routes <= set(schema["paths"])
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            examples = examples_of(operation)
            assert examples, path
            assert None not in examples, path
    reward = schema["paths"]["/reward"]["post"]
    body = reward["requestBody"]["content"]["application/json"]
    wire.RewardRequest.model_validate(body["example"])
    assert body["schema"]["$ref"].rpartition("/")[2] in schema["components"]["schemas"]
    answer = reward["responses"]["200"]["content"]["application/json"]["example"]
    wire.RewardResponse.model_validate(answer)


def test_the_example_of_the_openapi_page_is_answered(client: httpx.Client) -> None:
    schema = client.get("/openapi.json").json()
    content = schema["paths"]["/reward"]["post"]["requestBody"]["content"]
    answer = client.post("/reward", json=content["application/json"]["example"])
    assert answer.status_code == 200
