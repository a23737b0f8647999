"""Records of four invented jobs, as the service makes them, for `bench/journal.py`.

`main` has half of all evaluations, over 1,000 steps, in groups of 8 for 500 tasks. `eval` is
without steps; `sweep` has rewards of many values; `old` comes first.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate

from proctor_client.wire import AssertsGrader, Failure
from proctor_service.errors import DeadlinePassed
from proctor_service.features.journal.entry import Entries, Record
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.outcomes import Item, NoCode, Origin, Outcome
from proctor_service.sandbox.interface import Limits, Usage

TENANT = "lab"
TASKS, GROUP, STEPS = 500, 8, 1000
SECONDS = 10 * 86_400.0
"""Time from the first record to the last."""
BEGUN = 1_760_000_000.0
LIMITS = Limits(
    cpu_seconds=5.0, wall_seconds=10.0, memory_mb=256, output_kb=64, processes=16, disk_mb=16
)
JOBS = (("old", 0.1), ("main", 0.5), ("eval", 0.2), ("sweep", 0.2))
"""Names of the jobs and their shares of all records, in the order of their begin."""
RARE_WORD, RARE_EVERY = "zygomorphic", 50_000
FREQUENT_WORD = "return"


class Records:
    """Maker of `count` records; each call makes the same ones."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._chance = random.Random(7)
        self._entries = Entries(with_texts=True)
        self._words = [_word(self._chance) for _ in range(5000)]
        self._weights = list(accumulate(1 / rank for rank in range(1, 5001)))
        self._graders = [_grader(number) for number in range(TASKS)]

    def __iter__(self) -> Iterator[Record]:
        number = 0
        for job, share in JOBS:
            count = int(self._count * share)
            for index in range(count):
                yield self._record(number, job, index, index / count)
                number += 1

    def _record(self, number: int, job: str, index: int, part: float) -> Record:
        chance = self._chance
        task = index // GROUP % TASKS
        step = None if job == "eval" else int(part * STEPS)
        source = f"def f(x):\n    return x + {number}\n"
        said = chance.choices(self._words, cum_weights=self._weights, k=140)
        if number % RARE_EVERY == 0:
            said.append(RARE_WORD)
        completion = f"{' '.join(said)}\n```python\n{source}```"
        item = Item(
            f"ev_{number:032x}",
            Submission(source.strip(), self._graders[task], LIMITS),
            TENANT,
            job,
            0.0,
            tags=("train", *(["probe"] if number % 10_000 == 0 else [])),
            rollout_id=f"ro_{number // 4:032x}" if number % 10 == 0 else None,
            origin=Origin(completion, "auto", f"c{number}", f"task-{task}", step),
        )
        item, outcome = self._judged(item, job, task, part)
        kind, head, *rest = self._entries.evaluation(item, outcome, 0.05 + chance.random())
        at = BEGUN + SECONDS * number / self._count
        return (kind, (head[0], at, *head[2:]), *rest)

    def _judged(self, item: Item, job: str, task: int, part: float) -> tuple[Item, Outcome]:
        """Return the item and its outcome; later items pass more often, some tasks never."""
        chance = self._chance
        luck = chance.random()
        used = Usage(0.05 * chance.random(), 0.1, 9.0 + chance.random())
        waited = chance.random()
        if luck < 0.002:
            return item, Outcome(None, None, DeadlinePassed("too late"), waited)
        if luck < 0.03:
            none = replace(item, submission=NoCode(2))
            return none, Outcome(Judgement("no_code", total=2), 0.0, None, waited)
        if luck < 0.04:
            slow = Judgement("timeout", total=2, message="over 5 s of CPU time", usage=used)
            return item, Outcome(slow, 0.0, None, waited)
        signals = ("early_exit",) if chance.random() < 0.0005 else ()
        if task % 10 and chance.random() < 0.2 + 0.5 * part:
            passed = Judgement("passed", 2, 2, level="calls", usage=used)
            return item, Outcome(passed, 1.0, None, waited)
        failure = Failure(index=1, test=f"assert f({task}) == {task}", message="AssertionError")
        failed = Judgement(
            "failed", 1, 2, (failure,), "1 of 2 tests failed", level="calls", usage=used,
            hack_signals=signals,
        )  # fmt: skip
        reward = round(chance.random(), 3) if job == "sweep" else 0.0
        return item, Outcome(failed, reward, None, waited)


def _word(chance: random.Random) -> str:
    return "".join(chance.choices("abcdefghilmnoprstu", k=chance.randint(2, 9)))


def _grader(number: int) -> AssertsGrader:
    tests = [f"assert f({each}) == {each + number}" for each in range(10)]
    return AssertsGrader(kind="asserts", tests=tests)
