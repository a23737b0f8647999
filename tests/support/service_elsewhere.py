"""Stands in for `harness` where tests of one version meet a service of another: a plugin for pytest.

The service is a process of its own, as its packages have the same names as those of the tests. Its
`PYTHONPATH` is in OTHER_SERVICE, what the tests ask of its inside is asked over HTTP.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from service_process import ServiceProcess
from waits import WAIT_SECONDS

import proctor_client

_PAUSE_SECONDS = 0.05

sys.modules["harness"] = sys.modules[__name__]


def pytest_report_header() -> str:
    """Names the client under test."""
    return f"client: {Path(proctor_client.__file__).parent}"


class NoBackend:
    """What scripted backends derive from, which tests of a service elsewhere do not use."""


class Service:
    """A service in another process."""

    def __init__(self, process: ServiceProcess) -> None:
        self.url = process.url
        self.rooms = self.parts = self.core = self.registry = self  # its parts, then and now

    def client(self, **options: Any) -> httpx.Client:
        """A client for it; close it."""
        return httpx.Client(base_url=self.url, timeout=4 * WAIT_SECONDS, trust_env=False, **options)

    def census(self) -> dict[str, int]:
        """The number of stateful sandboxes that run."""
        with self.client() as client:
            answer = client.get("/sandboxes", params={"status": "running"}).raise_for_status()
            return {"running": len(answer.json()["sandboxes"])}

    def call(self, function: Callable[[], Any]) -> Any:
        """Calls a function, which asks over HTTP."""
        return function()

    def until(self, condition: Callable[[], bool]) -> None:
        """Waits until the condition holds; another process has no event for us."""
        pause = threading.Event()
        for _ in range(int(WAIT_SECONDS / _PAUSE_SECONDS)):
            if condition():
                return
            pause.wait(_PAUSE_SECONDS)
        raise AssertionError("it does not come about")


@contextmanager
def running_service(settings: Any = None, *, judge: None = None) -> Iterator[Service]:
    """Runs one until the block ends, with the settings that differ from the defaults."""
    given = {} if settings is None else settings.model_dump(mode="json", exclude_unset=True)
    variables = {f"PROCTOR_{name.upper()}": str(value) for name, value in given.items()}
    with ServiceProcess(PYTHONPATH=os.environ["OTHER_SERVICE"], **variables) as process:
        yield Service(process)
