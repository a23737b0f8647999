"""Sender of records, in the listening process, to the writer process of the journal.

Each record stays here until the writer has written the record, so all records survive a crash of
the writer. What is unwritten at a stop goes into a file, and the next start writes it. While the
database is slow or down, records beyond a bound are dropped and counted. Rewards never wait for the
journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import marshal
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from proctor_service.features.journal.address import checked, is_plain_file
from proctor_service.features.journal.entry import Entries, Record
from proctor_service.features.journal.leftover import Leftover
from proctor_service.observe.observer import Observer
from proctor_service.outcomes import Item, Outcome, Trajectory, TrajectoryPlan
from proctor_service.processes.child import Child
from proctor_service.processes.connection import NOTE, Connection, Message
from proctor_service.sandbox.interface import Usage

log = logging.getLogger(__name__)

MODULE = ("-m", "proctor_service.features.journal")
MOST_UNWRITTEN_BYTES = 64 << 20
LARGEST_RECORD_BYTES = 32 << 20
CLOSE_SECONDS = 6.0
PAUSES_SECONDS = (0.0, 0.5, 2.0, 5.0)
_NO_USAGE = Usage()


class RecordCounters(Protocol):
    """Counters of the journal."""

    def journal_written(self, records: int) -> None:
        """Count written records."""

    def journal_dropped(self, reason: str, records: int = 1) -> None:
        """Count lost records: `full`, `invalid` or `stopped`."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where records go, and how long they stay.

    `url`: address of the database. `version`: version of the service. `with_words`: completions can
    be searched. `age_seconds`, `size_bytes`: older records are removed.
    """

    url: str
    version: str
    with_words: bool
    age_seconds: float
    size_bytes: float

    @property
    def place(self) -> str:
        """The address without a password."""
        return self.url if is_plain_file(self.url) else checked(self.url).render_as_string()


class Recorder(Observer):
    """Sender of records to the writer's process, from `open` until `close`.

    `environment`: variables of the process. `leftover`: files for what is unwritten at a stop; None:
    it is lost.
    """

    def __init__(
        self,
        target: Target,
        with_texts: bool,
        counters: RecordCounters,
        environment: Mapping[str, str],
        command: Sequence[str] = (sys.executable, *MODULE),
        leftover: Leftover | None = None,
    ) -> None:
        self._target = target
        self._entries = Entries(with_texts)
        self._counters = counters
        self._environment = environment
        self._command = command
        self._numbers = itertools.count(1)
        self._unwritten: OrderedDict[int, bytes] = OrderedDict()
        self._unwritten_bytes = 0
        self._connection: Connection | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._closing = False
        self._leftover = leftover
        self._last_of_leftover: int | None = None
        self._lost = 0

    @property
    def unwritten(self) -> int:
        """Number of records not yet written."""
        return len(self._unwritten)

    async def open(self) -> None:
        """Take what earlier stops left, start the writer process, and restart it after each crash."""
        if self._leftover is not None:
            records = await asyncio.to_thread(self._leftover.load)
            for written in records:
                self._last_of_leftover = self._hold(written)
            if records:
                log.info("records of an earlier run are written", extra={"records": len(records)})
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Wait a moment until all records are written, and end the writer process.

        Unwritten records are saved for the next start, first before the wait: it may not end.
        """
        self._closing = True
        if self._connection is not None:
            self._connection.finish()
        await self._save()
        if self._keeper is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await asyncio.shield(self._keeper)
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        count = len(self._unwritten)
        if not count and self._leftover is not None:
            self._leftover.remove()
        elif count and (path := await self._save()):
            fields = {"records": count, "file": str(path)}
            log.warning("the next start writes records of the journal", extra=fields)
        elif count:
            self._counters.journal_dropped("stopped", count)
            self._lost += count
        self._log_loss()

    async def _save(self) -> Path | None:
        """Save all unwritten records in a file; None without records or without success."""
        if self._leftover is None or not self._unwritten:
            return None
        try:
            return await asyncio.to_thread(self._leftover.save, list(self._unwritten.values()))
        except OSError as error:
            log.error("records of the journal cannot be saved", extra={"why": str(error)})
            return None

    def _log_loss(self) -> None:
        if self._lost:
            log.error("records of the journal are lost", extra={"records": self._lost})
            self._lost = 0

    def item_ended(self, item: Item, outcome: Outcome, seconds: float) -> None:
        """Record an evaluation; a peer's item is recorded in the peer's journal."""
        if item.origin is not None:
            self._add(lambda: self._entries.evaluation(item, outcome, seconds))

    def item_recalled(self, item: Item, outcome: Outcome) -> None:
        """Record an evaluation of another replica, under its id: the journal has it at most once."""
        usage = _NO_USAGE if outcome.judgement is None else outcome.judgement.usage
        seconds = outcome.queue_seconds + usage.compile_seconds + usage.wall_seconds
        self.item_ended(item, outcome, seconds)

    def trajectory_ended(self, plan: TrajectoryPlan, trajectory: Trajectory) -> None:
        """Record a rollout."""
        self._add(lambda: self._entries.rollout(plan, trajectory))

    def _add(self, make: Callable[[], Record]) -> None:
        try:
            written = marshal.dumps(make())
        except Exception:  # the reward goes on, even with a broken record
            log.exception("a record of the journal cannot be sent")
            self._counters.journal_dropped("invalid")
            return
        size = len(written)
        if self._unwritten_bytes + size > MOST_UNWRITTEN_BYTES or size > LARGEST_RECORD_BYTES:
            self._counters.journal_dropped("full")
            if not self._lost:
                log.error("the journal is behind, and loses records")
            self._lost += 1
            return
        number = self._hold(written)
        if self._connection is not None:
            self._connection.send_later(NOTE, "record", (number, written))

    def _hold(self, written: bytes) -> int:
        """Keep a record until it is written; return its number."""
        number = next(self._numbers)
        self._unwritten[number] = written
        self._unwritten_bytes += len(written)
        return number

    async def _keep(self) -> None:
        """Run the writer process, again and again until `close`."""
        for tries in itertools.count():
            await asyncio.sleep(PAUSES_SECONDS[min(tries, len(PAUSES_SECONDS) - 1)])
            try:
                await self._run()
            except OSError as error:
                log.error("the journal's process cannot start", extra={"why": str(error)})
            except Exception:  # rewards go on, and the log has the reason
                log.exception("the journal's process failed")
            if self._closing:
                return
            log.warning("the journal's process ended; it is started again")

    async def _run(self) -> None:
        """Run a writer process to its end. Raises OSError."""
        child = await Child.start(self._command, self._environment, self._receive)
        connection = child.connection
        try:
            target = self._target
            connection.send(
                NOTE,
                "start",
                (
                    target.url,
                    target.version,
                    target.with_words,
                    target.age_seconds,
                    target.size_bytes,
                ),
            )
            for number, written in self._unwritten.items():
                connection.send(NOTE, "record", (number, written))
            self._connection = connection
            if self._closing:
                connection.finish()
            await child.ended()
        finally:
            self._connection = None
            await child.kill()

    def _receive(self, message: Message) -> None:
        _, name, value = message
        match name:
            case "written":
                count = 0
                while self._unwritten and (number := next(iter(self._unwritten))) <= value:
                    self._unwritten_bytes -= len(self._unwritten.pop(number))
                    count += 1
                self._counters.journal_written(count)
                last = self._last_of_leftover
                if self._leftover is not None and last is not None and last <= value:
                    self._last_of_leftover = None
                    if not self._closing:  # `close` is saving
                        self._leftover.remove()
                if self._unwritten_bytes < MOST_UNWRITTEN_BYTES / 2:
                    self._log_loss()
            case "dropped":
                self._counters.journal_dropped("invalid", value)
            case "down":
                log.error("the journal takes no records now", extra={"why": value})
            case "open":
                log.info("the journal is open", extra={"at": self._target.place})
