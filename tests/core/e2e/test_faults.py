"""What a fault does to rewards: nothing. And what stays on the machine: nothing."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Service, running_service
from waits import WAIT_SECONDS

from proctor_service.sandbox.linux import procfs
from proctor_service.sandbox.local import LocalBackend
from proctor_service.settings import Settings

GRADER = {"kind": "asserts", "tests": ["assert f(2) == 4", "assert f(3) == 9"]}
SQUARE = "def f(x):\n    return x * x  # "
SLOW_SQUARE = "import time\ntime.sleep(0.05)\n" + SQUARE
WRONG = "def f(x):\n    return x  # "


def submissions(source: str, count: int) -> list[dict[str, Any]]:
    return [{"completion": f"{source}{index}", "grader": GRADER} for index in range(count)]


def judge(service: Service, items: list[dict[str, Any]], **fields: Any) -> list[dict[str, Any]]:
    with service.client() as client:
        body = {"submissions": items, "extract": "none", "cache": False, **fields}
        answer = client.post("/reward", json=body)
        assert answer.status_code == 200, answer.text
        results: list[dict[str, Any]] = answer.json()["results"]
        return results


def services_cgroups() -> frozenset[str]:
    """Return the paths of the cgroups of this process's services."""
    return frozenset(
        f"{parent}/{name}"
        for parent, directories, _ in os.walk("/sys/fs/cgroup")  # ignores those that vanish
        for name in directories
        if name.startswith(f"proctor-{os.getpid()}-")
    )


@pytest.fixture(scope="module")
def others() -> frozenset[str]:
    """Return the cgroups of services that run beside the one under test."""
    return services_cgroups()


@pytest.fixture(scope="module")
def service(others: frozenset[str]) -> Iterator[Service]:
    """Run a service of which sandboxes, processes and cgroups are counted."""
    with running_service(Settings(workers=0), judge=None) as running:
        yield running


def holdings(others: frozenset[str]) -> dict[str, int]:
    """What this process holds of what a sandbox is made of, without the cgroups of other services."""
    cgroups = {
        name
        for group in services_cgroups() - others
        for _, directories, _ in os.walk(group)
        for name in directories
        if name.startswith("slot-")
    }
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "processes": len(procfs.tree(os.getpid())),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "cgroups": len(cgroups),
    }


def idle_holdings(backend: LocalBackend, slots: int, others: frozenset[str]) -> dict[str, int]:
    """The holdings once the pool has just its slots: those for a load peak close some time later."""
    gc.collect()
    deadline = _Patience()
    while backend.census() != {"ready": slots} or holdings(others)["cgroups"] > slots:
        deadline.spend(f"not idle: {backend.census()}, {holdings(others)}")
    return holdings(others)


def test_rewards_in_a_row_leave_nothing(service: Service, others: frozenset[str]) -> None:
    backend = service.parts.core.machine.backend
    assert isinstance(backend, LocalBackend)
    judge(service, submissions(SQUARE, 1))  # starts the slots of its hash seed
    slots = sum(backend.census().values())
    judge(service, submissions(SQUARE, 200))
    before = idle_holdings(backend, slots, others)
    for _ in range(5):
        results = judge(service, submissions(SQUARE, 200))
        assert all(result["reward"] == 1.0 for result in results)
    after = idle_holdings(backend, slots, others)
    assert after["descriptors"] <= before["descriptors"] + 2  # a connection that is kept alive
    assert after["mounts"] == before["mounts"]
    assert after["cgroups"] == before["cgroups"]
    assert after["processes"] <= before["processes"] + 2


def test_a_killed_forkserver_is_replaced_and_no_reward_is_wrong(service: Service) -> None:
    backend = service.parts.core.machine.backend
    assert isinstance(backend, LocalBackend)
    items = submissions(SLOW_SQUARE, 60) + submissions(WRONG, 60)
    killed = 0

    def kill_one() -> bool:
        nonlocal killed
        for slot in backend.busy_slots():
            os.kill(slot, signal.SIGKILL)
            killed += 1
            return True
        return False

    import threading

    found: list[list[dict[str, Any]]] = []
    thread = threading.Thread(target=lambda: found.append(judge(service, items)))
    thread.start()
    for _ in range(6):
        service.until(kill_one)
    thread.join()
    assert killed == 6
    (results,) = found
    for index, result in enumerate(results):
        if result["error"] is None:
            assert result["reward"] == (1.0 if index < 60 else 0.0)
        else:  # killed twice over, which is for the trainer to ask again
            assert result["error"]["reason"] == "sandbox_lost"
            assert result["reward"] is None
    assert sum(result["error"] is not None for result in results) <= 2
    assert all(result["reward"] == 1.0 for result in judge(service, submissions(SQUARE, 50)))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_service(how: signal.Signals) -> None:
    program = (
        "from proctor_service.settings import Settings\n"
        "from proctor_service.app import build_app, make_server\n"
        "server = make_server(build_app(Settings(port=0)))\n"
        "server.run()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        try:
            children = _children_when_there(process.pid)
            process.send_signal(how)
            process.wait(WAIT_SECONDS)
        finally:
            process.kill()
    for child in children:
        _wait_gone(child)


def _children_when_there(pid: int) -> list[int]:
    """The descendants of a service, once its sandboxes are made."""
    deadline = _Patience()
    while True:
        descendants = procfs.tree(pid)[1:]
        if len(descendants) >= 3 * 3:
            return descendants
        deadline.spend(f"only {len(descendants)} processes below the service")


def _wait_gone(pid: int) -> None:
    deadline = _Patience()
    while Path(f"/proc/{pid}").exists():
        deadline.spend(f"{pid} is still there")


class _Patience:
    """Waits a turn at a time for what has no event, up to a bound."""

    def __init__(self) -> None:
        self.turns = 6000

    def spend(self, why: str) -> None:
        import threading

        self.turns -= 1
        assert self.turns > 0, why
        threading.Event().wait(0.01)
