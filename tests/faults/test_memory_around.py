"""Verdicts where the cgroups above the service lack memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_process import ServiceProcess
from waits import WAIT_SECONDS

ASSERTS = {"kind": "asserts", "tests": ["assert f(2) == 4", "assert f(3) == 9"]}
EXEC = {"kind": "exec"}
RIGHT = "def f(x):\n    return x * x\n# {}"
WRONG = "def f(x):\n    return x\n# {}"
LEAVES = "import os\nos._exit(0)\n# {}"
ENDLESS = "while True: pass"
EXEC = {"kind": "exec"}
MEMORY = Path("/sys/fs/cgroup/memory")

EXEC = {"kind": "exec"}
MEMORY = Path("/sys/fs/cgroup/memory")

HOLDS = "b = bytearray({} << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\n# {}"


@contextlib.contextmanager
def surroundings_of(megabytes: int) -> Iterator[Path]:
    """A memory cgroup (v1) with that limit, for a service."""
    if not (MEMORY / "memory.limit_in_bytes").exists() or not os.access(MEMORY, os.W_OK):
        pytest.skip("no memory cgroups of version 1 to make here")
    group = MEMORY / f"surroundings-{os.getpid()}"
    group.mkdir()
    try:
        for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
            with contextlib.suppress(OSError):
                (group / name).write_text(str(megabytes << 20))
        yield group
    finally:
        group.rmdir()


def kills_in(group: Path) -> int:
    """Return how many processes the kernel killed for memory in this cgroup and those below."""
    kills = 0
    for folder, _, _ in os.walk(group):
        with contextlib.suppress(OSError):  # a sandbox's cgroup that was removed meanwhile
            text = Path(folder, "memory.oom_control").read_text()
            kills += int(text.partition("oom_kill ")[2])
    return kills


def judged(url: str, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    body = {"submissions": items, "extract": "none", "cache": False, "deadline_seconds": 600}
    answer = httpx.post(f"{url}/reward", json=body, timeout=700, trust_env=False)
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def test_slots_that_the_surroundings_have_no_memory_for_are_told() -> None:
    slots = {"PROCTOR_SLOTS": "2", "PROCTOR_MEMORY_MB": "512"}
    with surroundings_of(700) as group:
        with ServiceProcess(**slots).within(group) as service:
            said = service.logged
        enter = ["/bin/sh", "-c", 'echo 0 > "$0" && exec "$@"', f"{group}/cgroup.procs"]
        command = [*enter, sys.executable, "-m", "proctor_service", "doctor"]
        environment = {**os.environ, **slots, "COLUMNS": "400"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "2 slots of 512 MB (memory_mb) may take 1024 MB; there are 700 MB by " in said
    assert f"{group}/memory.limit_in_bytes" in said
    assert "set PROCTOR_SLOTS=1, or PROCTOR_MEMORY_MB=350, or give more memory" in said
    assert "may take 1024 MB; there are 700 MB" in done.stdout
    with ServiceProcess(PROCTOR_SLOTS="1", PROCTOR_MEMORY_MB="64") as service:
        assert "may take" not in service.logged


def test_memory_that_the_surroundings_lack_is_nobodys_limit() -> None:
    with surroundings_of(700) as group, ServiceProcess().within(group) as service:
        right = [
            {"completion": HOLDS.format(250, n), "grader": EXEC, "limits": {"memory_mb": 512}}
            for n in range(20)
        ]
        results = judged(service.url, right)
        assert [result["reward"] for result in results] == [1.0] * len(right)
        greedy = [
            {"completion": HOLDS.format(400, n), "grader": EXEC, "limits": {"memory_mb": 200}}
            for n in range(4)
        ]
        results = judged(service.url, greedy)
        assert [result["verdict"] for result in results] == ["memory_limit"] * len(greedy)


CHILD_HOLDS = """
import os, time
if os.fork() == 0:
    {before}
    b = bytearray(400 << 20)
    for i in range(0, len(b), 4096): b[i] = 1
    os._exit(0)
{after}
"""
WAITS_FOR_CHILD = CHILD_HOLDS.format(before="pass", after="os.wait()")
LEAVES_CHILD = CHILD_HOLDS.format(before="os.setsid(); time.sleep(0.5)", after="")


def test_a_command_whose_child_the_surroundings_killed_has_no_result() -> None:
    with surroundings_of(300) as group, ServiceProcess(PROCTOR_SLOTS="1").within(group) as service:
        body = {"code": WAITS_FOR_CHILD, "memory_limit_MB": 512}
        answer = httpx.post(
            f"{service.url}/compat/run_code", json=body, timeout=WAIT_SECONDS, trust_env=False
        )
        assert answer.status_code == 504, answer.text
        assert "sandbox_lost" in answer.text
        with httpx.Client(base_url=service.url, timeout=WAIT_SECONDS, trust_env=False) as client:
            made = client.post("/sandboxes", json={"limits": {"memory_mb": 512}}).json()
            path = f"/sandboxes/{made['id']}/exec"
            before = kills_in(group)
            assert client.post(path, json={"code": LEAVES_CHILD}).json()["exit_code"] == 0
            deadline = time.monotonic() + WAIT_SECONDS
            while kills_in(group) == before and time.monotonic() < deadline:
                threading.Event().wait(0.02)
            answer = client.post(path, json={"code": "1"})
        assert answer.json()["error"]["reason"] == "sandbox_lost", answer.text
