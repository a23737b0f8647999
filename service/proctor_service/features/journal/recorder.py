"""Sender of records, in the listening process, to the writer process of the journal.

Each record stays here until the writer has written the record, so all records survive a crash of
the writer. While the database is slow or down, records beyond a bound are dropped and counted.
Rewards never wait for the journal.
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
from typing import Protocol

from proctor_service.features.journal.address import checked, is_plain_file
from proctor_service.features.journal.entry import Entries, Record
from proctor_service.observe.observer import Observer
from proctor_service.outcomes import Item, Outcome, Trajectory, TrajectoryPlan
from proctor_service.processes.child import Child
from proctor_service.processes.connection import NOTE, Connection, Message

log = logging.getLogger(__name__)

MODULE = ("-m", "proctor_service.features.journal")
MOST_UNWRITTEN_BYTES = 64 << 20
LARGEST_RECORD_BYTES = 32 << 20
CLOSE_SECONDS = 6.0
PAUSES_SECONDS = (0.0, 0.5, 2.0, 5.0)


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

    `environment`: variables of the process.
    """

    def __init__(
        self,
        target: Target,
        with_texts: bool,
        counters: RecordCounters,
        environment: Mapping[str, str],
        command: Sequence[str] = (sys.executable, *MODULE),
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

    @property
    def unwritten(self) -> int:
        """Number of records not yet written."""
        return len(self._unwritten)

    def open(self) -> None:
        """Start the writer process, in the running loop, and restart the process after each crash."""
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Wait a moment until all records are written, and end the writer process."""
        self._closing = True
        if self._connection is not None:
            self._connection.finish()
        if self._keeper is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await asyncio.shield(self._keeper)
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._unwritten:
            self._counters.journal_dropped("stopped", len(self._unwritten))

    def item_ended(self, item: Item, outcome: Outcome, seconds: float) -> None:
        """Record an evaluation; a peer's item is recorded in the peer's journal."""
        if item.origin is not None:
            self._add(lambda: self._entries.evaluation(item, outcome, seconds))

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
            return
        number = next(self._numbers)
        self._unwritten[number] = written
        self._unwritten_bytes += size
        if self._connection is not None:
            self._connection.send_later(NOTE, "record", (number, written))

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
            case "dropped":
                self._counters.journal_dropped("invalid", value)
            case "down":
                log.error("the journal takes no records now", extra={"why": value})
            case "open":
                log.info("the journal is open", extra={"at": self._target.place})
