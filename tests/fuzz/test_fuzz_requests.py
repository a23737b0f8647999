"""Requests to every route that are almost right, or not at all: never a 500, never a hang.

The service is real, its judge and its sandboxes are stand-ins: what is tried here is what stands in
front of them. What the service logs as an error counts as one, however it was answered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from constants import constants
from fuzz_requests import (
    HANG_SECONDS,
    Answered,
    Asked,
    Route,
    Sender,
    check,
    complaints,
    requests,
    streams,
)
from fuzz_routes import routes
from fuzzing import ReplayCounts, cases
from harness import Service, passes, running_service
from hypothesis import given
from hypothesis import strategies as st
from policy_server import Act, calls, policy_server, says
from policy_server import Asked as AskedPolicy
from pydantic import SecretStr
from scripted_sandboxes import FakeBackend

from proctor_service.settings import Settings

NAMES = [f"{route.method} {route.path}" for route in routes("")]
ALWAYS = frozenset({307, 400, 404, 405, 422})
"""What an odd path, method or header may come to, whatever the route documents."""
TOKEN = "fuzz-token-of-many-characters"


def answers_at_once(asked: AskedPolicy) -> Act:
    """A policy that submits in its second turn."""
    return (
        calls(("submit_solution", {"code": "x = 1"})) if asked.turn else says("```python\nx\n```")
    )


@dataclass
class Bench:
    """A service to be fuzzed, and how."""

    service: Service
    client: httpx.Client
    sender: Sender
    complaints: list[str]
    routes: dict[str, Route]
    documented: dict[str, dict[str, frozenset[int]]]
    living: str = ""

    def sandbox_id(self) -> str:
        """A sandbox that lives; those that the fuzzer made are stopped when there are many."""
        if self.service.parts.core.registry.census().get("running", 0) > 20:
            for each in self.client.get("/sandboxes").json()["sandboxes"]:
                self.client.delete(f"/sandboxes/{each['id']}?missing_ok=true")
        found = self.client.get(f"/sandboxes/{self.living or 'none'}")
        if found.status_code != 200 or found.json()["status"] != "running":
            self.living = self.client.post("/sandboxes", json={"tags": ["a"]}).json()["id"]
            self.client.put(f"/sandboxes/{self.living}/files/a/b", content=b"x")
        return self.living

    def statuses(self, route: Route) -> frozenset[int]:
        """What the OpenAPI page says that the route may answer."""
        path = route.path.partition("?")[0].replace("{id}", "{sandbox_id}")
        path = path.replace("/files/a/b", "/files/{path}").replace("/t/token", "")
        return self.documented[path][route.method.lower()]


def documented(page: Any) -> dict[str, dict[str, frozenset[int]]]:
    """The statuses of each path and method of an OpenAPI page."""
    return {
        path: {
            method: frozenset(map(int, operation["responses"]))
            for method, operation in methods.items()
        }
        for path, methods in page["paths"].items()
    }


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    settings = Settings(policy_hosts=["127.0.0.1"], max_queued=64, max_sandboxes=64)
    with (
        constants(policy_attempts=1),
        policy_server(answers_at_once) as policy,
        running_service(settings, judge=passes, backend=FakeBackend()) as service,
        service.client() as client,
        complaints() as found,
    ):
        sender = Sender(service)
        known = dict(zip(NAMES, routes(policy.url), strict=True))
        page = client.get("/openapi.json").json()
        yield Bench(service, client, sender, found, known, documented(page))
        sender.close()


def _held_against(bench: Bench, route: Route, asked: Asked, answered: Answered) -> None:
    known = bench.statuses(route)
    check(answered, known | {500})
    # An id may be that of a replica that is gone: then, and only then, a 500 is an answer.
    assert answered.status != 500 or b'"sandbox_lost"' in answered.body, answered
    path = route.path.partition("?")[0].encode()
    if (asked.method, asked.target.partition(b"?")[0]) == (route.method, path):
        assert answered.status in known | ALWAYS, (answered, sorted(known))
    assert not bench.complaints, bench.complaints.pop()


@pytest.mark.parametrize("name", NAMES)
def test_an_odd_request_gets_an_answer_of_the_contract(
    bench: Bench, tally: ReplayCounts, name: str
) -> None:
    route = bench.routes[name]

    @cases(450 if route.seeds else 80)
    @given(requests(route))
    def send(asked: Asked) -> None:
        living = bench.sandbox_id() if route.path.startswith("/sandboxes") else "sb_x"
        with tally.case(asked):
            answered = bench.sender.send(asked, living)
        _held_against(bench, route, asked, answered)

    _closing(bench, send)


def test_bytes_that_are_hardly_http_get_a_400_or_nothing(bench: Bench, tally: ReplayCounts) -> None:
    @cases(1200)
    @given(streams())
    def throw(data: bytes) -> None:
        with tally.case(data):
            answered = bench.sender.throw(data)
        check(answered, frozenset())
        assert not bench.complaints, bench.complaints.pop()

    _closing(bench, throw)


def test_nothing_but_the_token_opens_a_route(tally: ReplayCounts) -> None:
    settings = Settings(tokens=SecretStr(json.dumps({"a": TOKEN})))
    with running_service(settings, judge=passes, backend=FakeBackend()) as service:
        sender = Sender(service)
        closed = [route for route in routes("") if route.path not in ("/healthz", "/readyz")]

        @cases(800)
        @given(st.sampled_from(closed).flatmap(requests))
        def knock(asked: Asked) -> None:
            with tally.case(asked):
                answered = sender.send(asked, "sb_x")
            check(answered, frozenset())
            odd = asked.target.partition(b"?")[0] in (b"/healthz", b"/readyz")
            assert answered.status in (400, 401) or odd, (asked, answered)

        try:
            knock()
        finally:
            sender.close()


def test_afterwards_nothing_is_left_and_the_service_is_well(bench: Bench) -> None:
    parts = bench.service.parts
    bench.sender.close()
    bench.service.until(
        lambda: not (parts.core.queue.busy or parts.core.running or parts.core.running)
    )
    answer = bench.client.post(
        "/reward", json={"submissions": [{"completion": "x = 1"}], "grader": {"kind": "exec"}},
        timeout=HANG_SECONDS,
    )  # fmt: skip
    assert answer.json()["summary"]["passed"] == 1
    assert bench.client.get("/readyz").status_code == 200


def _closing(bench: Bench, fuzz: Callable[[], None]) -> None:
    try:
        fuzz()
    finally:
        bench.sender.close()  # what is left of an answer is not the next one's
        bench.complaints.clear()
