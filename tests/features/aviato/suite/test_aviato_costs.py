"""Time and cost by tenant and job: as metrics and on a page, with and without judge processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from constants import constants
from harness import Service, running_service
from pydantic import SecretStr

from aviato_gateway.stand_in import StandIn, stand_in
from fault_rig.programs import wait_until
from proctor_service.settings import Settings

TOKENS = '{"red": "red-token", "blue": "blue-token", "boss": "boss-token"}'
GRADER = {"kind": "asserts", "tests": ["assert f(2) == 4"]}
JOBS = {"red": "red job <1>", "blue": "blue-job"}
NOBODY = "used by nobody"


@pytest.fixture(scope="module")
def gateway() -> Iterator[StandIn]:
    with stand_in() as running:
        yield running


def send(service: Service, tenant: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {tenant}-token"}
    return service.client(headers=headers)


def samples(service: Service, tenant: str, what: str) -> dict[tuple[str, ...], float]:
    """The values of a metric as a tenant sees them, by the values of its labels."""
    with send(service, tenant) as client:
        text = client.get("/metrics").text
    found = re.findall(rf"^proctor_job_sandbox_{what}_total{{(.*)}} (\S+)$", text, re.MULTILINE)
    return {tuple(re.findall(r'"(.*?)"', labels)): float(value) for labels, value in found}


def page(service: Service, tenant: str) -> str:
    """What a tenant sees, logged in."""
    with service.client() as client:
        assert client.get("/console/costs").status_code == 401
        form = {"token": f"{tenant}-token", "next": "/console/costs"}
        answer = client.post("/console/login", data=form, follow_redirects=True)
        assert answer.status_code == 200, answer.text
        return answer.text


@pytest.mark.parametrize("workers", [0, 1])
def test_each_tenant_sees_its_own_jobs(gateway: StandIn, workers: int) -> None:
    settings = gateway.settings(
        pool_size=2,
        workers=str(workers),
        tokens=SecretStr(TOKENS),
        metrics_tenants=["boss"],
        aviato_prices_per_hour={"*": 36.0},
        aviato_instance=f"costs-{workers}",
    )
    with running_service(settings, judge=None) as service:
        for tenant, job in JOBS.items():
            items = [{"completion": f"def f(x): return x * {n}", "grader": GRADER} for n in (2, 3)]
            body: dict[str, Any] = {"submissions": items, "job": job, "cache": False}
            with send(service, tenant) as client:
                results = client.post("/reward", json=body).json()["results"]
            assert [result["reward"] for result in results] == [1.0, 0.0]
        whose = {(job, tenant) for tenant, job in JOBS.items()}
        wait_until(
            lambda: whose <= samples(service, "boss", "seconds").keys(), "no sandbox has ended"
        )
        for (job, tenant), seconds in samples(service, "boss", "seconds").items():
            assert seconds > 0
            assert (job, tenant) in {*whose, ("", "")}
            dollars = samples(service, "boss", "dollars")[job, tenant]
            assert dollars >= seconds * 36.0 / 3600 * 0.999
        assert samples(service, "red", "seconds").keys() == {(JOBS["red"],)}
        assert "blue-job" not in page(service, "red")
        shown = page(service, "blue")
        assert "blue-job" in shown
        assert "red job" not in shown
        assert NOBODY not in shown
        shown = page(service, "boss")
        assert "blue-job" in shown
        assert "red job &lt;1&gt;" in shown
        assert "<1>" not in shown
        assert 'href="/console/costs" aria-current="page"' in shown
    assert gateway.alive(f"proctor-instance-costs-{workers}") == []


def test_sandboxes_of_this_machine_have_no_costs() -> None:
    with running_service(Settings()) as service, service.client() as client:
        answer = client.get("/console/costs")
        assert answer.status_code == 404
        assert "/console/costs" not in client.get("/console").text


def test_a_budget_that_is_used_up_is_a_429_and_no_verdict(gateway: StandIn) -> None:
    settings = gateway.settings(
        pool_size=1,
        workers=0,
        aviato_budget_sandboxes=2,
        aviato_instance="budget",
    )
    with (
        constants(aviato_start_seconds=15.0),
        running_service(settings, judge=None) as service,
        service.client() as client,
    ):
        made = [client.post("/sandboxes", json={}) for _ in range(2)]
        assert [answer.status_code for answer in made] == [201, 201], made[-1].text
        refused = client.post("/sandboxes", json={})
        assert refused.json()["error"]["reason"] == "budget_exceeded", refused.text
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        body = {"submissions": [{"completion": "def f(x): return x * 2", "grader": GRADER}]}
        [result] = client.post("/reward", json=body).json()["results"]
        assert (result["reward"], result["error"]["reason"]) == (None, "sandbox_unavailable")
        assert "budget" in result["error"]["message"]
        for answer in made:
            client.delete(f"/sandboxes/{answer.json()['id']}")
        [result] = client.post("/reward", json=body).json()["results"]
        assert result["reward"] == 1.0
        assert len(gateway.alive("proctor-instance-budget")) <= 2
