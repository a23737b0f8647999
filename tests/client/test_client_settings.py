"""What a client is made from: the constructor's arguments and the environment."""

from __future__ import annotations

from typing import Any

import pytest

from proctor_client import Client, NotFoundError
from proctor_client.testing import FakeProctor


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 0},
        {"retry_budget_seconds": -1.0},
        {"timeout_seconds": 0.0},
        {"connect_timeout_seconds": -1.0},
    ],
)
def test_settings_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Client("http://proctor.test", **options)


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROCTOR_URL", raising=False)
    monkeypatch.delenv("PROCTOR_TOKEN", raising=False)
    proctor = FakeProctor()
    with Client.from_env(transport=proctor) as client:
        client.health()
    monkeypatch.setenv("PROCTOR_URL", "http://judge.test:81/base/")
    monkeypatch.setenv("PROCTOR_TOKEN", "let-me-in\n")
    with Client.from_env(transport=proctor, clock=proctor.clock, max_attempts=1) as client:
        with pytest.raises(NotFoundError, match="no GET /base/capacity"):
            client.capacity()
        assert repr(client) == "Client('http://judge.test:81/base/', token=set)"
    first, second = proctor.requests
    assert first.headers["host"] == "127.0.0.1:8080"
    assert "authorization" not in first.headers
    assert second.path == "/base/capacity"
    assert second.headers["authorization"] == "Bearer let-me-in"
