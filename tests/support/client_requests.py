"""The requests that a fake service received, as the client's tests compare these."""

from __future__ import annotations

import json
from typing import Any

import httpx

from proctor_client.testing import FakeProctor


def bodies(proctor: FakeProctor) -> list[Any]:
    """The JSON that came."""
    return [json.loads(each.content) for each in proctor.requests if each.method == "POST"]


def sent(proctor: FakeProctor) -> list[str]:
    """What was asked for, in order."""
    return [f"{each.method} {each.path}" for each in proctor.requests]


def statuses(proctor: FakeProctor) -> list[str]:
    """Of the sandboxes that were made."""
    return [each.status for each in proctor.sandboxes]


class Watching(FakeProctor):
    """Notes how long the client is ready to wait for each answer, and the method and last name of each."""

    def __init__(self) -> None:
        super().__init__()
        self.timeouts: list[dict[str, float]] = []
        self.waits: dict[str, float] = {}

    def _note(self, request: httpx.Request) -> None:
        self.timeouts.append(request.extensions["timeout"])
        name = request.url.path.rpartition("/")[2]
        self.waits[f"{request.method} {name}"] = self.timeouts[-1]["read"]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer as the fake service does."""
        self._note(request)
        return super().handle_request(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer as the fake service does."""
        self._note(request)
        return await super().handle_async_request(request)
