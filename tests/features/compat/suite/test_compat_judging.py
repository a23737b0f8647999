"""The compatible routes that judge, with real sandboxes: tests and code apart, lost sandboxes, hacks."""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from compat_requests import VERL, post
from harness import Service
from requests_under_way import asking
from shared_data import shared_data

from proctor_service.sandbox.local import LocalBackend

AT_ONCE = 8

# ---------------------------------------------------------------- faults of ours

SLOW = "import time\ntime.sleep(1.5)\n"
FAULTED: list[tuple[str, Any, Any]] = [
    ("run_code", VERL | {"code": f"{SLOW}print(7)"}, "7\\n"),
    (
        "run/long-batch",
        {"type": "batch", "submissions": [{"type": "python", "solution": f"{SLOW}print(7)"}]},
        '"stdout":"7\\n"',
    ),
    ("run_jupyter", {"cells": [SLOW, "7"]}, '"7"'),
    ("execute_batch", {"scripts": [f"{SLOW}7"], "languages": ["python"], "timeout": 9}, '"7"'),
    (
        "test_program",
        {"program": f"{SLOW}def f(): return 7", "tests": ["assert f() == 7"],
         "max_execution_time": 9.0},
        '"results":[1]',
    ),
    (
        "remote_rm",
        {"prompt": "", "response": f"{SLOW}def f():\n    return 7", "label": ["assert f() == 7"]},
        "1.0",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "said"), FAULTED, ids=[each[0] for each in FAULTED])
def test_a_sandbox_that_is_lost_is_not_seen(
    service: Service, path: str, body: Any, said: str
) -> None:
    backend = service.parts.core.machine.backend
    assert isinstance(backend, LocalBackend)
    with asking(service, f"/compat/{path}", body) as asked:
        service.until(lambda: bool(backend.busy_slots()))
        for slot in service.call(backend.busy_slots):
            os.kill(slot, signal.SIGKILL)
        answer = asked.result()
    assert answer.status_code == 200, answer.text
    assert said in answer.text


# ---------------------------------------------------------------- tests and code apart

DOUBLE = "def double(n):\n    return 2 * n\n"
CHEATS = {
    "exits": "raise SystemExit(0)",
    "exits in the function": "def double(n):\n    raise SystemExit(0)",
    "leaves at once": "import os\nos._exit(0)",
    "is equal to all": "class E:\n    def __eq__(self, other): return True\n"
    "    __hash__ = None\ndef double(n):\n    return E()",
    "an int that is equal": "class E(int):\n    def __eq__(self, other): return True\n"
    "    __hash__ = int.__hash__\ndef double(n):\n    return E(7)",
    "patches": "import builtins\nbuiltins.AssertionError = type('N', (BaseException,), {})\n"
    "def double(n):\n    return 0",
}
TESTS = ["assert double(2) == 4", "assert double(5) == 10"]


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_earn_nothing(client: httpx.Client, name: str) -> None:
    code = CHEATS[name]
    response = f"```python\n{code}\n```"
    said = post(client, "test_program", {"program": code, "tests": TESTS})
    assert said["results"] == [0, 0]
    item = {"prompt": "", "response": response, "tests": TESTS, "setup_code": ""}
    assert post(client, "reward", item)["reward"] == 0.0
    assert post(client, "remote_rm", {"prompt": "", "response": response, "label": TESTS}) == 0.0


def test_open_instruct_judges_each_test(client: httpx.Client) -> None:
    tests = [*TESTS, "assert double(1) == 3", "assert double(", "import time; time.sleep(9)"]
    packed = base64.b64encode(zlib.compress(pickle.dumps(tests))).decode()
    for given in (tests, json.dumps(tests), packed):
        body = {"program": DOUBLE, "tests": given, "max_execution_time": 1.0}
        said = post(client, "test_program", body)
        assert set(said) == {"results", "runtimes"}
        assert said["results"] == [1, 1, 0, 0, 0]
        assert [seconds > 0 for seconds in said["runtimes"]] == [True, True, False, False, False]
        assert said["runtimes"][2:] == [-1.0] * 3


def test_open_instruct_lets_a_program_name_what_it_likes(client: httpx.Client) -> None:
    program = f"import os, shutil, threading\n{DOUBLE}"
    assert post(client, "test_program", {"program": program, "tests": TESTS})["results"] == [1, 1]


def test_open_instruct_reads_stdin(client: httpx.Client) -> None:
    tests = [
        {"input": "1\n", "output": "2\n"},
        {"input": ["3"], "output": ["6"]},
        {"input": "1", "output": "3"},
        {"input": "1", "output": "2.0"},
    ]
    body = {"program": "print(2 * int(input()))", "tests": tests, "max_execution_time": 1.0}
    said = post(client, "test_program_stdio", body)
    assert said["results"] == [1, 1, 0, 1]
    slow = body | {"program": "while 1: pass", "max_execution_time": 0.3}
    assert post(client, "test_program_stdio", slow)["results"] == [0, 0, 0, 0]


def test_a_batch_of_skypilots(client: httpx.Client) -> None:
    right = {
        "prompt": "",
        "response": f"Sure.\n```python\n{DOUBLE}```\nThat is it.",
        "tests": ["assert double(math.floor(2.5)) == 4"],
        "setup_code": "import math",
    }
    wrong = right | {"tests": ["assert double(2) == 5"]}
    said = post(client, "batch_reward", {"items": [right, wrong]})
    assert [each["reward"] for each in said["rewards"]] == [1.0, 0.0]
    assert (said["mean_reward"], said["pass_rate"]) == (0.5, 0.5)
    assert said["rewards"][0]["extracted_code"] == DOUBLE.strip()


def corpus(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shared_data(name).read_text().splitlines()]


@pytest.mark.parametrize(("name", "rewarded"), [("hacks.jsonl", False), ("honest.jsonl", True)])
def test_hacks_earn_nothing_and_honest_oddities_do(
    service: Service, name: str, rewarded: bool
) -> None:
    entries = corpus(name)
    with service.client() as client:
        items = [
            {"prompt": "", "response": f"```python\n{entry['completion']}\n```",
             "tests": entry["problem"]["tests"], "setup_code": ""}
            for entry in entries
        ]  # fmt: skip
        batch = post(client, "batch_reward", {"items": items})["rewards"]

        def passes_alone(entry: dict[str, Any]) -> bool:
            body = {"program": entry["completion"], "tests": entry["problem"]["tests"]}
            found = post(client, "test_program", body | {"max_execution_time": 10.0})
            return all(found["results"])

        with ThreadPoolExecutor(AT_ONCE) as pool:
            programs = list(pool.map(passes_alone, entries))
    got = {
        entry["id"]: (reward["reward"], all_passed)
        for entry, reward, all_passed in zip(entries, batch, programs, strict=True)
    }
    other = (0.0, False) if rewarded else (1.0, True)
    assert [name for name, each in got.items() if set(each) & set(other)] == []
