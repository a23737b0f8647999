"""Replicas that may judge otherwise: no slice crosses, no result is shared, and each is named."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from fleet import Replica, fleet
from harness import Gate, exec_request, passes

from proctor_service.features.replicas import fingerprints
from proctor_service.http.body import FINGERPRINT, FORWARDED
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.rewards import fingerprint
from proctor_service.sandbox.interface import Sandboxes, Traits

COUNT = 40
PYTHON = {"version": "3.11.7"}


def traits(**parts: dict[str, str]) -> Traits:
    return Traits("scripted", judged_with={"interpreter": PYTHON, "packages": {}, **parts})


class Otherwise:
    """A judge that would give all of them 0.0, and notes them."""

    def __init__(self) -> None:
        self.sources: list[str] = []

    async def __call__(self, submission: Submission, backend: Sandboxes) -> Judgement:
        """Fails."""
        self.sources.append(submission.source)
        return Judgement("failed")


def body() -> dict[str, Any]:
    return exec_request(*(f"right {number}" for number in range(COUNT)))


def mismatched(replica: Replica) -> dict[str, str]:
    found: dict[str, str] = replica.client.get("/readyz").json()["mismatched_peers"]
    return found


def seen(replica: Replica) -> dict[str, str]:
    """The same, asked in the loop of the replica."""
    found: dict[str, str] = replica.service.parts.feature("replicas").fingerprints.mismatched()
    return found


def gauge(replica: Replica, url: str) -> float | None:
    registry = replica.service.parts.core.metrics.registry
    return registry.get_sample_value("proctor_mismatched_peers", {"peer": url})


ONE = {"interpreter": PYTHON, "packages": {"numpy": "2.1.0"}}


@pytest.mark.parametrize(
    ("others", "settings", "named"),
    [
        (traits(interpreter={"version": "3.12.1"}, packages={"numpy": "2.1.0"}), {},
         "interpreter version 3.12.1, here 3.11.7"),
        (traits(), {}, "packages numpy none, here 2.1.0"),
        (traits(packages={"numpy": "2.0.0"}), {}, "packages numpy 2.0.0, here 2.1.0"),
        (traits(packages={"numpy": "2.1.0"}, languages={"c": "gcc 13"}), {}, "languages c gcc 13, here none"),
        (traits(packages={"numpy": "2.1.0"}), {"memory_mb": 256}, "limits memory_mb 256, here 512"),
    ],
    ids=["interpreter", "package", "version of a package", "language", "default limits"],
)  # fmt: skip
def test_no_slice_goes_to_a_replica_that_may_judge_otherwise(
    others: Traits, settings: dict[str, Any], named: str, caplog: pytest.LogCaptureFixture
) -> None:
    there = Otherwise()
    mine = Traits("scripted", judged_with=ONE)
    with fleet(
        2, judges=[passes, there], slots=1, traits={0: mine, 1: others}, differing={1: settings}
    ) as (first, peer):
        first.service.until(lambda: bool(seen(first)))
        assert mismatched(first) == {peer.url: named}
        assert gauge(first, peer.url) == 1.0
        for _ in range(3):
            results = first.client.post("/reward", json=body()).json()["results"]
            assert [each["reward"] for each in results] == [1.0] * COUNT
        # Nor does it judge one that comes nevertheless.
        own = first.service.parts.core.machine.fingerprint.digest
        for marks in ({}, {FINGERPRINT: own}):
            refused = peer.client.post("/reward", json=body(), headers={FORWARDED: "1", **marks})
            assert (refused.status_code, refused.json()["error"]["retryable"]) == (422, False)
    assert there.sources == []
    lines = [each for each in caplog.records if named in str(getattr(each, "difference", ""))]
    assert len(lines) == 1, "a line for the change, and none for each look"


def test_a_replica_that_becomes_the_same_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints, "FIRST_PAUSE_SECONDS", 0.01)
    gate = Gate()
    mine = Traits("scripted", judged_with=ONE)
    with fleet(2, judges=[gate, passes], slots=1, traits={0: mine, 1: traits()}) as (first, peer):
        first.service.until(lambda: bool(seen(first)))
        peer.kill()
        peer.traits = mine
        peer.start()
        answers: list[Any] = []
        sender = threading.Thread(
            target=lambda: answers.append(first.client.post("/reward", json=body()).json())
        )
        sender.start()
        registry = first.service.parts.core.metrics.registry
        first.service.until(
            lambda: (
                registry.get_sample_value("proctor_slice_items_total", {"outcome": "judged"})
                == COUNT - 1
            )
        )
        first.service.call(gate.open)
        sender.join()
        assert [each["reward"] for each in answers[0]["results"]] == [1.0] * COUNT
        first.service.until(lambda: gauge(first, peer.url) == 0.0)
        assert mismatched(first) == {}


@dataclass
class Older:
    """A peer of the version before: it has free cores and no fingerprint, and would fail all."""

    url: str = ""
    asked: list[str] = field(default_factory=list)


@contextmanager
def older() -> Iterator[Older]:
    """Such a peer, until the block ends."""
    found = Older()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            found.asked.append(f"{self.command} {self.path}")
            capacity = {"slots": 8, "busy": 0, "queued": 0, "max_queued": 99, "draining": False}
            text = json.dumps(capacity if self.path == "/capacity" else {}).encode()
            self.send_response(404 if self.path == "/fingerprint" else 200)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = _answer

        def log_message(self, format: str, *args: object) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield found
        finally:
            server.shutdown()
            serving.join()


def test_no_slice_goes_to_a_replica_of_the_version_before() -> None:
    with older() as peer, fleet(1, judge=passes, slots=1, peers=[peer.url]) as (first,):
        first.service.until(lambda: bool(seen(first)))
        assert mismatched(first) == {peer.url: "its version has no fingerprint"}
        results = first.client.post("/reward", json=body()).json()["results"]
        assert [each["reward"] for each in results] == [1.0] * COUNT
    assert "POST /reward" not in peer.asked


def test_what_differs_is_said_in_a_few_words() -> None:
    ours = {"interpreter": PYTHON, "packages": {f"p{number}": "1" for number in range(9)}}
    theirs = {"interpreter": {"version": "3.12\n"}, "packages": {}}
    text = fingerprint.differences(theirs, ours)
    assert text.startswith("interpreter version 3.12?, here 3.11.7; packages p0 none, here 1; ")
    assert text.endswith("; and 5 more")
    assert fingerprint.differences(ours, ours) == ""
