"""What tests of the compatible routes share: judges and backends that fail, and clients' requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from harness import Service

from proctor_service.errors import Failure, SandboxUnavailable
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes


class Failing:
    """A judge that fails so many times, then is content."""

    def __init__(self, times: int, failure: Failure | None = None) -> None:
        self.left = times
        self.asked = 0
        self._failure = failure or SandboxUnavailable("none can be had")

    async def __call__(self, submission: Submission, backend: Sandboxes) -> Judgement:
        """Judges nothing."""
        self.asked += 1
        if self.left > 0:
            self.left -= 1
            raise type(self._failure)(self._failure.message)
        return Judgement("passed", passed=1, total=1)


@contextmanager
def asking(service: Service, path: str, body: Any, **options: Any) -> Iterator[Asked]:
    """Sends a request in a thread of its own, and goes on."""
    with service.client(**options) as client, asyncio.Runner() as runner:
        loop = runner.get_loop()
        future = loop.run_in_executor(None, lambda: client.post(path, json=body))
        yield Asked(loop, future)


class Asked:
    """A request under way."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[httpx.Response]
    ) -> None:
        self._loop = loop
        self._future = future

    def answer(self) -> httpx.Response:
        """Waits for the answer."""
        return self._loop.run_until_complete(self._future)
