"""What the tests share that train with ART on a CPU: a real service, and a working directory."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["WANDB_MODE"] = "offline"

from service_process import ServiceProcess

VARIABLES = (
    *("PROCTOR_URL", "PROCTOR_TOKEN", "OPENAI_API_KEY", "OPENAI_BASE_URL", "VLLM_API_KEY"),
    *("TINKER_API_KEY", "ART_TINKER_API_KEY", "WANDB_API_KEY", "WANDB_RUN_ID", "SLURM_JOB_ID"),
)
OTHERS = (
    "art",
    "litellm",
    "weave",
    "openai",
    "wandb",
    "polars",
    "datasets",
    "multiprocess",
    "dill",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What the trainer's own packages warn of is theirs to mend."""
    for item in items:
        for name in OTHERS:
            item.add_marker(pytest.mark.filterwarnings(f"ignore:::{name}"))


@pytest.fixture
def service() -> Iterator[ServiceProcess]:
    with ServiceProcess(PROCTOR_GRACE_SECONDS="1") as running:
        yield running


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ART writes into the working directory; it and the script read variables."""
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def nowhere() -> str:
    """A URL where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"
