"""Replicas that share a budget of sandboxes at the stand-in of Aviato, and what befalls them."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import threading
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
IMAGE = "python:3.11"
PRICE_PER_HOUR = 3.6
LEASE_SECONDS = 30
MOST_SECONDS = 60  # that a sandbox lives on which no replica claims
WAIT_SECONDS = 900
GRADER = {"kind": "asserts", "tests": ["assert f(2) == 4"]}
JOBS = ("left", "right")


@pytest.fixture
def began() -> float:
    """Before any sandbox was created, in seconds of the monotonic clock."""
    return time.monotonic()


@pytest.fixture
def gateway() -> Iterator[StandIn]:
    with stand_in() as running:
        running.order("prices", {IMAGE: PRICE_PER_HOUR})
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
            found[-1].start(settings_of(gateway, redis, f"replica-{number}"))
        yield found


def settings_of(gateway: StandIn, redis: RedisServer, name: str, **more: str) -> dict[str, str]:
    return {
        "PROCTOR_BACKEND": "aviato",
        "PROCTOR_AVIATO_BASE_URL": gateway.url,
        "PROCTOR_AVIATO_API_KEY": KEY,
        "PROCTOR_AVIATO_INSTANCE": name,
        "PROCTOR_AVIATO_BUDGET_SANDBOXES": str(BUDGET),
        "PROCTOR_AVIATO_PRICES_PER_HOUR": json.dumps({"*": PRICE_PER_HOUR}),
        "PROCTOR_ALLOW_DEGRADED": str(not has_other_users()).lower(),
        "PROCTOR_POOL_SIZE": "8",
        "PROCTOR_SLOTS": "8",
        "PROCTOR_REDIS_URL": redis.url,
        **more,
    }


def items(count: int) -> list[dict[str, Any]]:
    """Right and wrong ones by turns."""
    sources = ("def f(x): return x * x", "def f(x): return x")
    return [
        {"completion": f"{sources[number % 2]}  # {number}", "grader": GRADER}
        for number in range(count)
    ]


async def judged(
    replica: Process, submissions: list[dict[str, Any]], job: str = "some"
) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(trust_env=False, timeout=WAIT_SECONDS) as client:
        body = {"submissions": submissions, "extract": "none", "cache": False, "job": job}
        answer = await client.post(f"{replica.url}/reward", json=body)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["results"])


def tag_of(process: int) -> str:
    return f"proctor-instance-replica-{process}"


def spent(replicas: list[Process]) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds and dollars that all replicas have counted, by job, in one look at each."""
    seconds, dollars = (dict.fromkeys(("", *JOBS), 0.0) for _ in range(2))
    for replica in replicas:
        text = httpx.get(f"{replica.url}/metrics", trust_env=False, timeout=WAIT_SECONDS).text
        for what, found in (("seconds", seconds), ("dollars", dollars)):
            name = f"proctor_job_sandbox_{what}_total"
            for job, value in re.findall(rf'^{name}{{job="(\w*)".*}} (\S+)$', text, re.MULTILINE):
                found[job] = found.get(job, 0.0) + float(value)
    return seconds, dollars


def check_right(submissions: list[dict[str, Any]], results: list[dict[str, Any]]) -> None:
    for item, result in zip(submissions, results, strict=True):
        right = "x * x" in item["completion"]
        assert result["reward"] == (1.0 if right else 0.0), result


def check_none_wrong(results: list[dict[str, Any]]) -> None:
    for number, result in enumerate(results):
        if result["error"] is None:
            assert result["reward"] == (0.0 if number % 2 else 1.0), result
        else:
            assert (result["reward"], result["verdict"]) == (None, None), result


def seconds_until_gone(gateway: StandIn, since: float, of: int = 0) -> float:
    """Seconds until no sandbox of a replica lives. Raises AssertionError after a minute."""
    pause = threading.Event()
    while gateway.alive(tag_of(of)):
        assert time.monotonic() - since < MOST_SECONDS, "sandboxes of a killed replica live"
        pause.wait(0.1)
    return time.monotonic() - since


def is_right(replica: Process) -> bool:
    results = asyncio.run(judged(replica, items(20)))
    assert all(result["reward"] in (None, 1.0, 0.0) for result in results), json.dumps(results)
    return [result["reward"] for result in results] == [1.0, 0.0] * 10


def most_alive(gateway: StandIn) -> int:
    return int(gateway.order("census")["most_alive"])


def test_three_replicas_never_have_more_than_the_budget(
    gateway: StandIn, began: float, replicas: list[Process]
) -> None:
    parts = [items(EVALUATIONS)[number::REPLICAS] for number in range(REPLICAS)]

    async def all_of_them() -> list[list[dict[str, Any]]]:
        every = zip(replicas, parts, (*JOBS, JOBS[0]), strict=True)
        return await asyncio.gather(*(judged(*each) for each in every))

    for part, results in zip(parts, asyncio.run(all_of_them()), strict=True):
        check_right(part, results)
    judged_seconds = time.monotonic() - began
    assert most_alive(gateway) <= BUDGET

    # The service counts a sandbox from the call that creates it to the answer of the call that
    # stops it: never less than the provider's bill, never more than the budget times the time.
    bill = gateway.order("census")
    wait_until(
        lambda: sum(spent(replicas)[1].values()) >= bill["ended_dollars"],
        "sandboxes cost too little",
    )
    seconds, dollars = spent(replicas)
    assert sum(seconds.values()) <= BUDGET * (time.monotonic() - began)
    assert set(dollars) == {"", *JOBS}
    for job in dollars:
        assert dollars[job] > 0 or not job  # perhaps every sandbox was used
        assert dollars[job] == pytest.approx(seconds[job] * PRICE_PER_HOUR / 3600)
    print(
        f"{EVALUATIONS} right in {judged_seconds:.0f} s with at most {most_alive(gateway)} sandboxes; "
        f"a bill of ${bill['ended_dollars']:.4f} for {bill['ended_seconds']:.0f} s, counted: "
        f"${sum(dollars.values()):.4f} for {sum(seconds.values()):.0f} s: {dollars}"
    )


def test_what_a_killed_replica_leaves_is_stopped_within_a_minute(
    gateway: StandIn, replicas: list[Process]
) -> None:
    kept = httpx.post(f"{replicas[1].url}/sandboxes", json={}, trust_env=False, timeout=60).json()
    wait_until(lambda: len(gateway.alive(tag_of(0))) >= 4, "a replica has few sandboxes")
    left = len(gateway.alive(tag_of(0)))
    replicas[0].kill()
    seconds = seconds_until_gone(gateway, time.monotonic())
    print(f"{left} sandboxes of a killed replica were gone after {seconds:.1f} s")
    place = f"{replicas[1].url}/sandboxes/{kept['id']}"
    lives = httpx.get(place, trust_env=False, timeout=WAIT_SECONDS).json()
    assert lives["status"] == "running", lives
    check_right(items(60), asyncio.run(judged(replicas[1], items(60))))
    # In one look: the pools go on creating sandboxes.
    alive = gateway.order("census")["alive"]
    claims = {tag_of(1), tag_of(2)}
    assert alive
    assert [box for box in alive if claims.isdisjoint(box["tags"])] == []
    assert most_alive(gateway) <= BUDGET


def test_what_is_left_while_redis_loses_its_data_is_stopped_too(
    gateway: StandIn, redis: RedisServer, replicas: list[Process]
) -> None:
    """Nothing in Redis names the killed replica: its sandboxes are found by a tag, and count."""
    wait_until(lambda: bool(gateway.alive(tag_of(0))), "a replica has no sandboxes")
    redis.stop()
    replicas[0].kill()
    redis.start()
    seconds = seconds_until_gone(gateway, time.monotonic())
    print(f"without an entry in Redis the sandboxes were gone after {seconds:.1f} s")
    wait_until(lambda: is_right(replicas[1]), "no sandboxes afterwards")


def test_without_redis_there_is_no_sandbox_beyond_those_granted_and_no_verdict(
    gateway: StandIn, redis: RedisServer, replicas: list[Process]
) -> None:
    redis.stop()
    check_none_wrong(asyncio.run(judged(replicas[0], items(4))))
    assert most_alive(gateway) <= BUDGET
    redis.start()
    wait_until(lambda: is_right(replicas[0]), "no sandboxes after the return of Redis")
    assert most_alive(gateway) <= BUDGET


def test_redis_that_restarts_empty_in_the_middle_of_a_batch(
    gateway: StandIn, redis: RedisServer, replicas: list[Process]
) -> None:
    async def all_of_them() -> list[list[dict[str, Any]]]:
        tasks = [asyncio.create_task(judged(replica, items(80))) for replica in replicas]
        await asyncio.to_thread(gateway.order, "until_running", 4)
        redis.stop()
        await asyncio.to_thread(redis.start)
        return await asyncio.gather(*tasks)

    for results in asyncio.run(all_of_them()):
        check_none_wrong(results)
    assert most_alive(gateway) <= BUDGET
    for replica in replicas:
        wait_until(lambda replica=replica: is_right(replica), "no sandboxes afterwards")  # type: ignore[misc]
    assert most_alive(gateway) <= BUDGET


def test_a_replica_that_is_stopped_loses_its_share_and_comes_back(
    gateway: StandIn, replicas: list[Process]
) -> None:
    """It neither writes nor stops: the others take its sandboxes for those of a dead one."""
    found: list[list[dict[str, Any]]] = []
    thread = threading.Thread(
        target=lambda: found.append(asyncio.run(judged(replicas[0], items(40))))
    )
    thread.start()
    gateway.order("until_running", 1)
    replicas[0].send(signal.SIGSTOP)
    try:
        seconds_until_gone(gateway, time.monotonic())
        check_right(items(60), asyncio.run(judged(replicas[1], items(60))))
    finally:
        replicas[0].send(signal.SIGCONT)
    thread.join()
    check_none_wrong(found[0])
    wait_until(lambda: is_right(replicas[0]), "no sandboxes after it came back")
    assert most_alive(gateway) <= BUDGET


def test_the_smaller_of_two_budgets_holds(gateway: StandIn, redis: RedisServer) -> None:
    """As in an update of the budget: the first replica has taken all of its own before."""
    with ExitStack() as stack:
        large, small = Process(), Process()
        for process in (large, small):
            stack.callback(process.close)
        most = {"PROCTOR_AVIATO_BUDGET_SANDBOXES": "6", "PROCTOR_SLOTS": "2"}
        large.start(settings_of(gateway, redis, "replica-0"))
        wait_until(lambda: len(gateway.alive(tag_of(0))) >= 8, "the pool is not full")
        small.start(settings_of(gateway, redis, "replica-1", **most))
        for replica in (large, small):
            wait_until(lambda replica=replica: is_right(replica), "nothing is judged")  # type: ignore[misc]
        wait_until(lambda: len(gateway.alive()) <= 6, "there are more than the smaller budget")
