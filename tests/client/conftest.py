"""Fixtures for tests of both clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from client_blocking import Kind
from client_loopback import Loopback


@pytest.fixture(params=["threads", "loops"])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Loopback()
    yield server
    server.stop()
