"""Options of an environment's sandboxes at Aviato, and credentials of W&B, with the stand-in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from aviato_environments import service_with_environments
from harness import Service, running_service

from aviato_gateway.stand_in import StandIn, stand_in
from core.e2e.test_corpora import judge
from proctor_service.errors import StartError

DEFINED = """
[environments.rich]
image = "registry.example/rich:1"
limits = {memory_mb = 1000}

[environments.rich.aviato]
cpu = "1500m"
gpu = {count = 2, type = "A100"}
runtime_class = "gvisor"
secrets = [
    {store = "wandb", name = "HF_TOKEN"},
    {store = "vault", name = "db", field = "password", variable = "DB_PASS"},
]
mounts = [{volume = "vol-1", path = "/data", sub_path = "sets"}, {volume = "vol-2", path = "/models"}]
egress = ["data.example.com", "*.data.example.com"]
pull = {registry = "registry.example", store = "wandb", name = "REGISTRY"}

[environments.poor]
image = "registry.example/poor:1"

[environments.unset]
image = "registry.example/unset:1"
aviato = {secrets = [{store = "wandb", name = "NOT_THERE"}]}
"""
RICH, POOR = "registry.example/rich:1", "registry.example/poor:1"
SECRET = "a 'quoted' $HOME \" secret\nof two lines"
READS = "import os\ndef f():\n    return [os.environ.get(n) for n in ('HF_TOKEN', 'DB_PASS')]"


def grader(expected: list[str | None]) -> dict[str, Any]:
    return {"kind": "asserts", "tests": [f"assert f() == {expected!r}"]}


@pytest.fixture(scope="module")
def gateway() -> Iterator[StandIn]:
    with stand_in() as running:
        running.order("secrets", {"wandb/HF_TOKEN": SECRET, "vault/db": "p"})
        yield running


@pytest.fixture(scope="module")
def service(gateway: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_with_environments(
        gateway,
        tmp_path_factory.mktemp("environments"),
        DEFINED,
        aviato_options={"cpu": "2", "runtime_class": "kata", "egress": ["files.example.com"]},
    ) as service:
        yield service
    assert gateway.alive() == []


def boxes(gateway: StandIn, image: str) -> list[dict[str, Any]]:
    return [box for box in gateway.order("census")["alive"] if box["image"] == image]


def test_a_sandbox_is_what_its_environment_says(gateway: StandIn, service: Service) -> None:
    items = [
        {"completion": READS, "grader": grader([SECRET, "p"]), "environment": "rich"},
        {"completion": READS, "grader": grader([None, None]), "environment": "poor"},
        {"completion": READS, "grader": grader([None, None])},
    ]
    assert [result["reward"] for result in judge(service, items)] == [1.0] * 3
    rich = boxes(gateway, RICH)
    assert rich
    for box in rich:
        assert (box["cpu"], box["memory"], box["gpu"]) == ("1500m", "1280Mi", [2, "A100", 0])
        assert box["runtime_class"] == "gvisor"
        assert box["secrets"] == {
            "HF_TOKEN": ["wandb", "HF_TOKEN", ""],
            "DB_PASS": ["vault", "db", "password"],
        }
        assert box["volumes"] == {"mount-0": "vol-1", "mount-1": "vol-2"}
        assert box["mounts"] == {
            "/data": ["mount-0", "sets", True],
            "/models": ["mount-1", "", True],
        }
        assert box["pull"] == ["registry.example", "wandb", "REGISTRY"]
        assert (box["deny_egress"], box["egress_names"]) == (True, [])
    for image, cpu, runtime_class in ((POOR, "2", ""), ("python:3.11", "2", "kata")):
        for box in boxes(gateway, image):
            assert (box["cpu"], box["runtime_class"]) == (cpu, runtime_class)
            assert not any(box[name] for name in ("secrets", "mounts", "volumes"))
            assert (box["gpu"], box["pull"]) == ([0, "", 0], ["", "", ""])


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ("rich", ["data.example.com", "*.data.example.com"]),
        ("default", ["files.example.com"]),
        ("poor", []),
    ],
)
def test_the_network_is_that_of_named_hosts(
    gateway: StandIn, service: Service, environment: str, names: list[str]
) -> None:
    body = {"environment": environment, "limits": {"network": True}}
    with service.client() as client:
        made = client.post("/sandboxes", json=body)
        assert made.status_code in (200, 201), made.text
        wide = [box for box in gateway.order("census")["alive"] if not box["deny_egress"]]
        client.delete(f"/sandboxes/{made.json()['id']}")
    assert [box["egress_names"] for box in wide] == [names]
    assert [box["open_egress"] for box in wide] == [not names]


def test_a_secret_that_is_not_there_is_an_error_that_names_it(service: Service) -> None:
    item = {"completion": READS, "grader": grader([None, None]), "environment": "unset"}
    [result] = judge(service, [item])
    assert (result["reward"], result["error"]["reason"]) == (None, "sandbox_unavailable")
    assert "NOT_THERE" in result["error"]["message"]


def test_credentials_of_wandb(gateway: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package the start ends with its name; with it the stand-in knows the key."""
    settings = gateway.settings(aviato_instance="wandb", aviato_auth="wandb", aviato_api_key="")
    if "wandb" not in sys.modules:
        monkeypatch.setitem(sys.modules, "wandb", None)
        with (
            pytest.raises(StartError, match=r"aviato-wandb"),
            running_service(settings, judge=None),
        ):
            pass
