"""Verdicts on a machine that others keep busy: waiting for a core is nobody's timeout."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from harness import Service, running_service
from judging import judge
from proctor_service.settings import Settings

EXEC = {"kind": "exec"}
SHORT_IDLE = {"cpu_seconds": 20, "wall_seconds": 1}
BUSY = "s = 0\nfor k in range(4_000_000): s += k\n"
IDLERS = (
    "import time\ntime.sleep(1000)",
    "import time\nwhile True: time.sleep(0.01)",
    "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    "import os\nread, write = os.pipe()\nos.read(read, 1)",
    "import subprocess\nsubprocess.run(['sleep', '1000'])",
)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running_service(Settings(allow_degraded=True), judge=None) as running:
        yield running


@contextlib.contextmanager
def hogs(count: int) -> Iterator[None]:
    """So many processes that want a core, each in a session of its own: the kernel groups by it."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_right_programs_that_never_sleep_are_no_timeout_while_others_hold_every_core(
    service: Service,
) -> None:
    items = [
        {"completion": f"{BUSY}# {number}", "grader": EXEC, "limits": SHORT_IDLE}
        for number in range(8)
    ]
    with hogs(6 * (os.cpu_count() or 1)):
        results = judge(service, *items, deadline_seconds=900)
    assert [result["verdict"] for result in results] == ["passed"] * len(items)


def test_right_programs_with_short_lived_children_are_no_timeout_either(service: Service) -> None:
    source = "import subprocess\nfor _ in range(30): subprocess.run(['true'], check=True)\n"
    items = [
        {"completion": f"{source}# {number}", "grader": EXEC, "limits": SHORT_IDLE}
        for number in range(4)
    ]
    with hogs(6 * (os.cpu_count() or 1)):
        results = judge(service, *items, deadline_seconds=900)
    assert [result["verdict"] for result in results] == ["passed"] * len(items)


def test_idlers_are_timeouts_while_others_hold_every_core(service: Service) -> None:
    items = [{"completion": text, "grader": EXEC, "limits": SHORT_IDLE} for text in IDLERS]
    with hogs(2 * (os.cpu_count() or 1)):
        results = judge(service, *items, deadline_seconds=900)
    assert [result["verdict"] for result in results] == ["timeout"] * len(items)
