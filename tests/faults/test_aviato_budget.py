"""Replicas that share a budget of sandboxes at the stand-in of Aviato, and the death of one of them."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from aviato_gateway.stand_in import KEY, StandIn, has_other_users, stand_in
from fault_rig.processes import Process
from fault_rig.programs import RedisServer, redis_server, wait_until

BUDGET = 20
REPLICAS = 3
EVALUATIONS = 500
PRICE_PER_HOUR = 3.6
LEASE_SECONDS = 3
WAIT_SECONDS = 120
GRADER = {"kind": "asserts", "tests": ["assert f(2) == 4"]}


@pytest.fixture
def began() -> float:
    """Before any sandbox was created, in seconds of the monotonic clock."""
    return time.monotonic()


@pytest.fixture
def gateway() -> Iterator[StandIn]:
    with stand_in() as running:
        yield running


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture
def replicas(gateway: StandIn, redis: RedisServer) -> Iterator[list[Process]]:
    with ExitStack() as stack:
        found = []
        for number in range(REPLICAS):
            found.append(Process())
            stack.callback(found[-1].close)
            found[-1].start(
                {
                    "PROCTOR_BACKEND": "aviato",
                    "PROCTOR_AVIATO_BASE_URL": gateway.url,
                    "PROCTOR_AVIATO_API_KEY": KEY,
                    "PROCTOR_AVIATO_INSTANCE": f"replica-{number}",
                    "PROCTOR_AVIATO_BUDGET_SANDBOXES": str(BUDGET),
                    "PROCTOR_AVIATO_PRICE_PER_HOUR": str(PRICE_PER_HOUR),
                    "PROCTOR_AVIATO_BUDGET_LEASE_SECONDS": str(LEASE_SECONDS),
                    "PROCTOR_ALLOW_DEGRADED": str(not has_other_users()).lower(),
                    "PROCTOR_POOL_SIZE": "8",
                    "PROCTOR_SLOTS": "8",
                    "PROCTOR_REDIS_URL": redis.url,
                }
            )
        yield found


def items(count: int) -> list[dict[str, Any]]:
    """Right and wrong ones by turns."""
    sources = ("def f(x): return x * x", "def f(x): return x")
    return [
        {"completion": f"{sources[number % 2]}  # {number}", "grader": GRADER}
        for number in range(count)
    ]


async def judged(replica: Process, submissions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(trust_env=False, timeout=WAIT_SECONDS) as client:
        body = {"submissions": submissions, "extract": "none", "cache": False}
        answer = await client.post(f"{replica.url}/reward", json=body)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["results"])


def tag_of(process: int) -> str:
    return f"proctor-instance-replica-{process}"


def spent(replica: Process, what: str) -> float:
    text = httpx.get(f"{replica.url}/metrics", trust_env=False, timeout=30).text
    found = re.findall(rf"^proctor_job_sandbox_{what}_total\S* (\S+)$", text, re.MULTILINE)
    return sum(map(float, found))


def _spent_by_all(replicas: list[Process], what: str) -> float:
    return sum(spent(each, what) for each in replicas)


def test_three_replicas_never_have_more_than_the_budget(
    gateway: StandIn, began: float, replicas: list[Process]
) -> None:
    parts = [items(EVALUATIONS)[number::REPLICAS] for number in range(REPLICAS)]

    async def all_of_them() -> list[list[dict[str, Any]]]:
        return await asyncio.gather(*map(judged, replicas, parts))

    for part, results in zip(parts, asyncio.run(all_of_them()), strict=True):
        for item, result in zip(part, results, strict=True):
            right = "x * x" in item["completion"]
            assert result["reward"] == (1.0 if right else 0.0), result
    assert gateway.order("census")["most_alive"] <= BUDGET

    # The service counts a sandbox from the call that creates it to the answer of the call that
    # stops it: never less than the provider has, never more than the budget times the time.
    ended = gateway.order("census")["ended_seconds"]
    wait_until(lambda: _spent_by_all(replicas, "seconds") >= ended, "sandboxes cost too little")
    seconds, dollars = (_spent_by_all(replicas, what) for what in ("seconds", "dollars"))
    assert seconds <= BUDGET * (time.monotonic() - began)
    assert dollars == pytest.approx(seconds * PRICE_PER_HOUR / 3600, rel=0.01)

    kept = httpx.post(f"{replicas[1].url}/sandboxes", json={}, trust_env=False, timeout=60).json()
    wait_until(lambda: bool(gateway.alive(tag_of(0))), "a replica has no sandboxes")
    replicas[0].kill()
    wait_until(lambda: not gateway.alive(tag_of(0)), "sandboxes of a killed replica live")
    lives = httpx.get(
        f"{replicas[1].url}/sandboxes/{kept['id']}", trust_env=False, timeout=240
    ).json()
    assert lives["status"] == "running", lives
    results = asyncio.run(judged(replicas[1], items(60)))
    assert [result["reward"] for result in results] == [1.0, 0.0] * 30
    assert gateway.order("census")["most_alive"] <= BUDGET


def test_without_redis_there_is_no_sandbox_beyond_those_granted_and_no_verdict(
    gateway: StandIn, redis: RedisServer, replicas: list[Process]
) -> None:
    redis.stop()
    results = asyncio.run(judged(replicas[0], items(4)))
    for number, result in enumerate(results):
        if result["error"] is None:
            assert result["reward"] == (0.0 if number % 2 else 1.0)
        else:
            assert result["reward"] is None
    assert gateway.order("census")["most_alive"] <= BUDGET
    redis.start()
    wait_until(lambda: _is_right(replicas[0]), "no sandboxes after the return of Redis")
    assert gateway.order("census")["most_alive"] <= BUDGET


def _is_right(replica: Process) -> bool:
    results = asyncio.run(judged(replica, items(20)))
    assert all(result["reward"] in (None, 1.0, 0.0) for result in results), json.dumps(results)
    return [result["reward"] for result in results] == [1.0, 0.0] * 10
