"""Rewards through the Aviato backend, against the stand-in: real input, faults in mid-batch, no leftovers."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest
from constants import constants
from harness import Service, running_service
from service_process import ServiceProcess
from waits import WAIT_SECONDS

from aviato_gateway.stand_in import KEY, StandIn, has_other_users, stand_in
from core.e2e.test_corpora import corpus, judge, mbpp, rows
from fault_rig.programs import wait_until
from proctor_service.errors import StartError

GRADER = {"kind": "asserts", "tests": ["assert f(2) == 4", "assert f(3) == 9"]}
RIGHT = "import time\ntime.sleep(0.05)\ndef f(x):\n    return x * x  # "
WRONG = "def f(x):\n    return x  # "
# Test code that needs the submission's own object: two sandboxes at once.
ROOMS = {"kind": "asserts", "tests": ["g = f(2)\nassert next(g) == 4 and next(g, 0) == 0"]}
RIGHT_IN_ROOMS = "def f(x):\n    yield x * x  # "
REASONS = {"sandbox_lost", "sandbox_unavailable"}


@pytest.fixture(scope="module")
def gateway() -> Iterator[StandIn]:
    with stand_in() as running:
        running.order("start_seconds", 0.3)
        yield running


@contextmanager
def serving(gateway: StandIn, **more: Any) -> Iterator[Service]:
    """A service on the stand-in; at its end none of its sandboxes lives."""
    settings = gateway.settings(**{"pool_size": 8, **more})
    with constants(aviato_start_seconds=8.0), running_service(settings, judge=None) as service:
        yield service
    assert gateway.alive() == []


def batch() -> list[dict[str, Any]]:
    """A hundred: 50 that are right, 30 that are wrong, 20 right ones with two sandboxes each."""
    return [
        *({"completion": f"{RIGHT}{n}", "grader": GRADER} for n in range(50)),
        *({"completion": f"{WRONG}{n}", "grader": GRADER} for n in range(30)),
        *({"completion": f"{RIGHT_IN_ROOMS}{n}", "grader": ROOMS} for n in range(20)),
    ]


AFTERWARDS = [*batch()[:10], *batch()[70:90]]


def test_references_pass_and_hacks_do_not(gateway: StandIn) -> None:
    with serving(gateway, pool_size=32, slots=16) as service:
        results = judge(service, [mbpp(row, row["code"]) for row in rows("mbpp/mbpp.jsonl")[:60]])
        assert [r["id"] for r in results if r["reward"] != 1.0] == []
        results = judge(service, [corpus(entry) for entry in rows("hacks.jsonl")])
        assert [r["id"] for r in results if r["verdict"] is None or r["reward"] != 0.0] == []
        results = judge(service, [corpus(entry) for entry in rows("honest.jsonl")])
        assert [(r["id"], r["message"]) for r in results if r["reward"] != 1.0] == []


FAULTS: dict[str, Callable[[StandIn], Any]] = {
    "slow start": lambda gateway: gateway.order("start_seconds", 2.0),
    "refused capacity": lambda gateway: gateway.order("refuse", 30),
    "streams without an exit code": lambda gateway: gateway.order("cut", 6),
    "lost sandboxes": lambda gateway: gateway.order("lost", 6),
    "runners that are gone": lambda gateway: gateway.order("gone", 6),
    "a restart of the gateway": lambda gateway: gateway.order("restart", 0.3),
    "refused credentials": lambda gateway: gateway.order("key", "another"),
}


def judged_through(
    gateway: StandIn, service: Service, fault: Callable[[StandIn], Any]
) -> list[dict[str, Any]]:
    """The results of a batch in the middle of which something goes wrong."""
    found: list[list[dict[str, Any]]] = []
    thread = threading.Thread(target=lambda: found.append(judge(service, batch())))
    thread.start()
    gateway.order("until_running", 4)
    fault(gateway)
    thread.join()
    return found[0]


def check(results: list[dict[str, Any]], items: list[dict[str, Any]]) -> int:
    """Each a right verdict, or a named error without a reward; how many errors there were."""
    for result, item in zip(results, items, strict=True):
        if result["error"] is None:
            assert result["reward"] == (0.0 if item["completion"].startswith(WRONG) else 1.0), (
                result
            )
        else:
            assert result["error"]["reason"] in REASONS, result
            assert (result["reward"], result["verdict"]) == (None, None)
    return sum(result["error"] is not None for result in results)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_mid_batch_makes_no_wrong_reward(gateway: StandIn, name: str) -> None:
    with serving(gateway) as service:
        results = judged_through(gateway, service, FAULTS[name])
        for what, value in (("start_seconds", 0.3), ("refuse", 0), ("key", KEY)):
            gateway.order(what, value)
        errors = check(results, batch())
        # What was struck once is judged again; only what does not come back stays unjudged.
        assert errors == 0 or name in ("refused credentials", "a restart of the gateway")
        service.until(lambda: service.parts.core.machine.backend.census()["ready"] >= 8)
        assert check(judge(service, AFTERWARDS), AFTERWARDS) == 0
        with service.client() as client:
            metrics = client.get("/metrics").text
        assert 'proctor_sandboxes{status="ready"}' in metrics
        started = re.search(r"proctor_sandbox_start_seconds_count (\S+)", metrics)
        assert started is not None
        assert float(started[1]) >= 8


def test_a_gateway_that_allows_few_streams() -> None:
    with stand_in(streams=10) as gateway, serving(gateway) as service:
        check(judge(service, batch()), batch())
        assert check(judge(service, AFTERWARDS), AFTERWARDS) == 0


# ---------------------------------------------------------------- the service's own end


def environment(gateway: StandIn, name: str) -> dict[str, str]:
    return {
        "PROCTOR_BACKEND": "aviato",
        "PROCTOR_POOL_SIZE": "4",
        "PROCTOR_AVIATO_INSTANCE": name,
        "AVIATO_BASE_URL": gateway.url,
        "AVIATO_API_KEY": KEY,
        "PROCTOR_ALLOW_DEGRADED": str(not has_other_users()),
    }


def test_a_killed_services_sandboxes_are_stopped_by_the_next(gateway: StandIn) -> None:
    with ServiceProcess(**environment(gateway, "mortal")) as service:
        first = set(gateway.alive("proctor-instance-mortal"))
        assert len(first) >= 4
        service.kill()
        assert first <= set(gateway.alive())
        service.start()
        second = set(gateway.alive("proctor-instance-mortal"))
        assert len(second) >= 4
        assert first.isdisjoint(second)
    assert gateway.alive("proctor-instance-mortal") == []


def busy_slots(url: str) -> float:
    """Return the number of evaluations that run."""
    text = httpx.get(f"{url}/metrics", timeout=WAIT_SECONDS, trust_env=False).text
    [count] = re.findall(r"^proctor_slots_busy (\S+)$", text, re.MULTILINE)
    return float(count)


def test_a_service_that_is_told_to_stop_drains_and_leaves_nothing(gateway: StandIn) -> None:
    with ServiceProcess(**environment(gateway, "polite")) as service:
        body = {"submissions": [{"completion": RIGHT, "grader": GRADER}] * 8, "cache": False}
        found: list[httpx.Response] = []
        post = partial(
            httpx.post, f"{service.url}/reward", json=body, timeout=WAIT_SECONDS, trust_env=False
        )
        thread = threading.Thread(target=lambda: found.append(post()))
        thread.start()
        # Not the first command at the gateway: the service's own comes before the request.
        wait_until(lambda: bool(found) or busy_slots(service.url) > 0, "nothing is judged")
        service.close()
        thread.join()
    results = found[0].json()["results"]
    assert any(result["reward"] == 1.0 for result in results)
    assert {r["error"]["reason"] for r in results if r["reward"] != 1.0} <= {"cancelled"}
    assert gateway.alive("proctor-instance-polite") == []


def test_the_key_is_in_no_log_and_no_answer(
    gateway: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(gateway, pool_size=2) as service:
        judge(service, batch()[:4])
        gateway.order("key", "another")
        found = judge(service, batch()[:8])
        gateway.order("key", KEY)
        with service.client() as client:
            found.append({"openapi": client.get("/openapi.json").text})
            found.append({"metrics": client.get("/metrics").text})
    wrong = serving(gateway, aviato_api_key="not-the-right-key")
    with pytest.raises(StartError, match="refuses the key") as raised, wrong:
        pass
    said = json.dumps(found) + caplog.text + str(raised.value)
    assert "refused_credentials" in said
    assert KEY not in said
    assert "not-the-right-key" not in said
