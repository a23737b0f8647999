"""Writer process of the journal: receives records, and writes them in groups.

The listening process never waits for the writer. While the database is down, records wait in both
processes, up to a bound in the listening process, which drops the rest. Old records are pruned in
pieces, between two groups, while the queue is empty. The process ends with its connection, after a
last attempt to write.
"""

from __future__ import annotations

import logging
import marshal
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any

from alembic.util import CommandError
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    SQLAlchemyError,
    StatementError,
)

from proctor_service.features.journal.address import checked
from proctor_service.features.journal.database import short_error
from proctor_service.features.journal.entry import time_of
from proctor_service.features.journal.store import (
    PRUNED_AT_ONCE,
    TEXTS_PRUNED_AT_ONCE,
    JournalStore,
)
from proctor_service.processes.child import Incoming, set_up
from proctor_service.processes.connection import NOTE, frame_of

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.3
GATHER_MANY_SECONDS = 1.0
FEW = 50
"""More records than this are gathered for longer: a large group costs half as much for each record."""
READ_PAUSE_SECONDS = 0.05
"""A reading for each record would take the core from a sandbox as often."""
MANY_BYTES = 64 << 10
"""After a reading of this size more has come already, and the writer reads on without a pause."""
MOST_TOGETHER = 500
PAUSES_SECONDS = (0.1, 0.5, 1.0, 2.0)
LAST_SECONDS = 4.0
PRUNE_SECONDS = 30.0
PRUNED_PART = 0.02
LATE_SECONDS = 3.0
"""While writes are so late, records go first: the listening process drops the excess."""
MOST_UNPRUNED = 20_000
"""But once so many are written, a journal beyond its bounds loses as many records as it gets, however
long more comes than can be written."""


class Writer:
    """Writes records into a store, and reports progress to the listening process.

    `age_seconds`, `size_bytes`: bounds of the journal; older records are removed.
    """

    def __init__(
        self, store: JournalStore, end: socket.socket, age_seconds: float, size_bytes: float
    ):
        self._store = store
        self._end = end
        self._age_seconds = age_seconds
        self._size_bytes = size_bytes
        self._waiting: list[tuple[int, bytes]] = []
        self._pruned_at = time.monotonic()
        self._has_more_to_prune = False
        self._unpruned = 0
        self._is_late = False
        self._first_at = 0.0

    def take(self, messages: Iterable[Sequence[Any]]) -> None:
        """Take records, to write them soon."""
        for _, _, numbered in messages:
            if not self._waiting:
                self._first_at = time.monotonic()
            self._waiting.append(numbered)

    def open(self, incoming: Incoming) -> bool:
        """Open the store, and say so; try again until success. False if the connection ended."""
        tries = 0
        while incoming.is_open:
            try:
                self._store.open()
            except (SQLAlchemyError, CommandError, OSError) as error:
                if not tries:
                    self._report("down", short_error(error))
                self.take(incoming.messages(PAUSES_SECONDS[min(tries, len(PAUSES_SECONDS) - 1)]))
                tries += 1
            else:
                self._report("open", "")
                return True
        return False

    def run(self, incoming: Incoming) -> None:
        """Write records until the connection ends.

        Between two groups at most one piece is pruned, and only while the queue is empty.
        """
        while incoming.is_open:
            self.take(incoming.messages(self._seconds_left()))
            if not self._waiting:
                self._is_late = False
            if self._waiting and self._seconds_left() <= 0:
                self._write(None)
            if not self._waiting and self._is_pruning_due():
                self._prune()
            elif self._waiting and incoming.is_open and incoming.last_bytes < MANY_BYTES:
                time.sleep(READ_PAUSE_SECONDS)
        self._write(time.monotonic() + LAST_SECONDS)

    def _seconds_left(self) -> float:
        """Return the time until the next write of waiting records, or the next pruning."""
        if not self._waiting:
            return 0.0 if self._has_more_to_prune else PRUNE_SECONDS
        if len(self._waiting) >= MOST_TOGETHER:
            return 0.0
        seconds = GATHER_SECONDS if len(self._waiting) <= FEW else GATHER_MANY_SECONDS
        return self._first_at + seconds - time.monotonic()

    def _write(self, deadline: float | None) -> None:
        """Write all waiting records; try again until success, or until the deadline.

        A group with an invalid record is written record by record, and invalid records are dropped.
        """
        tries = singly = 0
        while self._waiting:
            group = self._waiting[: 1 if singly else MOST_TOGETHER]
            try:
                records = [marshal.loads(record) for _, record in group]
                self._is_late = time.time() - time_of(records[-1]) > LATE_SECONDS
                self._store.write(records)
            except Exception as error:  # the next writer would get the record, too
                if not _is_of_a_record(error):
                    if not tries:
                        why = short_error(error)
                        log.warning("the journal cannot be written", extra={"why": why})
                        self._report("down", why)
                    pause = PAUSES_SECONDS[min(tries, len(PAUSES_SECONDS) - 1)]
                    tries += 1
                    if deadline is not None and time.monotonic() + pause > deadline:
                        return
                    time.sleep(pause)
                    continue
                if len(group) > 1:
                    singly = len(group)
                    continue
                log.warning("a record of the journal is dropped", extra={"why": short_error(error)})
                self._report("dropped", 1)
            tries, singly = 0, max(0, singly - 1)
            del self._waiting[: len(group)]
            self._unpruned += len(group)
            self._report("written", group[-1][0])

    def _is_pruning_due(self) -> bool:
        """Return True if a piece is to be pruned now, or looked for."""
        if self._is_late and self._unpruned < MOST_UNPRUNED:
            return False
        if self._has_more_to_prune or self._unpruned >= PRUNED_AT_ONCE:
            return True
        return time.monotonic() - self._pruned_at > PRUNE_SECONDS

    def _prune(self) -> None:
        """Remove a piece beyond the bounds: unused texts, and then the oldest records."""
        removed = texts = 0
        try:
            texts = self._store.prune_texts()
            if texts < TEXTS_PRUNED_AT_ONCE:  # their room may be enough
                removed = self._store.prune(time.time() - self._age_seconds)
                if self._store.has_outgrown(self._size_bytes):
                    removed += self._store.prune_oldest(PRUNED_PART)
        except (SQLAlchemyError, OSError) as error:
            log.warning("the journal cannot be pruned", extra={"why": short_error(error)})
        self._pruned_at = time.monotonic()
        self._has_more_to_prune = bool(removed or texts)
        self._unpruned = max(0, self._unpruned - removed) if self._has_more_to_prune else 0

    def _report(self, name: str, value: Any) -> None:
        try:
            self._end.sendall(b"".join(frame_of([(NOTE, name, value)])))
        except OSError:  # the listening process has ended
            return


def _is_of_a_record(error: Exception) -> bool:
    """Return True for an error of the record itself, for example a too large integer."""
    if isinstance(error, DBAPIError):
        return isinstance(error, DataError | IntegrityError)
    return isinstance(error, StatementError) or not isinstance(error, SQLAlchemyError | OSError)


def run(arguments: Sequence[str]) -> None:
    """Run the process to its end. `arguments`: the descriptor of the connection."""
    end, incoming, first = set_up(arguments[0])
    if not first:
        return
    _, _, (url, version, with_words, age_seconds, size_bytes) = first[0]
    store = JournalStore(checked(url), version, with_words=with_words)
    writer = Writer(store, end, age_seconds, size_bytes)
    writer.take(first[1:])
    if writer.open(incoming):
        writer.run(incoming)
    store.close()
