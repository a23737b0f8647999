"""Services with a judge that goes by a script, and their clients: fixtures of core/ and features/."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from command_line import no_settings
from constants import constants
from harness import Service, running_service
from sandbox_server import ServerUnderTest, serving

__all__ = ["no_settings"]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """Run a service with the default settings and a judge that passes everything."""
    with running_service() as running:
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    """Open a client of the module's service, whichever that is."""
    with service.client() as opened:
        yield opened


@pytest.fixture(scope="module")
def shared_server() -> Iterator[ServerUnderTest]:
    small = {"file_bytes": 1 << 20}
    with constants(bounds=small, max_wall_seconds=100), serving() as hotel:
        yield hotel


@pytest.fixture
def hotel(shared_server: ServerUnderTest) -> Iterator[ServerUnderTest]:
    shared_server.judge.submissions.clear()
    shared_server.judge.failure = None
    yield shared_server
    for each in shared_server.client.get("/sandboxes").json()["sandboxes"]:
        shared_server.client.delete(f"/sandboxes/{each['id']}?missing_ok=true")


@pytest.fixture
def sandbox(hotel: ServerUnderTest) -> str:
    found: str = hotel.create()["id"]
    return found
