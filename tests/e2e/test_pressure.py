"""Verdicts on a busy machine: waiting for a core is no timeout, and endless programs keep nobody waiting."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from harness import Service, running_service
from judging import ask, judge

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


ENDLESS_PROGRAMS, RIGHT_PROGRAMS = 40, 12
RUN_TIMEOUT_SECONDS = 3
VERL_TRIES = 3
SHORT = "import time\nwhile time.process_time() < 0.1: pass\nprint('right')"


async def ask_as_verl(client: httpx.AsyncClient, code: str) -> dict[str, Any] | None:
    """Return the answer to verl's request for /run_code; None after a third 504.

    verl waits for both timeouts and 10 s more, and before its next try for one second more each time.
    """
    body = {
        "compile_timeout": RUN_TIMEOUT_SECONDS,
        "run_timeout": RUN_TIMEOUT_SECONDS,
        "code": code,
        "stdin": "",
        "memory_limit_MB": 1024,
        "language": "python",
        "files": {},
        "fetch_files": [],
    }
    for attempt in range(1, VERL_TRIES + 1):
        wait_seconds = 2 * RUN_TIMEOUT_SECONDS + 10
        answer = await client.post("/compat/run_code", json=body, timeout=wait_seconds)
        if answer.status_code != 504:
            assert answer.status_code == 200, answer.text
            said: dict[str, Any] = answer.json()
            return said
        if attempt < VERL_TRIES:
            await asyncio.sleep(attempt)
    return None


def test_right_programs_behind_endless_ones_are_rewarded_within_the_waits_of_verl(
    service: Service,
) -> None:
    async def crowd() -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=service.url, limits=limits) as client:
            endless = [
                asyncio.create_task(ask_as_verl(client, f"while True: pass  # {number}"))
                for number in range(ENDLESS_PROGRAMS)
            ]
            right = [
                ask_as_verl(client, f"{SHORT}  # {number}") for number in range(RIGHT_PROGRAMS)
            ]
            answers = await asyncio.gather(*right)
            ended = [task.result() for task in endless if task.done()]
            for task in endless:
                task.cancel()
            await asyncio.gather(*endless, return_exceptions=True)
        printed = [answer and answer["run_result"]["stdout"] for answer in answers]
        assert printed == ["right\n"] * RIGHT_PROGRAMS
        for answer in ended:
            if answer is not None:
                assert answer["run_result"]["status"] == "TimeLimitExceeded"
                assert answer["run_result"]["execution_time"] >= RUN_TIMEOUT_SECONDS

    asyncio.run(crowd())


def test_an_item_that_its_deadline_ends_has_no_verdict_and_the_others_have_theirs(
    service: Service,
) -> None:
    items = [{"completion": text, "grader": EXEC} for text in ("while True: pass", "x = 1")]
    endless, short = ask(service, *items, limits={"cpu_seconds": 500}, deadline_seconds=6)
    assert (endless["reward"], endless["verdict"]) == (None, None)
    assert endless["error"]["reason"] == "deadline"
    assert (short["reward"], short["verdict"]) == (1.0, "passed")
