"""Fixtures of tests with real sandboxes: the one service of each worker, its client, and a judge.

A folder's conftest.py imports those that its tests use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from harness import Service, running_service
from state_judging import GLUED, Ask, Places

from proctor_service.graders import all_graders
from proctor_service.judge.judge import Judge
from proctor_service.sandbox.backends import make_backend
from proctor_service.settings import Settings
from proctor_service.settings.languages import LANGUAGES


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """Run the service of all tests that ask for no settings of their own; it judges in this process."""
    with running_service(Settings(workers=0), judge=None) as running:
        yield running


@pytest.fixture(scope="session")
def client(service: Service) -> Iterator[httpx.Client]:
    with service.client() as opened:
        yield opened


@pytest.fixture(scope="session")
def places() -> Iterator[Places]:
    settings = Settings(slots=2, languages={**LANGUAGES, "glued": GLUED})
    backend = make_backend(settings)
    with asyncio.Runner() as runner:
        runner.run(backend.open())
        try:
            yield Places(runner, backend, Judge(all_graders(settings.languages)))
        finally:
            runner.run(backend.close())


@pytest.fixture
def judge(places: Places) -> Ask:
    return places.judge
