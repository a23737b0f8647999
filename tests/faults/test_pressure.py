"""Verdicts on a busy machine: waiting for a core is no timeout, and endless programs keep nobody waiting."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from harness import Service, running_service
from judging import ask, judge
from waits import WAIT_SECONDS

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


def pass_beside_hogs(service: Service, source: str, count: int) -> None:
    """Have so many copies of a right program judged while others hold every core."""
    items = [
        {"completion": f"{source}# {number}", "grader": EXEC, "limits": SHORT_IDLE}
        for number in range(count)
    ]
    with hogs(6 * (os.cpu_count() or 1)):
        results = judge(service, *items, deadline_seconds=900)
    assert [result["verdict"] for result in results] == ["passed"] * len(items)


def test_right_programs_that_never_sleep_are_no_timeout_while_others_hold_every_core(
    service: Service,
) -> None:
    pass_beside_hogs(service, BUSY, 8)


def test_right_programs_with_short_lived_children_are_no_timeout_either(service: Service) -> None:
    source = "import subprocess\nfor _ in range(30): subprocess.run(['true'], check=True)\n"
    pass_beside_hogs(service, source, 4)


def test_right_programs_that_print_much_are_no_timeout_while_the_service_reads_late(
    service: Service,
) -> None:
    source = "line = 'x' * 1000\nfor _ in range(20_000): print(line)\n"
    pass_beside_hogs(service, source, 4)


def test_idlers_are_timeouts_while_others_hold_every_core(service: Service) -> None:
    items = [{"completion": text, "grader": EXEC, "limits": SHORT_IDLE} for text in IDLERS]
    with hogs(2 * (os.cpu_count() or 1)):
        results = judge(service, *items, deadline_seconds=900)
    assert [result["verdict"] for result in results] == ["timeout"] * len(items)


ENDLESS_PROGRAMS, RIGHT_PROGRAMS = 40, 12
RUN_TIMEOUTS_SECONDS = (3, 12, 48, 192)
"""The first one is for an idle machine; verl's waits grow with it."""
DEADLINES_SECONDS = (6, 24, 96)
VERL_TRIES = 3
SHORT = "import time\nwhile time.process_time() < 0.1: pass\nprint('right')"


async def ask_as_verl(
    client: httpx.AsyncClient, code: str, run_timeout_seconds: int
) -> dict[str, Any] | None:
    """Return the answer to verl's request for /run_code; None after a third 504.

    verl waits for both timeouts and 10 s more, and before its next try for one second more each time.
    """
    body = {
        "compile_timeout": run_timeout_seconds,
        "run_timeout": run_timeout_seconds,
        "code": code,
        "stdin": "",
        "memory_limit_MB": 1024,
        "language": "python",
        "files": {},
        "fetch_files": [],
    }
    for attempt in range(1, VERL_TRIES + 1):
        wait_seconds = 2 * run_timeout_seconds + 10
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
    for run_timeout_seconds in RUN_TIMEOUTS_SECONDS:
        answers, ended = asyncio.run(crowd(service.url, run_timeout_seconds))
        for answer in ended:
            assert answer["run_result"]["status"] == "TimeLimitExceeded"
            assert answer["run_result"]["execution_time"] >= run_timeout_seconds
        if None not in answers:
            break
    printed = [answer and answer["run_result"]["stdout"] for answer in answers]
    assert printed == ["right\n"] * RIGHT_PROGRAMS


Answers = list[dict[str, Any] | None]


async def crowd(url: str, run_timeout_seconds: int) -> tuple[Answers, list[dict[str, Any]]]:
    """Return the answers for the right programs, and those that the endless ones had by then."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=WAIT_SECONDS) as client:
        ask_verl = functools.partial(ask_as_verl, client, run_timeout_seconds=run_timeout_seconds)
        endless = [
            asyncio.create_task(ask_verl(f"while True: pass  # {number}"))
            for number in range(ENDLESS_PROGRAMS)
        ]
        right = [ask_verl(f"{SHORT}  # {number}") for number in range(RIGHT_PROGRAMS)]
        answers = await asyncio.gather(*right)
        ended = [answer for task in endless if task.done() and (answer := task.result())]
        for task in endless:
            task.cancel()
        await asyncio.gather(*endless, return_exceptions=True)
    return answers, ended


def test_an_item_that_its_deadline_ends_has_no_verdict_and_the_others_have_theirs(
    service: Service,
) -> None:
    items = [{"completion": text, "grader": EXEC} for text in ("while True: pass", "x = 1")]
    for seconds in DEADLINES_SECONDS:  # a busy machine may need a later one for the short program
        endless, short = ask(service, *items, limits={"cpu_seconds": 500}, deadline_seconds=seconds)
        assert (endless["reward"], endless["verdict"]) == (None, None)
        assert endless["error"]["reason"] == "deadline"
        if short["error"] is None:
            break
        assert short["error"]["reason"] == "deadline"
    assert (short["reward"], short["verdict"]) == (1.0, "passed")
