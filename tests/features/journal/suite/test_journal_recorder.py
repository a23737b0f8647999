"""The journal's writer in a process of its own: nothing waits for it, and nothing it had is lost."""

from __future__ import annotations

import asyncio
import marshal
import os
import resource
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from journal_recorder import FIRST, numbered, recording
from sqlalchemy.exc import DataError, OperationalError

from proctor_service.features.journal import process
from proctor_service.features.journal import recorder as recorder_module
from proctor_service.features.journal.entry import EVALUATION, Record
from proctor_service.features.journal.store import PRUNED_AT_ONCE
from proctor_service.judge.submission import Judgement
from proctor_service.outcomes import Outcome
from proctor_service.processes.child import Child
from proctor_service.processes.connection import NOTE, Message

PRUNING = (
    sys.executable,
    "-c",
    "import sys; from proctor_service.features.journal import process as p; p.PRUNE_SECONDS = 0.1; "
    "p.run(sys.argv[1:])  # proctor_service.features.journal",
)
"""The same, but old records are looked for ten times a second."""


async def test_records_are_written_and_counted(tmp_path: Path) -> None:
    async with recording(tmp_path / "j.db") as under:
        under.record(0, 1200)
        await under.written(1200)
        assert under.recorder.unwritten == 0
    assert under.ids() == numbered(1200)
    assert under.counts.dropped == {}


async def test_what_is_not_yet_written_is_written_at_the_end(tmp_path: Path) -> None:
    async with recording(tmp_path / "j.db") as under:
        under.record(0, 1)
        await under.written(1)
        under.record(1, 300)
    assert under.ids() == numbered(300)
    assert under.counts.dropped == {}


async def test_a_killed_writer_loses_nothing_and_writes_nothing_twice(tmp_path: Path) -> None:
    async with recording(tmp_path / "j.db") as under:
        under.record(0, 10)
        await under.written(10)
        for turn in range(3):
            begin = 10 + 400 * turn
            under.record(begin, begin + 400)
            await asyncio.sleep(0.05 * turn)  # at another point of the way each time
            os.kill(under.writer(), signal.SIGKILL)
            await under.written(begin + 400)
    assert under.ids() == numbered(1210)
    assert under.counts.dropped == {}


async def test_a_locked_database_delays_records_and_nothing_else(tmp_path: Path) -> None:
    async with recording(tmp_path / "j.db") as under:
        under.record(0, 10)
        await under.written(10)
        lock = sqlite3.connect(under.path, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        under.record(10, 500)
        await asyncio.sleep(1)
        assert under.counts.written == 10
        lock.execute("ROLLBACK")
        lock.close()
        await under.written(500)
    assert under.ids() == numbered(500)


async def test_a_full_disk_delays_records(tmp_path: Path) -> None:
    async with recording(tmp_path / "j.db") as under:
        under.record(0, 10)
        await under.written(10)
        writer = under.writer()
        # As a full disk does: no file grows beyond what it has.
        resource.prlimit(writer, resource.RLIMIT_FSIZE, (under.size(), resource.RLIM_INFINITY))
        under.record(10, 500)
        await asyncio.sleep(1)
        assert under.counts.written < 500
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(writer, resource.RLIMIT_FSIZE, unlimited)
        await under.written(500)
        assert under.writer() == writer
    assert under.ids() == numbered(500)


async def test_records_beyond_the_bound_are_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "MOST_UNWRITTEN_BYTES", 20_000)
    async with recording(tmp_path / "j.db") as under:
        under.record(0, 1000)
        dropped = under.counts.dropped["full"]
        assert 0 < dropped < 1000
        await under.written(1000 - dropped)
        under.record(1000, 1001)
        await under.written(1001 - dropped)
    ids = under.ids()
    assert (ids[0], ids[-1]) == ("ev_0", "ev_1000")


def messages(*ids: str, at: float = 0.0) -> Iterator[Message]:
    """Messages with records of evaluations that ended at a time."""
    for number, id_ in enumerate(ids):
        yield NOTE, "record", (number, marshal.dumps((EVALUATION, (id_, at))))


class PickyStore:
    """A store that takes no group with a certain record, and is down for the fourth attempt."""

    def __init__(self, refusal: Exception) -> None:
        self.refusal = refusal
        self.attempts = 0
        self.taken: list[str] = []

    def write(self, records: list[Record]) -> None:
        """Take the records, or none of them."""
        ids = [head[0] for _, head in records]
        self.attempts += 1
        if self.attempts == 4:
            raise OperationalError("INSERT", {}, Exception("down"))
        if "bad" in ids:
            raise self.refusal
        self.taken += ids


@pytest.mark.parametrize(
    "refusal", [DataError("INSERT", {}, Exception("bad")), OverflowError("an integer of 67 bits")]
)
def test_a_record_that_the_database_does_not_take_costs_no_other(
    refusal: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "PAUSES_SECONDS", (0.0,))
    store = PickyStore(refusal)
    end, other = socket.socketpair()
    with end, other:
        writer = process.Writer(store, end, 1e6, 1e12)  # type: ignore[arg-type]
        writer.take(messages("a", "bad", "b", "c"))
        writer._write(None)
        said = other.recv(1 << 16)
    assert store.taken == ["a", "b", "c"]
    assert said.count(b"dropped") == 1


class FullStore:
    """A store beyond its bounds for so many pieces, which notes what is asked of it."""

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces
        self.steps: list[str] = []

    def write(self, records: list[Record]) -> None:
        """Take the records."""
        self.steps.append(f"write {len(records)}")

    def prune_texts(self) -> int:
        """Have no unused texts."""
        return 0

    def prune(self, before: float) -> int:
        """Have no records that are too old."""
        return 0

    def has_outgrown(self, most_bytes: float) -> bool:
        """Return True while there are pieces."""
        return self.pieces > 0

    def prune_oldest(self, part: float) -> int:
        """Remove a piece."""
        self.pieces -= 1
        self.steps.append("prune")
        return PRUNED_AT_ONCE


class Script:
    """A connection on which groups of messages come, one at each look, and then no more."""

    last_bytes = 0

    def __init__(self, looks: Sequence[Sequence[Message]]) -> None:
        self.looks = list(looks)

    @property
    def is_open(self) -> bool:
        """False after the last look."""
        return bool(self.looks)

    def messages(self, seconds: float) -> Iterator[Message]:
        """Yield the next group."""
        yield from self.looks.pop(0)


MANY = tuple(map(str, range(process.MOST_TOGETHER)))
WRITE, PRUNE = f"write {len(MANY)}", "prune"


@pytest.mark.parametrize(
    ("age_seconds", "groups", "pieces", "steps"),
    [
        (0.0, 6, 3, [WRITE, WRITE, PRUNE, WRITE, PRUNE, WRITE, PRUNE, WRITE, WRITE]),
        (0.0, 2, 3, [WRITE, WRITE, PRUNE, PRUNE, PRUNE]),
        (1e6, 3, 2, [WRITE, WRITE, WRITE, PRUNE, PRUNE]),
        (1e6, 8, 3, [WRITE, WRITE, WRITE, WRITE, PRUNE, WRITE, WRITE, PRUNE, WRITE, WRITE, PRUNE]),
    ],
    ids=["between groups", "to the end", "late records first", "always late"],
)
def test_what_waits_is_written_before_anything_is_pruned(
    monkeypatch: pytest.MonkeyPatch,
    age_seconds: float,
    groups: int,
    pieces: int,
    steps: list[str],
) -> None:
    monkeypatch.setattr(process, "MOST_UNPRUNED", 4 * len(MANY))
    store = FullStore(pieces)
    come = list(messages(*MANY, at=time.time() - age_seconds))
    nothing: list[list[Message]] = [[]] * 5
    end, other = socket.socketpair()
    with end, other:
        writer = process.Writer(store, end, 1e6, 1.0)  # type: ignore[arg-type]
        writer.run(Script([come] * groups + nothing))  # type: ignore[arg-type]
    assert store.steps == steps


async def test_a_record_that_cannot_be_sent_costs_no_reward(tmp_path: Path) -> None:
    class Unsendable(str):
        """A text that no message can hold."""

    async with recording(tmp_path / "j.db") as under:
        outcome = Outcome(Judgement("passed", 1, 1, message=Unsendable("x")), 1.0)
        under.recorder.item_ended(FIRST, outcome, 0.1)
        assert under.counts.dropped == {"invalid": 1}
        under.record(0, 5)
        await under.written(5)
    assert under.ids() == numbered(5)


async def test_old_records_go_while_new_ones_come(tmp_path: Path) -> None:
    async with recording(tmp_path / "j.db", age_seconds=1.0, command=PRUNING) as under:
        under.record(0, 100)
        await under.written(100)
        number = 100
        while True:  # on a slow machine the newest records may be too old already
            number += 10
            under.record(number - 10, number)
            await under.written(number)
            ids = under.ids()
            if "ev_0" not in ids and ids[-1:] == [f"ev_{number - 1}"]:
                break


async def test_a_database_that_cannot_be_opened_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").touch()

    async with recording(tmp_path / "folder" / "j.db") as under:
        under.record(0, 5)
        await asyncio.sleep(1)
        assert under.recorder.unwritten == 5
        (tmp_path / "folder").unlink()
        await under.written(5)
    assert under.ids() == numbered(5)


async def test_any_failure_of_the_start_is_logged_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start, failures = Child.start, [ValueError("unexpected kwargs")]

    async def failing(*arguments: Any) -> Child:
        if failures:
            raise failures.pop()
        return await start(*arguments)

    monkeypatch.setattr(Child, "start", failing)

    async with recording(tmp_path / "j.db") as under:
        under.record(0, 5)
        await under.written(5)
    assert under.ids() == numbered(5)
    assert "unexpected kwargs" in caplog.text
