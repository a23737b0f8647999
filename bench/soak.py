"""Mixed load for half an hour, hostile programs among it: rewards, and the service's resources
meanwhile.

    PYTHONPATH=client:service:tests:tests/support python bench/soak.py [--minutes 30]

Starts a service of its own. References, wrong answers, hacks, contests, endless loops, hostile
programs and stateful sandboxes at once, in rounds; between two rounds, memory, descriptors and
processes are measured: the second half of the rounds may hold at most as much as the first. Ends
with status 1 after a wrong reward, an item without a verdict, or a growth.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx
from leaks import MEMORY_SHARE, holdings
from service_process import ServiceProcess

from core.e2e.test_corpora import contest, corpus, mbpp, rows

ROUND_SECONDS = 120.0
LOOKS = 5
SQUARE = {"kind": "asserts", "tests": ["assert f(2) == 4", "assert f(3) == 9"]}
Item = dict[str, Any]


@dataclass
class Score:
    """Observations, by kind of submission."""

    judged: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, kind: str, right: bool, what: str) -> None:
        """An answer."""
        with self.lock:
            self.judged[kind] += 1
            if not right:
                self.wrong.append(f"{kind} {what}")


class Load:
    """The requests; each kind knows its right rewards."""

    def __init__(self, url: str, score: Score) -> None:
        self.http = httpx.Client(base_url=url, timeout=600, trust_env=False)
        self.score = score
        self.problems = rows("mbpp/mbpp.jsonl")
        self.hacks = rows("hacks.jsonl")
        self.hostile = rows("hostile.jsonl")
        self.contests = rows("codecontests/codecontests_60.jsonl")
        self.chance = random.Random(7)

    def references(self) -> None:
        """Thirty right submissions."""
        chosen = self.chance.sample(self.problems, 30)
        self.judge("reference", [mbpp(each, self.marked(each["code"])) for each in chosen], 1.0)

    def wrong_answers(self) -> None:
        """Twenty without the function, and four endless submissions."""
        chosen = self.chance.sample(self.problems, 20)
        self.judge("wrong answer", [mbpp(each, self.marked("x = 1")) for each in chosen], 0.0)
        loop = self.marked("while True: pass")
        limits = {"cpu_seconds": 1, "wall_seconds": 2}
        loops = [{**mbpp(each, loop), "limits": limits} for each in chosen[:4]]
        self.judge("endless loop", loops, 0.0)

    def cheats(self) -> None:
        """Ten hacks."""
        self.judge("hack", [corpus(each) for each in self.chance.sample(self.hacks, 10)], 0.0)

    def contests_over_stdio(self) -> None:
        """Five contests, and five with an expected output spoilt."""
        chosen = self.chance.sample(self.contests, 5)
        self.judge("contest", [contest(each, spoilt=False) for each in chosen], 1.0)
        self.judge("spoilt contest", [contest(each, spoilt=True) for each in chosen], 0.0)

    def attacks(self) -> None:
        """Three hostile programs, with any reward; a verdict they get."""
        limits = {"cpu_seconds": 2, "wall_seconds": 3, "memory_mb": 256}
        chosen = self.chance.sample(self.hostile, 3)
        self.judge("hostile", [{**corpus(each), "limits": limits} for each in chosen], None)

    def sandbox(self) -> None:
        """A stateful sandbox with a working agent, graded in its final state."""
        path = self.make_sandbox()
        word = self.marked("def f(x): return x * x")
        self.http.put(f"{path}/files/solution.py", content=word.encode()).raise_for_status()
        said = self.http.post(f"{path}/exec", json={"command": ["cat", "solution.py"]})
        right = said.status_code == 200 and said.json()["stdout"] == word
        self.score.note("stateful command", right, said.text[:300])
        graded = self.http.post(f"{path}/grade", json={"grader": SQUARE})
        self.score.note("grade", graded.json().get("reward") == 1.0, graded.text[:300])
        self.http.delete(path)

    def hostile_sandbox(self) -> None:
        """A hostile command in a sandbox, which may end; a wrong solution stays wrong."""
        path = self.make_sandbox()
        attack = self.chance.choice(self.hostile)["completion"]
        self.http.post(f"{path}/exec", json={"code": attack, "timeout_seconds": 2})
        word = self.marked("def f(x): return x")
        self.http.put(f"{path}/files/solution.py", content=word.encode())
        graded = self.http.post(f"{path}/grade", json={"grader": SQUARE})
        right = graded.status_code in (200, 410) and graded.json().get("reward") in (0.0, None)
        self.score.note("grade after an attack", right, graded.text[:300])
        self.http.delete(path)

    def make_sandbox(self) -> str:
        """The path of a new sandbox."""
        asked = {"tags": ["soak"], "limits": {"wall_seconds": 5, "memory_mb": 256}}
        made = self.http.post("/sandboxes", json=asked).raise_for_status()
        return f"/sandboxes/{made.json()['id']}"

    def judge(self, kind: str, items: list[Item], reward: float | None) -> None:
        """Send a batch, and note wrong results."""
        body = {"submissions": items, "extract": "none", "cache": False, "job": kind}
        answer = self.http.post("/reward", json=body)
        if answer.status_code != 200:
            self.score.note(kind, False, answer.text[:300])
            return
        for result in answer.json()["results"]:
            right = result["verdict"] is not None and reward in (None, result["reward"])
            self.score.note(kind, right, f"{result['id']}: {result['verdict']} {result['error']}")

    def marked(self, source: str) -> str:
        """Another text each time."""
        return f"{source}\n# {self.chance.random()}"


def work(task: Callable[[], None], until: float) -> None:
    """Send them again and again."""
    while time.monotonic() < until:
        task()


def settled(pid: int) -> dict[str, int]:
    """Resources of the service once the round's last sandboxes are gone: the least of some
    looks."""
    looks = [holdings(pid) for _ in range(LOOKS)]
    return {name: min(look[name] for look in looks) for name in looks[0]}


def soak(minutes: float) -> bool:
    """Return True if all was right and without growth."""
    score = Score()
    with ServiceProcess() as service:
        load = Load(service.url, score)
        tasks = [
            load.references, load.references, load.wrong_answers, load.cheats,
            load.contests_over_stdio, load.attacks, load.sandbox, load.hostile_sandbox,
        ]  # fmt: skip
        seen = []
        for number in range(max(2, round(minutes * 60 / ROUND_SECONDS))):
            until = time.monotonic() + ROUND_SECONDS
            with ThreadPoolExecutor(len(tasks)) as pool:
                for done in [pool.submit(work, task, until) for task in tasks]:
                    done.result()
            seen.append(settled(service.pid))
            words = " ".join(f"{name} {value}" for name, value in seen[-1].items())
            print(f"round {number + 1}: {sum(score.judged.values())} judged; {words}", flush=True)
    for kind, count in sorted(score.judged.items()):
        print(f"{kind:22} {count}")
    print(f"{'wrong':22} {len(score.wrong)} {score.wrong[:10]}")
    half = len(seen) // 2
    worst = [
        {name: max(each[name] for each in part) for name in seen[0]}
        for part in (seen[:half], seen[half:])
    ]
    grown = [name for name in seen[0] if worst[1][name] > worst[0][name] * MEMORY_SHARE]
    print(f"{'grown':22} {grown}")
    return not score.wrong and not grown


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    minutes = parser.parse_args().minutes
    print(f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {platform.platform()}")
    print(f"Python {platform.python_version()}, {minutes:g} minutes")
    sys.exit(0 if soak(minutes) else 1)


if __name__ == "__main__":
    main()
