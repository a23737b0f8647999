"""Environments at Aviato: an image and a pool for each, against the stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from aviato_environments import service_with_environments
from constants import constants
from harness import Service, running_service

from aviato_gateway.stand_in import StandIn, stand_in
from core.e2e.test_corpora import judge
from proctor_service.errors import StartError
from proctor_service.features.aviato.backend import AviatoBackend
from proctor_service.features.environments.loading import load_environments
from proctor_service.settings import Settings

DEFINED = """
[environments.science]
image = "docker://registry.example/science:1"
env = {GREETING = "hello"}

[environments.plain]
image = "registry.example/plain@sha256:0123"
limits = {memory_mb = 1000}

[environments.broken]
image = "registry.example/broken:1"
"""
SCIENCE, PLAIN = "registry.example/science:1", "registry.example/plain@sha256:0123"
BROKEN = "registry.example/broken:1"
GRADER = {"kind": "asserts", "tests": ["assert f() == 'hello'"]}
GREETS = "import os\ndef f():\n    return os.environ.get('GREETING')  # "
FANTASY = {"source": "a.fantasy", "run": ["sh", "a.fantasy"], "needs": ["fantasy-interpreter"]}


@pytest.fixture(scope="module")
def gateway() -> Iterator[StandIn]:
    with stand_in() as running:
        running.order("broken_image", BROKEN)
        yield running


@pytest.fixture(scope="module")
def service(gateway: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with (
        constants(environment_idle_seconds=0.5),
        service_with_environments(
            gateway,
            tmp_path_factory.mktemp("environments"),
            DEFINED,
            languages={"fantasy": FANTASY},
            max_sandboxes=20,
            max_stateful_sandboxes=2,
        ) as service,
    ):
        yield service
    assert gateway.alive() == []


def backend_of(service: Service) -> AviatoBackend:
    backend = service.parts.core.machine.backend
    assert isinstance(backend, AviatoBackend)
    return backend


def image_of(gateway: StandIn, result: dict[str, Any]) -> str:
    """The image of the sandbox that judged."""
    images: dict[str, str] = gateway.order("images")
    return images[result["sandbox_id"].removeprefix("sb_")]


def item(environment: str, number: int = 0) -> dict[str, Any]:
    return {
        "completion": f"{GREETS}{number}",
        "grader": GRADER,
        "environment": environment,
    }


def test_each_submission_of_a_batch_is_judged_in_its_image(
    gateway: StandIn, service: Service
) -> None:
    names = ("science", "plain", "default", "broken") * 2
    results = judge(service, [item(name, number) for number, name in enumerate(names)])
    assert [result["environment"] for result in results] == list(names)
    by_name = {name: [r for r in results if r["environment"] == name] for name in names}
    assert [r["reward"] for r in by_name["science"]] == [1.0, 1.0]
    assert [r["reward"] for r in by_name["plain"] + by_name["default"]] == [0.0] * 4
    for name, image in (("science", SCIENCE), ("plain", PLAIN), ("default", "python:3.11")):
        assert {image_of(gateway, r) for r in by_name[name]} == {image}
    for result in by_name["broken"]:
        assert (result["reward"], result["verdict"]) == (None, None)
        assert result["error"]["reason"] == "sandbox_unavailable"
        assert BROKEN in result["error"]["message"]
    with service.client() as client:
        assert client.get("/readyz").status_code == 200
    memory = {box["image"]: box["memory"] for box in gateway.order("census")["alive"]}
    assert memory.get(PLAIN, "1280Mi") == "1280Mi"


def test_the_pool_of_an_idle_environment_ends(gateway: StandIn, service: Service) -> None:
    backend = backend_of(service)
    [result] = judge(service, [item("science", 100)])
    assert result["reward"] == 1.0
    service.until(lambda: backend.environments() == ("default",))
    service.until(lambda: backend.census()["ready"] == 2)
    service.until(lambda: not backend.census()["stopping"])
    alive = gateway.order("census")["alive"]
    assert {box["image"] for box in alive} == {"python:3.11"}
    [result] = judge(service, [item("science", 101)])
    assert result["reward"] == 1.0


def test_a_language_that_an_image_lacks_is_an_error(service: Service) -> None:
    submission = {
        "completion": "```\nexit 0\n```",
        "language": "fantasy",
        "grader": {"kind": "exec"},
    }
    body: dict[str, Any] = {"submissions": [submission]}
    with service.client() as client:
        assert client.post("/reward", json=body).status_code == 422
        within = {**body, "environment": "plain"}
        [result] = client.post("/reward", json=within).json()["results"]
        listed = client.get("/environments").json()["environments"]
    assert (result["reward"], result["error"]["reason"]) == (None, "judge_failed")
    assert "fantasy" in result["error"]["message"]
    assert {each["name"]: "fantasy" in each["languages"] for each in listed} == {
        "default": False, "science": True, "plain": True, "broken": True,
    }  # fmt: skip


def test_a_first_use_by_pytest_and_a_sandbox(service: Service) -> None:
    tests = {"test_it.py": "from solution import f\ndef test_it(): assert f() == 'hello'"}
    grader = {"kind": "pytest", "files": tests}
    service.until(lambda: backend_of(service).environments() == ("default",))
    [result] = judge(service, [{**item("science", 200), "grader": grader}])
    assert (result["verdict"], result["reward"]) == ("passed", 1.0)
    with service.client() as client:
        made = client.post("/sandboxes", json={"environment": "science"}).json()
        place = f"/sandboxes/{made['id']}"
        ran = client.post(f"{place}/exec", json={"command": ["sh", "-c", "echo $GREETING"]}).json()
        client.delete(place)
    assert ran["stdout"] == "hello\n"


def test_sandboxes_of_all_environments_count_together(gateway: StandIn, tmp_path: Path) -> None:
    """A full quota: ready sandboxes of one environment make place for another."""
    file = tmp_path / "environments.toml"
    file.write_text(DEFINED)
    settings = gateway.settings(
        aviato_instance="few", pool_size=3, slots=1, max_sandboxes=3, workers=0, environments=file,
        max_stateful_sandboxes=1,
    )  # fmt: skip
    with running_service(settings, judge=None) as service:
        results = judge(
            service, [item(n, i) for i, n in enumerate(("science", "plain", "default"))]
        )
        assert [result["reward"] for result in results] == [1.0, 0.0, 0.0]
        assert sum(backend_of(service).census().values()) <= 3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "requirements = ['numpy']",
            "environments.a: an environment at Aviato is an image .* requirements",
        ),
        ("env = {A = '1'}", "environments.a: .* no image"),
        ("image = 'oci:/srv/images/a'", "environments.a.image: .* registry, and oci:/srv"),
        ("image = 'docker-archive:/srv/a.tar'", "docker-archive:/srv/a.tar is a file"),
    ],
)
def test_what_cannot_be_at_aviato_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "environments.toml"
    file.write_text(f"[environments.a]\n{text}\n")
    with pytest.raises(StartError, match=why):
        load_environments(Settings(backend="aviato", environments=file), ExitStack())
