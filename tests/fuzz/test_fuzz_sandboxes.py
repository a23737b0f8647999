"""The same odd requests where real sandboxes run what is in them: still no 500, and no fault of ours.

What is not text, not a path, not a program or far too long must come to a verdict or a refusal. An
item that comes back with `judge_failed` or `sandbox_lost` is a bug, though the request had a 200.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from constants import constants
from fuzz_json import mutated, write
from fuzz_requests import Asked, Route, Sender, check, complaints, strict
from fuzz_routes import routes
from fuzzing import ReplayCounts, cases
from harness import Service, running_service
from hypothesis import given
from hypothesis import strategies as st

from proctor_service.settings import Settings

OF_THE_REQUEST = {"invalid_task", "deadline"}
"""Errors that the request itself asked for."""
PATHS = ("/reward", "/exec", "/grade", "/files/", "/compat/")
ROUTES = {
    f"{route.method} {route.path}": route
    for route in routes("")
    if route.seeds and any(path in route.path for path in PATHS) and "/t/" not in route.path
}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    settings = Settings(wall_seconds=5, cpu_seconds=2)
    with (
        constants(max_wall_seconds=10, max_cpu_seconds=5),
        complaints() as found,
        running_service(settings, judge=None) as running,
    ):
        yield running
    assert not found, found[0]


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[httpx.Client]:
    with service.client() as opened:
        yield opened


def _faults(body: Any) -> list[Any]:
    """The errors in an answer that are ours."""
    if isinstance(body, list):
        return [fault for each in body for fault in _faults(each)]
    if not isinstance(body, dict):
        return []
    error = body.get("error")
    ours = isinstance(error, dict) and error.get("reason", "invalid_task") not in OF_THE_REQUEST
    return ([error] if ours else []) + _faults(list(body.values()))


@pytest.mark.parametrize("name", ROUTES)
def test_an_odd_request_comes_to_a_verdict_or_a_refusal(
    service: Service, client: httpx.Client, tally: ReplayCounts, name: str
) -> None:
    route: Route = ROUTES[name]
    sender = Sender(service)

    @cases(80)
    @given(st.data())
    def send(data: st.DataObject) -> None:
        body = write(data.draw(mutated(route.seeds))).encode()
        asked = Asked(route.method, route.path.encode(), (), body)
        sandbox_id = ""
        if "{id}" in route.path:
            made = client.post("/sandboxes", json={"files": {"solution.py": "x = 1\n"}})
            sandbox_id = made.json()["id"]
        with tally.case(asked):
            answered = sender.send(asked, sandbox_id)
        check(answered, frozenset())
        if answered.status == 200 and answered.body:
            assert not _faults(strict(answered.body)), (asked, answered)
        if sandbox_id:
            client.delete(f"/sandboxes/{sandbox_id}?missing_ok=true")

    try:
        send()
    finally:
        sender.close()
