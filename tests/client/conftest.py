"""Fixtures for tests of both clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from client_blocking import Kind, a_client
from client_loopback import Loopback

from proctor_client.testing import FakeProctor


@pytest.fixture(params=["threads", "loops"])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def proctor() -> FakeProctor:
    """A fake service that passes everything."""
    return FakeProctor()


@pytest.fixture
def client(kind: Kind, proctor: FakeProctor) -> Iterator[Any]:
    """Open a client of the kind, for the fake service."""
    with a_client(kind, proctor) as opened:
        yield opened


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Loopback()
    yield server
    server.stop()
