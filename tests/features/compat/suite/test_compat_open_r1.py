"""open-r1's router over scripted sandboxes: null for what is ours, and only for that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from grace import grace_period
from harness import Service, running_service
from requests_under_way import asking
from scripted_sandboxes import FakeBackend

from proctor_service.errors import SandboxUnavailable
from proctor_service.features.compat.open_r1 import ExecuteBatch, unindented, wait_seconds
from proctor_service.sandbox.interface import Traits
from proctor_service.settings import Settings

BODY: dict[str, Any] = {
    "scripts": ["1.0", "0.5"],
    "languages": ["python", "python"],
    "timeout": 30,
    "request_timeout": 28,
}
PATH = "/compat/execute_batch"


@pytest.fixture
def inn() -> FakeBackend:
    return FakeBackend(Traits("scripted", languages=("python", "bash")))


@pytest.fixture
def service(inn: FakeBackend) -> Iterator[Service]:
    with running_service(Settings(slots=2), backend=inn) as running:
        yield running


def test_a_failure_of_ours_is_null_and_the_others_stand(
    client: httpx.Client, inn: FakeBackend
) -> None:
    inn.refusals = [SandboxUnavailable("none can be had") for _ in range(1000)]
    answer = client.post(PATH, json=BODY)
    assert answer.status_code == 200
    for each in answer.json():
        assert each["execution"] is None
        assert each["text"] == "nan"  # null would make 0.0 of Morph's whole batch
        assert each["exception_str"] == "sandbox_unavailable: none can be had"


def test_a_service_that_stops_gives_null(inn: FakeBackend) -> None:
    with (
        grace_period() as grace,
        running_service(Settings(slots=1, grace_seconds=grace.seconds), backend=inn) as service,
    ):
        service.call(inn.door.clear)
        with asking(service, PATH, BODY) as asked:
            service.until(lambda: inn.coming == 1)
            service.drain()
            with service.client() as client:
                late = client.post(PATH, json=BODY | {"timeout": 29})
            grace.end()
            answer = asked.result()
    for each in (late, answer):
        assert each.status_code == 200
        assert [script["execution"] for script in each.json()] == [None, None]


def test_what_takes_too_long_is_null(inn: FakeBackend) -> None:
    with running_service(Settings(slots=1), backend=inn) as service, service.client() as client:
        service.call(inn.door.clear)
        answer = client.post(f"{PATH}?hold_seconds=0.2", json=BODY)
        service.call(inn.door.set)
    assert answer.status_code == 200
    assert [script["execution"] for script in answer.json()] == [None, None]
    assert "not done" in answer.json()[0]["exception_str"]


@pytest.mark.parametrize(
    ("timeout", "request_timeout", "waits"),
    [(90, 96, 95.0), (1, 1.5, 0.75), (30, 28, 900.0), (300, 60, 900.0), (30, None, 900.0)],
)
def test_only_morphs_client_waits_for_its_request_timeout(
    timeout: float, request_timeout: float | None, waits: float
) -> None:
    asked = {"scripts": ["1"], "timeout": timeout, "request_timeout": request_timeout}
    assert wait_seconds(ExecuteBatch.model_validate(asked)) == waits


def test_what_says_nothing_that_can_be_understood_has_the_value_0(client: httpx.Client) -> None:
    [first, _] = client.post(PATH, json=BODY).json()
    assert first["exception_str"] is None
    assert first["execution"]["error"]["name"] == "SystemExit"
    assert first["execution"]["results"] == [{"text": "0.0", "is_main_result": True}]


def test_a_language_that_is_not_here_is_named(client: httpx.Client) -> None:
    answer = client.post(PATH, json=BODY | {"languages": ["r", "r"]}).json()
    assert [each["execution"] for each in answer] == [None, None]
    assert "no 'r' here, only: python, bash" in answer[0]["exception_str"]


def test_as_many_languages_as_scripts(client: httpx.Client) -> None:
    answer = client.post(PATH, json=BODY | {"languages": ["python"]})
    assert answer.status_code == 422
    assert client.post(PATH, json={"scripts": []}).json() == []


def test_health(client: httpx.Client) -> None:
    assert client.get("/compat/health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("script", "plain"),
    [
        ("    a = 1\n    a\n", "a = 1\na\n"),
        ("\n    if 1:\n        x\n    ", "\nif 1:\n    x\n"),
        ('    s = """\nkept\n"""\n    s', 's = """\nkept\n"""\ns'),
        ("a\n    b", "a\n    b"),
        ("", ""),
    ],
)
def test_a_script_is_taken_as_a_notebook_takes_it(script: str, plain: str) -> None:
    assert unindented(script) == plain
