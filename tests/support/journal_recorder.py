"""A recorder of the journal under test, with its writer process, and records to write."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

from proctor_client.wire import ExecGrader
from proctor_service.features.journal.leftover import Leftover
from proctor_service.features.journal.recorder import MODULE, Recorder, Target
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.outcomes import Item, Origin, Outcome
from proctor_service.sandbox.interface import Limits
from proctor_service.settings import worker_environment

WRITING = (sys.executable, *MODULE)
PASSED = Outcome(Judgement("passed", 1, 1), 1.0)
FIRST = Item(
    "ev_0",
    Submission("x = 1", ExecGrader(kind="exec"), Limits(1.0, 1.0, 64, 64, 16, 64)),
    "t",
    "job",
    0.0,
    origin=Origin(),
)


class Counts:
    """What the recorder reported."""

    def __init__(self) -> None:
        self.written = 0
        self.dropped: dict[str, int] = {}

    def journal_written(self, records: int) -> None:
        """Count written records."""
        self.written += records

    def journal_dropped(self, reason: str, records: int = 1) -> None:
        """Count lost records."""
        self.dropped[reason] = self.dropped.get(reason, 0) + records


class Under:
    """A recorder under test."""

    def __init__(self, path: Path, age_seconds: float, command: Sequence[str]) -> None:
        self.path = path
        self.counts = Counts()
        target = Target(f"sqlite:///{path}", "1", True, age_seconds, 1e12)
        environment = {**worker_environment(), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        self.recorder = Recorder(
            target, True, self.counts, environment, command, leftover=Leftover(path)
        )

    def record(self, first: int, last: int) -> None:
        """Record evaluations with these numbers."""
        for number in range(first, last):
            self.recorder.item_ended(replace(FIRST, evaluation_id=f"ev_{number}"), PASSED, 0.1)

    async def written(self, count: int) -> None:
        """Wait until so many records are written."""
        while self.counts.written < count:  # noqa: ASYNC110  another process writes
            await asyncio.sleep(0.01)

    def ids(self) -> list[str]:
        """Ids in the database, in the order of their numbers."""
        with closing(sqlite3.connect(self.path)) as connection:
            return [
                row[0] for row in connection.execute("SELECT id FROM evaluations ORDER BY number")
            ]

    def size(self) -> int:
        """Size of the largest file of the database."""
        return max(file.stat().st_size for file in self.path.parent.iterdir())

    def writer(self) -> int:
        """PID of the process that writes."""
        text = (Path("/proc/self/task") / str(os.getpid()) / "children").read_text()
        [pid] = [
            int(each)
            for each in text.split()
            if b"proctor_service.features.journal" in Path(f"/proc/{each}/cmdline").read_bytes()
        ]
        return pid


@asynccontextmanager
async def recording(
    path: Path, age_seconds: float = 1e6, command: Sequence[str] = WRITING
) -> AsyncIterator[Under]:
    """A recorder that is open."""
    found = Under(path, age_seconds, command)
    await found.recorder.open()
    try:
        yield found
    finally:
        await found.recorder.close()


def numbered(count: int) -> list[str]:
    """Ids of the first records."""
    return [f"ev_{number}" for number in range(count)]
