"""Unsloth where there is no GPU: it can be imported, and its trainer trains a model that is not its own.

On a CPU Unsloth leaves TRL's trainers as they are, so they are patched here, as importing it does on
a GPU. It must be imported before trl and transformers.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TORCHDYNAMO_DISABLE"] = "1"
CACHE = tempfile.TemporaryDirectory(prefix="proctor-unsloth-")
os.environ["UNSLOTH_COMPILE_LOCATION"] = CACHE.name
atexit.register(CACHE.cleanup)


def _import_unsloth() -> None:
    import torch

    if torch.cuda.is_available():
        import unsloth

        return
    os.environ["UNSLOTH_ALLOW_CPU"] = "1"
    import unsloth  # noqa: F401
    from unsloth.models.rl import patch_trl_rl_trainers

    patch_trl_rl_trainers()


_import_unsloth()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What the trainer's own packages warn of is theirs to mend."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture
def service() -> Iterator[Any]:
    from service_process import ServiceProcess

    with ServiceProcess() as running:
        yield running


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    from proctor_trainers.trl.tiny import tiny_tokenizer

    return tiny_tokenizer()
