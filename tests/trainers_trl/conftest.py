"""What the tests share that train with TRL on a CPU: a real service, and a tiny model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

OTHERS = ("trl", "transformers", "torch", "accelerate", "datasets", "multiprocess", "dill")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What the trainer's own packages warn of is theirs to mend."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning"))
        item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
        for name in OTHERS:
            item.add_marker(pytest.mark.filterwarnings(f"ignore:::{name}"))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """A model this small is slower in several threads, the more so on a busy machine."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def service() -> Iterator[Any]:
    from service_process import ServiceProcess

    with ServiceProcess() as running:
        yield running


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    from proctor_trainers.trl.tiny import tiny_tokenizer

    return tiny_tokenizer()
