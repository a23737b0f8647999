"""A large batch is judged by several replicas: what goes where, and what comes back."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest
from fleet import Replica, fleet
from harness import Gate, exec_request, passes
from opentelemetry.sdk.trace import TracerProvider
from otlp_receiver import otlp_receiver
from pydantic import SecretStr

from proctor_client import Client
from proctor_client.wire import Failure
from proctor_service.errors import InvalidTask, SandboxLost
from proctor_service.features.replicas import spreading
from proctor_service.http.body import FINGERPRINT, FORWARDED
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes, Usage
from proctor_service.scheduling.queue import FairQueue

NDJSON = {"Accept": "application/x-ndjson"}
TOKENS = {"a": "token-a", "b": "token-b"}
COUNT = 40


class Noted:
    """A judge that notes what it judges, and says what a peer must hand back whole."""

    def __init__(self) -> None:
        self.sources: list[str] = []

    async def __call__(self, submission: Submission, backend: Sandboxes) -> Judgement:
        """Passes, but for sources with a word of their own."""
        self.sources.append(submission.source)
        if "broken" in submission.source:
            raise InvalidTask("the tests do not parse")
        verdict = "failed" if "wrong" in submission.source else "passed"
        return Judgement(
            verdict,  # type: ignore[arg-type]
            1,
            2,
            (Failure(index=1, test="a\u2028b", message="line\x85line \ud800"),),
            f"said {submission.source}",
            "out\u2028",
            "err",
            True,
            3,
            "in_process",
            "shared",
            ("early_exit",),
            "clear",
            Usage(0.25, 0.5, 7.0),
            "sb_there",
        )


def settled(replica: Replica, condition: Callable[[], bool]) -> None:
    """Waits until a condition that lasts holds; the replicas share the processor meanwhile."""
    replica.service.until(condition, pause_seconds=0.002)


def sources(count: int = COUNT, word: str = "right") -> list[str]:
    return [f"{word} {number}" for number in range(count)]


def post(replica: Replica, body: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
    answer = replica.client.post("/reward", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def raw_lines(answer: httpx.Response) -> Iterator[bytes]:
    """Lines of an answer, ended by a line feed alone."""
    begun = b""
    for piece in answer.iter_raw():
        *lines, begun = (begun + piece).split(b"\n")
        yield from lines


def marked(replica: Replica) -> dict[str, str]:
    """Headers of a slice of a replica with the same fingerprint."""
    own = replica.service.parts.core.machine.fingerprint.digest
    return {FORWARDED: "1", FINGERPRINT: own}


def metric(replica: Replica, line: str, token: str = "") -> float:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    text = replica.client.get("/metrics", headers=headers).text
    found = re.search(rf"^{re.escape(line)} (\S+)$", text, re.MULTILINE)
    return 0.0 if found is None else float(found[1])


@contextmanager
def asked(replica: Replica, body: dict[str, Any], **headers: str) -> Iterator[Future[Any]]:
    """A request under way while the block runs."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(post, replica, body, **headers)


@pytest.fixture(autouse=True)
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """All replicas share this process: one that has to wait for the processor is not gone."""
    monkeypatch.setattr(spreading, "SILENT_SECONDS", 60.0)


def away(replica: Replica) -> int:
    return replica.service.parts.core.queue.handover.away


# ---------------------------------------------------------------- what goes to peers


def test_peers_judge_what_waits_and_the_results_come_as_they_finish() -> None:
    gate, there = Gate(), Noted()
    body = exec_request(*sources(COUNT - 1), "wrong", scoring="fraction")
    with fleet(3, judges=[gate, there, there], slots=1) as (first, *peers):
        with first.client.stream("POST", "/reward", json=body, headers=NDJSON) as answer:
            lines = raw_lines(answer)
            found = [json.loads(next(lines)) for _ in range(COUNT - 1)]
            assert len(gate.entered) == 1, "its only slot is in use until the end"
            first.service.call(gate.open)
            found += [json.loads(line) for line in lines]
        *results, summary = found
        rewarded = [metric(each, "proctor_slots") and _rewards(each) for each in (first, *peers)]
        assert metric(first, 'proctor_slice_items_total{outcome="judged"}') == COUNT - 1
        assert [away(each) for each in (first, *peers)] == [0, 0, 0]
    assert sorted(each["index"] for each in results) == list(range(COUNT))
    assert summary["summary"]["count"] == COUNT
    assert sorted(there.sources + gate.entered) == sorted([*sources(COUNT - 1), "wrong"])
    assert rewarded[0] == 1
    assert sum(rewarded) == COUNT, "each reward is counted once, where it was judged"
    assert all(rewarded[1:]), "both peers took part"
    [wrong] = [each for each in results if each["verdict"] == "failed"]
    assert wrong["reward"] == 0.5
    assert sum(each["reward"] for each in results) == COUNT - 0.5


def _rewards(replica: Replica) -> int:
    text = replica.client.get("/metrics").text
    return int(
        sum(float(n) for n in re.findall(r"^proctor_rewards_total\{.*\} (\S+)$", text, re.M))
    )


def test_a_result_from_a_peer_is_the_same_as_one_from_here() -> None:
    body = exec_request(*sources(), "wrong", scoring="fraction", cache=False)
    with fleet(1, judge=Noted()) as (alone,):
        expected = [_same(each) for each in post(alone, body)]
    gate = Gate()
    with fleet(2, judges=[gate, Noted()], slots=1) as (first, _), asked(first, body) as answer:
        settled(first, lambda: _judged(first) == COUNT)
        first.service.call(gate.open)
        here = gate.entered[0]
        found = [_same(each) for each in answer.result()]
    for index, each in enumerate(found):
        if body["submissions"][index]["completion"] != here:
            assert each == expected[index]


def _same(result: dict[str, Any]) -> dict[str, Any]:
    del result["evaluation_id"], result["usage"]["queue_seconds"]
    return result


def _judged(replica: Replica) -> int:
    """Items that peers have judged for it."""
    return _items(replica, "judged")


def _items(replica: Replica, outcome: str) -> int:
    registry = replica.service.parts.core.metrics.registry
    found = registry.get_sample_value("proctor_slice_items_total", {"outcome": outcome})
    return int(found or 0)


def test_broken_tests_are_said_by_a_peer_as_well() -> None:
    gate = Gate()
    body = exec_request("held", "broken", *sources(8))
    with fleet(2, judges=[gate, Noted()], slots=1) as (first, _), asked(first, body) as answer:
        settled(first, lambda: _judged(first) == 9)
        first.service.call(gate.open)
        result = answer.result()[1]
    assert result["error"]["reason"] == "invalid_task"
    assert result["error"]["message"] == "the tests do not parse"
    assert result["reward"] is None


def test_identical_submissions_are_judged_once_over_the_fleet() -> None:
    gate, there = Gate(), Noted()
    body = exec_request(*sources(8), *sources(8), *sources(8))
    with fleet(2, judges=[gate, there], slots=1) as (first, _), asked(first, body) as answer:
        settled(first, lambda: _judged(first) == 7)
        first.service.call(gate.open)
        assert [each["reward"] for each in answer.result()] == [1.0] * 24
    assert Counter(there.sources + gate.entered) == Counter(sources(8))


def test_a_key_gives_the_same_answer_without_judging_again() -> None:
    gate, there = Gate(), Noted()
    body, key = exec_request(*sources()), {"Idempotency-Key": "one"}
    with fleet(2, judges=[gate, there], slots=1) as (first, _), asked(first, body, **key) as answer:
        settled(first, lambda: _judged(first) == COUNT - 1)
        first.service.call(gate.open)
        results = answer.result()
        assert post(first, body, **key) == results
    assert len(there.sources + gate.entered) == COUNT


def test_what_a_peer_has_sent_is_never_handed_on() -> None:
    gate, there = Gate(), Noted()
    body = exec_request(*sources())
    with (
        fleet(2, judges=[gate, there], slots=1) as (first, _),
        asked(first, body, **marked(first)) as answer,
    ):
        settled(first, lambda: first.service.parts.core.queue.queued == COUNT - 1)
        assert first.service.parts.core.queue.handover.portable == 0
        first.service.call(gate.open)
        assert len(answer.result()) == COUNT
    assert there.sources == []


def test_a_fleet_that_does_not_spread_judges_alone() -> None:
    there = Noted()
    with fleet(2, judges=[passes, there], slots=1, spread=False) as (first, _):
        assert first.service.parts.feature("replicas").spreader is None
        assert len(post(first, exec_request(*sources()))) == COUNT
    assert there.sources == []


# ---------------------------------------------------------------- peers that fail


def test_without_peers_that_answer_all_is_judged_here() -> None:
    with fleet(3, slots=1) as (first, *peers):
        for peer in peers:
            peer.kill()
        assert [each["reward"] for each in post(first, exec_request("one"))] == [1.0]
        assert [each["reward"] for each in post(first, exec_request(*sources()))] == [1.0] * COUNT


def test_a_peer_that_is_killed_loses_nothing() -> None:
    gate, there = Gate(), Gate()
    body = exec_request(*sources())
    with fleet(2, judges=[gate, there], slots=1) as (first, peer), asked(first, body) as answer:
        settled(first, lambda: away(first) > 0)
        peer.kill()
        settled(first, lambda: away(first) == 0)
        first.service.call(gate.open)
        assert [each["reward"] for each in answer.result()] == [1.0] * COUNT
    assert sorted(gate.entered) == sorted(sources())


def test_a_peer_that_drains_hands_back_what_waits_there(monkeypatch: pytest.MonkeyPatch) -> None:
    # However late the peer is asked, it gets more than its slot takes.
    monkeypatch.setattr(FairQueue, "tickets_per_second", property(lambda queue: 20.0))
    gate, there = Gate(), Gate()
    body = exec_request(*sources())
    with fleet(2, judges=[gate, there], slots=1) as (first, peer), asked(first, body) as answer:
        settled(first, lambda: away(first) > 1 and bool(there.entered))
        draining = peer.service.parts.core.queue.drain()
        asyncio.run_coroutine_threadsafe(draining, peer.service.loop).result()
        settled(first, lambda: away(first) == 1)
        first.service.call(gate.open)
        peer.service.call(there.open)
        assert [each["reward"] for each in answer.result()] == [1.0] * COUNT
    assert sorted(gate.entered + there.entered) == sorted(sources())


@pytest.mark.parametrize(
    "settings",
    [
        {"max_memory_mb": 256},
        {"max_queued": 1, "slots": 1},
        {"tokens": SecretStr(json.dumps({"c": "token-c"}))},
        {"max_body_mb": 1, "languages": {}},
    ],
    ids=["lower limits", "a short queue", "other tokens", "fewer languages"],
)
def test_a_peer_that_refuses_costs_no_reward(settings: dict[str, Any]) -> None:
    there = Noted()
    gate = Gate()
    body = exec_request(*sources(), limits={"memory_mb": 512})
    if "languages" in settings:
        body["submissions"][1]["language"] = "bash"
        settings = {"max_memory_mb": 64}
    tokens = SecretStr(json.dumps(TOKENS))
    with fleet(2, judges=[gate, there], differing={1: settings}, slots=1, tokens=tokens) as (
        first,
        _,
    ):
        headers = {"Authorization": "Bearer token-a"}
        with asked(first, body, **headers) as answer:
            settled(first, lambda: gate.entered != [])
            first.service.call(gate.open)
            assert [each["reward"] for each in answer.result()] == [1.0] * COUNT
    assert len(gate.entered) + len(there.sources) == COUNT


def test_a_peer_without_working_sandboxes_costs_no_reward() -> None:
    async def loses(submission: Submission, backend: Sandboxes) -> Judgement:
        raise SandboxLost("the machine fails")

    gate = Gate()
    body = exec_request(*sources())
    with fleet(2, judges=[gate, loses], slots=1) as (first, _), asked(first, body) as answer:
        settled(first, lambda: _items(first, "returned") > 0)
        first.service.call(gate.open)
        assert [each["reward"] for each in answer.result()] == [1.0] * COUNT


def test_a_replica_that_joins_takes_part_in_a_batch_under_way() -> None:
    gate, there = Gate(), Noted()
    with fleet(2, judges=[gate, there], slots=1) as (first, peer):
        peer.kill()
        with asked(first, exec_request(*sources())) as answer:
            settled(first, lambda: gate.entered != [])
            peer.start()
            settled(first, lambda: _judged(first) == COUNT - 1)
            first.service.call(gate.open)
            assert len(answer.result()) == COUNT


# ---------------------------------------------------------------- callers


def test_the_work_at_peers_ends_with_the_client() -> None:
    gate, there = Gate(), Gate()
    with fleet(2, judges=[gate, there], slots=1) as (first, peer):
        with first.client.stream("POST", "/reward", json=exec_request(*sources()), headers=NDJSON):
            settled(first, lambda: there.entered != [])
        settled(peer, lambda: there.cancelled == there.entered)
        settled(peer, lambda: peer.service.parts.core.queue.queued == 0)
        settled(first, lambda: away(first) == 0 and first.service.parts.core.queue.queued == 0)
        assert metric(first, 'proctor_slices_total{outcome="given_up"}') >= 1


def test_a_deadline_holds_at_peers() -> None:
    gate, there = Gate(), Gate()
    with fleet(2, judges=[gate, there], slots=1) as (first, peer):
        results = post(first, exec_request(*sources(), deadline_seconds=8))
        assert {each["error"]["reason"] for each in results} == {"deadline"}
        assert there.entered != []
        settled(peer, lambda: there.cancelled == there.entered)
        settled(first, lambda: away(first) == 0)


def test_a_tenants_slots_count_over_the_fleet() -> None:
    gate, there = Gate(), Gate()
    tokens = SecretStr(json.dumps(TOKENS))
    settings: dict[str, Any] = {
        "tenant_slots": {"a": 3, "*": 9},
        "tokens": tokens,
        "slots": 2,
    }
    with fleet(2, judges=[gate, there], **settings) as (first, peer):
        queue = first.service.parts.core.queue
        with asked(first, exec_request(*sources()), Authorization="Bearer token-a") as answer:
            settled(first, lambda: len(gate.entered) == 2 and queue.handover.away == 1)
            settled(peer, lambda: len(there.entered) == 1)
            for _ in range(8):  # one comes free at a time, and one takes its turn
                running = there.entered[-1]
                peer.service.call(partial(there.release, running))
                settled(peer, partial(lambda last: there.entered[-1] != last, running))
                assert queue.busy + queue.handover.away <= 3
            first.service.call(gate.open)
            peer.service.call(there.open)
            assert [each["reward"] for each in answer.result()] == [1.0] * COUNT


def test_a_peer_knows_whose_work_it_is() -> None:
    gate, there = Gate(), Noted()
    tokens = SecretStr(json.dumps(TOKENS))
    with fleet(2, judges=[gate, there], tokens=tokens, slots=1, metrics_tenants=["a"]) as (
        first,
        peer,
    ):
        with ThreadPoolExecutor(2) as pool:
            answers = [
                pool.submit(post, first, exec_request(*sources(20, tenant), job=f"of-{tenant}"),
                            Authorization=f"Bearer {token}")
                for tenant, token in TOKENS.items()
            ]  # fmt: skip
            settled(first, lambda: _judged(first) == 39)
            first.service.call(gate.open)
            for answer in answers:
                assert len(answer.result()) == 20
        line = 'proctor_rewards_total{job="of-%s",tenant="%s",verdict="passed"}'
        counts = {
            tenant: metric(peer, line % (tenant, tenant), "token-a")
            + metric(first, line % (tenant, tenant), "token-a")
            for tenant in TOKENS
        }
    assert counts == {"a": 20, "b": 20}
    assert {source.split()[0] for source in there.sources} == {"a", "b"}


def _open_at_the_end(first: Replica, gate: Gate) -> None:
    settled(first, lambda: _judged(first) == COUNT - 1)
    first.service.call(gate.open)


def test_a_trace_leads_to_the_peer() -> None:
    gate, there = Gate(), Noted()
    with (
        otlp_receiver() as collector,
        fleet(2, judges=[gate, there], slots=1, otlp_endpoint=collector.url) as (first, peer),
        Client(first.url) as client,
    ):
        tracer = TracerProvider(shutdown_on_exit=False).get_tracer("a trainer")
        with ThreadPoolExecutor(1) as pool, tracer.start_as_current_span("step") as step:
            opened = pool.submit(_open_at_the_end, first, gate)
            client.reward(sources(), grader={"kind": "exec"}, extract="none")
            opened.result()
        trace_id = f"{step.get_span_context().trace_id:032x}"
        peer.close()
        first.close()
        requests = collector.named("POST /reward")
        assert len(requests) > 1
        assert {span.trace_id for span in requests} == {trace_id}
        evaluations = {span.span_id for span in collector.named("evaluate")}
        own = f"{step.get_span_context().span_id:016x}"
        assert {each.parent_id for each in requests} - {own} <= evaluations


def test_metrics_say_what_waits_and_what_is_away() -> None:
    gate, there = Gate(), Gate()
    with fleet(2, judges=[gate, there], slots=1) as (first, peer):
        with asked(first, exec_request(*sources())) as answer:
            settled(first, lambda: away(first) > 0)
            at_peers = metric(first, "proctor_items_at_peers")
            waiting = metric(first, "proctor_queue_portable")
            assert at_peers >= 1
            assert waiting + at_peers <= COUNT - 1
            assert metric(peer, "proctor_queue_portable") == 0
            first.service.call(gate.open)
            peer.service.call(there.open)
            answer.result()
        assert metric(first, "proctor_queue_portable") == 0


def test_a_stranger_with_the_header_gains_nothing() -> None:
    """The header is no credential: same token, same quota, same cache, own results only."""
    tokens = SecretStr(json.dumps(TOKENS))
    with fleet(2, tokens=tokens, tenant_sandboxes={"*": 0}) as (first, _):
        forged = marked(first)
        refused = first.client.post("/reward", json=exec_request("x"), headers=forged)
        assert refused.status_code == 401
        headers = {**forged, "Authorization": "Bearer token-a"}
        assert post(first, exec_request("x"), **headers)[0]["cache"] == "miss"
        assert post(first, exec_request("x"), **headers)[0]["cache"] == "hit"
        other = {**forged, "Authorization": "Bearer token-b"}
        assert post(first, exec_request("x"), **other)[0]["cache"] == "miss"
        assert first.client.post("/sandboxes", json={}, headers=headers).status_code == 429


def _is_idle(queue: FairQueue) -> bool:
    return not (queue.busy or queue.handover.away)


def test_many_requests_at_once_are_all_answered() -> None:
    with fleet(3, slots=2) as replicas:
        lock, found = threading.Lock(), Counter[float]()

        def send(number: int) -> None:
            replica = replicas[number % 2]
            rewards = [
                each["reward"] for each in post(replica, exec_request(*sources(60, f"r{number}")))
            ]
            with lock:
                found.update(rewards)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(send, range(24)))
        assert found == {1.0: 24 * 60}
        for replica in replicas:
            queue = replica.service.parts.core.queue
            settled(replica, partial(_is_idle, queue))
            assert queue.queued == 0


def test_a_peer_that_stops_answering_does_not_hold_up_a_batch() -> None:
    """A peer that takes connections and says nothing, from the start."""
    gate = Gate()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with fleet(1, judges=[gate], slots=1, peers=[url]) as (first,):
            first.service.call(gate.open)
            assert len(post(first, exec_request(*sources()))) == COUNT
