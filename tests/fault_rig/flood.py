"""A job that floods the service, and another that sends ten submissions at a time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx

FLOOD, AT_A_TIME, ROUNDS = 5000, 10, 40


def body(job: str, programs: Iterable[str]) -> dict[str, object]:
    """A request for rewards."""
    return {
        "submissions": [{"completion": each} for each in programs],
        "grader": {"kind": "exec"},
        "cache": False,
        "job": job,
    }


def small_request(http: httpx.Client) -> dict[str, Any]:
    """Ten submissions in a job of their own; the summary of their results."""
    asked = body("small", [f"total = sum(range(50_000))  # {n}" for n in range(AT_A_TIME)])
    summary: dict[str, Any] = http.post("/reward", json=asked).json()["summary"]
    return summary


def p95_seconds(http: httpx.Client) -> float:
    """Of small requests, one after the other."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.monotonic()
        assert small_request(http)["passed"] == AT_A_TIME
        seconds.append(time.monotonic() - start)
    return sorted(seconds)[int(0.95 * len(seconds))]


@contextmanager
def flood(http: httpx.Client) -> Iterator[None]:
    """As much as there is to do for a while, by another job of the same tenant."""
    with ExitStack() as stack:
        for half in range(2):
            programs = (f"total = sum(range(50_000))  # {half} {n}" for n in range(FLOOD // 2))
            lines = {"Accept": "application/x-ndjson"}
            asked = http.stream("POST", "/reward", json=body("flood", programs), headers=lines)
            stack.enter_context(asked)
        assert http.get("/capacity").json()["queued"] > FLOOD - 500
        yield
        assert http.get("/capacity").json()["queued"] > 0, "the flood was over too early"
