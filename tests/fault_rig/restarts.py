"""Rolling restarts of three replicas at random moments, which their clients must not notice.

`bench/restarts.py` runs it in full, a test in small.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fault_rig.load import Score, Trainer, work
from fault_rig.rig import TOKENS, rig

AT_ONCE = 4
"""Calls of a client."""
ROUND = 100
"""Submissions of a client that are on their way together."""
LONGEST_PAUSE_SECONDS = 2.0


@dataclass(frozen=True)
class Restarted:
    """What the clients saw. `unrecorded`: results without exactly one record in the journal."""

    scores: list[Score]
    restarts: int
    seconds: float
    unrecorded: int

    @property
    def noticed(self) -> list[str]:
        """All that should not be: errors, wrong rewards, and what was lost."""
        found = [f"{self.unrecorded} results are not in the journal once"] * bool(self.unrecorded)
        for score in self.scores:
            found += [*score.wrong, *score.errors, *score.failed_calls]
            found += [f"{score.lost} were lost"] * bool(score.lost)
        return found


def run(clients: int, each: int, restarts: int, *, behind_nginx: bool, seed: int) -> Restarted:
    """So many clients with at least so many submissions each, during at least so many restarts.

    Without nginx each client has a replica of its own.
    """
    chance = random.Random(seed)
    over, restarted = threading.Event(), threading.Event()
    with tempfile.TemporaryDirectory(prefix="restarts-") as folder:
        journal = Path(folder) / "journal.db"
        settings = {"PROCTOR_JOURNAL": f"sqlite:///{journal}"}
        with rig(settings, cables_between=False) as room, ThreadPoolExecutor(1) as pool:
            begun = time.monotonic()
            urls = [room.url] if behind_nginx else [process.url for process in room.processes]
            working = pool.submit(asyncio.run, _work(urls, clients, each, restarted))
            working.add_done_callback(lambda _: over.set())
            count = 0
            try:
                while not over.is_set():
                    over.wait(chance.uniform(0, LONGEST_PAUSE_SECONDS))
                    process = room.processes[count % len(room.processes)]
                    process.send(signal.SIGTERM)
                    assert process.wait() == 0, process.said[-4000:]
                    process.start()
                    count += 1
                    if count >= restarts:
                        restarted.set()
            finally:
                restarted.set()
            scores = working.result()
            seconds = time.monotonic() - begun
            for process in room.processes:
                process.send(signal.SIGTERM)
                assert process.wait() == 0
        ids = [id_ for score in scores for id_ in score.evaluation_ids]
        return Restarted(scores, count, seconds, _unrecorded(journal, ids))


async def _work(
    urls: Sequence[str], clients: int, each: int, restarted: threading.Event
) -> list[Score]:
    trainers = [
        Trainer(urls[number % len(urls)], TOKENS["trainer"], AT_ONCE) for number in range(clients)
    ]
    numbers = itertools.count()

    async def send(trainer: Trainer) -> None:
        sent = 0
        while sent < each or not restarted.is_set():
            first = next(numbers) * ROUND
            await trainer.send_rewards(work(first + ROUND)[first:])
            sent += ROUND

    async with asyncio.TaskGroup() as group:
        for trainer in trainers:
            group.create_task(send(trainer))
    for trainer in trainers:
        await trainer.client.aclose()
    return [trainer.score for trainer in trainers]


def _unrecorded(journal: Path, ids: Collection[str]) -> int:
    with closing(sqlite3.connect(journal)) as connection:
        rows = [row[0] for row in connection.execute("SELECT id FROM evaluations")]
    assert len(rows) == len(set(rows))
    return len(set(ids) - set(rows)) + len(ids) - len(set(ids))
