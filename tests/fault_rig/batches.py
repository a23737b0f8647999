"""One large batch over replicas in processes of their own: who judges it, how often, and how fast."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from waits import WAIT_SECONDS

from fault_rig.processes import Process

RIGHT = "def f(x):\n    return x * x + {} * 0"
WRONG = "def f(x):\n    return x * x + {} + 1"
TESTS = ["assert f(2) == 4", "assert f(3) == 9", "assert f(-1) == 1"]
WRONG_EVERY = 10


@dataclass(frozen=True)
class Batch:
    """Submissions that all differ, and the reward that each must get."""

    body: Mapping[str, Any]
    rewards: Sequence[float]


@dataclass(frozen=True)
class Answer:
    """What came of a batch: items without a reward, items with another one, and the seconds."""

    lost: int
    wrong: int
    seconds: float


def batch(count: int, number: int) -> Batch:
    """So many submissions, none of which is in a batch of another number."""
    rewards = [0.0 if index % WRONG_EVERY == 0 else 1.0 for index in range(count)]
    first = 1_000_000 * number
    programs = [
        (RIGHT if reward else WRONG).format(first + index) for index, reward in enumerate(rewards)
    ]
    body = {
        "submissions": [{"completion": program} for program in programs],
        "grader": {"kind": "asserts", "tests": TESTS},
        "extract": "none",
    }
    return Batch(body, rewards)


def send(
    process: Process, asked: Batch, after: int = 0, do: Callable[[], object] = lambda: None
) -> Answer:
    """Sends a batch; after so many results something is done, once."""
    begun = time.monotonic()
    results: list[dict[str, Any]] = []
    with httpx.stream(
        "POST",
        f"{process.url}/reward",
        json=asked.body,
        headers={"Accept": "application/x-ndjson"},
        timeout=4 * WAIT_SECONDS,
        trust_env=False,
    ) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines():
            found = json.loads(line)
            if "summary" not in found:
                results.append(found)
            if len(results) == after:
                after = -1
                do()
    seconds = time.monotonic() - begun
    rewards = {each["index"]: each["reward"] for each in results if each["reward"] is not None}
    wrong = sum(asked.rewards[index] != reward for index, reward in rewards.items())
    return Answer(len(asked.rewards) - len(rewards), wrong, seconds)


@contextmanager
def replicas(
    count: int, settings: Mapping[str, str] | None = None, cores: Sequence[int] = ()
) -> Iterator[list[Process]]:
    """So many replicas that know each other, each on a core of its own if `cores` are given."""
    with ExitStack() as stack:
        found = [Process() for _ in range(count)]
        for process in found:
            stack.callback(process.close)
        allowed = os.sched_getaffinity(0)
        peers = {"PROCTOR_PEERS": json.dumps([each.url for each in found])} if count > 1 else {}
        for number, process in enumerate(found):
            own = {"PROCTOR_ADVERTISE_URL": process.url} if count > 1 else {}
            try:
                if cores:
                    os.sched_setaffinity(0, {cores[number]})  # a child has its parent's
                process.start({**peers, **own, **(settings or {})})
            finally:
                os.sched_setaffinity(0, allowed)
        yield found


def judged(process: Process) -> int:
    """Rewards that this replica has judged itself."""
    text = httpx.get(f"{process.url}/metrics", trust_env=False, timeout=240).text
    counts = re.findall(r"^proctor_rewards_total\{.*\} (\S+)$", text, re.MULTILINE)
    return int(sum(map(float, counts)))


def attempts(processes: Sequence[Process]) -> Counter[str]:
    """How often each source was judged, by the logs (JSON, level debug) of all replicas."""
    found: Counter[str] = Counter()
    for process in processes:
        here, sources = set(), {}
        for line in process.said.rpartition("\n")[0].splitlines():  # the last may not be whole
            if not line.startswith("{"):
                continue
            said = json.loads(line)
            if said.get("message") == "evaluated" and not said.get("at_peer"):
                here.add(said["evaluation_id"])
            elif said.get("message") == "texts":
                sources[said["evaluation_id"]] = said["source"]
        found.update(sources[each] for each in here)
    return found
