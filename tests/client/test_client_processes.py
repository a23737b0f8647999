"""One client in many processes: each reward is the one that was asked for, however they began."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from client_processes import SCENARIOS
from harness import Service, running_service
from waits import WAIT_SECONDS

from proctor_service.settings import Settings

SCRIPT = Path(__file__).parents[1] / "support" / "client_processes.py"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running_service(Settings(), judge=None) as running:
        yield running


def wrong(service: Service, scenario: str) -> list[str]:
    """What went wrong in a scenario."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), service.url, scenario],
        env={**os.environ, "NO_PROXY": "127.0.0.1"},
        stdout=subprocess.PIPE,
        timeout=WAIT_SECONDS,
        check=True,
    )
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_fork_has_connections_locks_and_sandboxes_of_its_own(
    service: Service, scenario: str
) -> None:
    assert wrong(service, scenario) == []


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver", "loader", "ray"])
def test_clients_and_reward_functions_go_along_to_workers(service: Service, method: str) -> None:
    assert wrong(service, method) == []
