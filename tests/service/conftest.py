"""Fixtures that several files of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from command_line import no_settings
from event_loop import pytest_pyfunc_call
from harness import Service, running_service
from journal_store import Under, opened
from sandbox_server import ServerUnderTest, serving
from values_runtime import Pairs

__all__ = ["no_settings", "pytest_pyfunc_call"]


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
    with serving(max_file_mb=1, max_wall_seconds=100) as hotel:
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


@pytest.fixture
def under(tmp_path: Path) -> Iterator[Under]:
    """Open a journal, the folder of which is not there yet."""
    with opened(tmp_path / "journal" / "journal.db") as found:
        yield found


@pytest.fixture(scope="module")
def pairs() -> Iterator[Pairs]:
    both = Pairs()
    yield both
    both.close()
