"""Replicas that share their answers through a real Redis, and what they do when it is away."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest
from fleet import Replica, fleet
from grace import grace_period
from harness import Gate, exec_request
from redis import Redis
from waits import WAIT_SECONDS

from fault_rig.programs import RedisServer, redis_server
from proctor_service import redis_client
from proctor_service.features.replicas import redis_store
from proctor_service.http.responses import RequestTask
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes

KEY = {"Idempotency-Key": "key-1"}
NDJSON = {"Accept": "application/x-ndjson"}
TOKENS = json.dumps({"a": "token-a", "b": "token-b"})


class Moody:
    """A judge that never says the same twice: whoever asks again sees that it was judged again."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, submission: Submission, backend: Sandboxes) -> Judgement:
        self.count += 1
        return Judgement("failed", message=f"{submission.source} {self.count}", passed=0, total=1)


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


def said(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    if "ndjson" in answer.headers["content-type"]:
        results = [json.loads(line) for line in answer.text.splitlines()[:-1]]
    else:
        results = answer.json()["results"]
    results.sort(key=lambda result: result["index"])
    return [each["message"] or each["error"]["reason"] for each in results]


def post(replica: Replica, *sources: str, **headers: str) -> httpx.Response:
    # Without the cache, which would hide what was judged twice.
    body = exec_request(*sources, cache=False)
    return replica.client.post("/reward", json=body, headers=KEY | headers)


def test_a_retry_at_another_replica_gets_the_first_ones_results(redis: RedisServer) -> None:
    judge = Moody()
    with fleet(3, judge=judge, redis_url=redis.url) as (first, second, third):
        answer = said(post(first, "a", "b"))
        assert answer == ["a 1", "b 2"]
        assert said(post(second, "a", "b", **NDJSON)) == answer
        first.kill()
        assert said(post(third, "a", "b")) == answer
        assert judge.count == 2
        refused = post(third, "a", "c")
        assert (refused.status_code, refused.json()["error"]["reason"]) == (422, "invalid_request")
        other = KEY | {"Idempotency-Key": "key-2"}
        assert said(post(third, "a", "b", **other)) == ["a 3", "b 4"]
        assert "proctor_store_up 1.0" in third.client.get("/metrics").text


def test_a_task_that_one_replica_was_sent_is_known_to_all(redis: RedisServer) -> None:
    judge = Moody()
    with fleet(2, judge=judge, redis_url=redis.url) as (first, second):
        task = {"grader": {"kind": "exec"}, "files": {"data.txt": "x" * 100_000}}
        [name] = first.client.post("/tasks", json={"tasks": [task]}).json()["tasks"]
        body = {"submissions": [{"completion": "a", "task": name}], "extract": "none"}
        assert said(second.client.post("/reward", json=body)) == ["a 1"]
        first.kill()
        Redis.from_url(redis.url).flushall()
        assert said(second.client.post("/reward", json=body)) == [
            "a 1"
        ]  # from its memory and cache
        body["submissions"] = [{"completion": "a", "task": f"sha256:{'0' * 64}"}]
        refused = second.client.post("/reward", json=body)
        assert (refused.status_code, refused.json()["error"]["reason"]) == (404, "not_found")


def test_what_a_replica_had_judged_when_it_died_stands(redis: RedisServer) -> None:
    gate = Gate()
    with fleet(2, judge=gate, redis_url=redis.url, slots=3) as (first, second):
        service = first.service

        async def die_in_the_middle() -> None:
            async with httpx.AsyncClient(trust_env=False, timeout=WAIT_SECONDS) as client:
                body = exec_request("x", "y", "z", cache=False)
                asked = asyncio.create_task(
                    client.post(f"{first.url}/reward", json=body, headers=KEY | NDJSON)
                )
                await asyncio.to_thread(service.until, lambda: len(gate.entered) == 3)
                service.call(lambda: gate.release("y"))
                [batch] = service.parts.core.running
                await asyncio.to_thread(service.until, lambda: bool(batch.finished(0, 1)))
                await asyncio.to_thread(first.kill)
                await asyncio.gather(asked, return_exceptions=True)

        asyncio.run(die_in_the_middle())
        gate.entered.clear()
        second.service.call(gate.open)
        assert said(post(second, "x", "y", "z")) == ["x", "y", "z"]
        assert sorted(gate.entered) == ["x", "z"]


def test_two_replicas_at_work_on_the_same_say_the_same(redis: RedisServer) -> None:
    judge = Moody()
    with fleet(2, judge=judge, redis_url=redis.url) as (first, second):
        sources = [f"s{number}" for number in range(100)]
        body = exec_request(*sources, cache=False)

        async def both() -> list[list[str]]:
            async with httpx.AsyncClient(trust_env=False, timeout=WAIT_SECONDS) as client:
                asked = (
                    client.post(f"{each.url}/reward", json=body, headers=KEY)
                    for each in (first, second)
                )
                return [said(answer) for answer in await asyncio.gather(*asked)]

        one, other = asyncio.run(both())
        assert one == other
        assert [each.split()[0] for each in one] == sources


def test_two_bodies_with_one_key_never_get_each_others_results(redis: RedisServer) -> None:
    gate = Gate()
    with fleet(2, judge=gate, redis_url=redis.url, slots=4) as (first, second):

        async def both() -> list[list[str]]:
            async with httpx.AsyncClient(trust_env=False, timeout=WAIT_SECONDS) as client:
                asked = [
                    asyncio.create_task(
                        client.post(
                            f"{replica.url}/reward",
                            json=exec_request(f"{name}0", f"{name}1", cache=False),
                            headers=KEY,
                        )
                    )
                    for replica, name in ((first, "a"), (second, "b"))
                ]
                await asyncio.to_thread(first.service.until, lambda: len(gate.entered) == 4)
                # Each shares one result before the other has that one.
                for replica, source in ((first, "a0"), (second, "b1")):
                    service = replica.service
                    service.call(partial(gate.release, source))
                    [batch] = service.parts.core.running
                    await asyncio.to_thread(service.until, partial(_has_any, batch))
                for replica, source in ((first, "a1"), (second, "b0")):
                    replica.service.call(partial(gate.release, source))
                return [said(answer) for answer in await asyncio.gather(*asked)]

        assert asyncio.run(both()) == [["a0", "a1"], ["b0", "b1"]]


def _has_any(batch: RequestTask[Any]) -> bool:
    return bool(batch.finished(0, 1))


def test_tenants_share_no_answers(redis: RedisServer) -> None:
    judge = Moody()
    with fleet(2, judge=judge, redis_url=redis.url, tokens=TOKENS) as (first, second):
        for replica, name, expected in (
            (first, "a", "p 1"),
            (second, "b", "p 2"),
            (second, "a", "p 1"),
        ):
            answer = post(replica, "p", Authorization=f"Bearer token-{name}")
            assert said(answer) == [expected]


def test_errors_are_not_shared(redis: RedisServer) -> None:
    gate = Gate()
    with (
        grace_period() as grace,
        fleet(2, judge=gate, redis_url=redis.url, grace_seconds=grace.seconds, slots=1) as (
            first,
            second,
        ),
    ):
        service = first.service

        async def drain() -> list[str]:
            async with httpx.AsyncClient(trust_env=False, timeout=WAIT_SECONDS) as client:
                body = exec_request("e", "f", cache=False)
                asked = asyncio.create_task(
                    client.post(f"{first.url}/reward", json=body, headers=KEY)
                )
                await asyncio.to_thread(service.until, lambda: bool(gate.entered))
                service.call(lambda: service.server.handle_exit(signal.SIGTERM, None))
                grace.end()
                return said(await asked)

        assert asyncio.run(drain()) == ["cancelled", "cancelled"]
        second.service.call(gate.open)
        assert said(post(second, "e", "f")) == ["e", "f"]


@pytest.mark.parametrize("how", ["gone", "mute", "full", "locked"])
def test_without_redis_each_goes_on_by_itself(
    how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(redis_client, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(redis_store, "PAUSE_SECONDS", 0.0)
    judge = Moody()
    with redis_server() as redis, fleet(1, judge=judge, redis_url=redis.url) as (replica,):
        post(replica, "first")
        if how == "mute":
            redis.send(signal.SIGSTOP)
        else:
            redis.stop()
        if how in ("full", "locked"):
            arguments = {"full": ("--maxmemory", "1"), "locked": ("--requirepass", "secret-word")}
            redis.start(*arguments[how])
        for number in range(2, 5):
            assert said(post(replica, "x", **{"Idempotency-Key": f"{number}"})) == [f"x {number}"]
        text = replica.client.get("/metrics").text
        assert "proctor_store_up 0.0" in text
        assert "proctor_store_failures_total 0.0" not in text
        away = [each for each in caplog.records if "Redis does not answer" in each.message]
        assert len(away) == 1

        if how == "mute":
            redis.send(signal.SIGCONT)
        else:
            redis.stop()
            redis.start()
        assert said(post(replica, "y", **{"Idempotency-Key": "back"})) == ["y 5"]
        assert "proctor_store_up 1.0" in replica.client.get("/metrics").text


def test_one_question_that_is_overdue_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_client, "ANSWER_SECONDS", 1.0)
    judge = Moody()
    with redis_server() as redis, fleet(2, judge=judge, redis_url=redis.url) as (first, second):
        with Redis.from_url(redis.url) as client:
            client.execute_command("CLIENT", "PAUSE", "1300", "ALL")
        assert said(post(first, "x")) == ["x 1"]
        assert said(post(second, "x")) == ["x 1"]
        for replica in (first, second):
            assert "proctor_store_failures_total 0.0" in replica.client.get("/metrics").text


def test_a_redis_that_was_never_there_keeps_nobody_from_starting() -> None:
    url = "redis://:secret-word@127.0.0.1:1/0"
    with fleet(1, redis_url=url) as (replica,):
        assert post(replica, "x").status_code == 200
        assert replica.client.get("/readyz").status_code == 200
