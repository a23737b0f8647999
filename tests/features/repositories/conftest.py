"""A backend with real sandboxes, in which a test makes its repository."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from repository_sandboxes import Repositories

from proctor_service.composition import make_backend
from proctor_service.settings import Settings


@pytest.fixture(scope="module")
def repositories() -> Iterator[Repositories]:
    with asyncio.Runner() as runner:
        backend = make_backend(Settings())
        runner.run(backend.start())
        yield Repositories(runner, backend)
        runner.run(backend.close())
