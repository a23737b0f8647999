"""The journal's database: opened, migrated, written in groups, and kept within bounds."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import (
    Connection,
    Table,
    bindparam,
    delete,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy.engine import URL

from proctor_service.features.journal.database import connect
from proctor_service.features.journal.entry import Record
from proctor_service.features.journal.rows import Batch, KnownTexts, clean, unpacked, words_of
from proctor_service.features.journal.schema import evaluations, labels, metadata, rollouts, texts
from proctor_service.features.journal.series import COUNTED, Changes

Row = dict[str, Any]
MIGRATIONS = "proctor_service:features/journal/migrations"
PRUNED_AT_ONCE = 1000
"""More records than are written together: a journal gets below its bound while records come."""
TEXTS_PRUNED_AT_ONCE = 4000
WORDS_FORGOTTEN_AT_ONCE = 100
"""So many texts are in memory."""
WRITTEN_WITHIN_SECONDS = 60.0
"""A writer knows texts as stored until its transaction ends, which takes less."""
_OF_PRUNED = ("number", "completion", "tags", "signals")
_SIZE_IN_POSTGRESQL = text(
    "SELECT coalesce(sum(pg_total_relation_size(to_regclass(name))), 0)"
    " FROM unnest(CAST(:names AS text[])) AS name"
)


class JournalStore:
    """Writer of the database; used by a single process. All methods block.

    `version`: version of the service, in each record. `with_words`: the words of completions are
    indexed.
    """

    def __init__(self, url: URL, version: str, *, with_words: bool = True) -> None:
        self._url = url
        self._engine = connect(url)
        self._version = version
        self._with_words = with_words
        self._is_sqlite = url.get_backend_name() == "sqlite"
        self._known_texts = KnownTexts()
        self._last_size_bytes = 0

    def open(self) -> None:
        """Create the database or bring it up to date. Raises SQLAlchemyError and OSError."""
        if self._is_sqlite:
            _make_private(Path(str(self._url.database)))
        config = Config()
        config.set_main_option("script_location", MIGRATIONS)
        with self._engine.begin() as connection:
            # Services start together: one migrates, the others wait. The driver of SQLite would begin
            # its transaction after the tables are made.
            lock = "BEGIN IMMEDIATE" if self._is_sqlite else "SELECT pg_advisory_xact_lock(7766001)"
            connection.execute(text(lock))
            config.attributes["connection"] = connection
            if inspect(connection).has_table("alembic_version"):
                command.upgrade(config, "head")
            else:
                metadata.create_all(connection)
                command.stamp(config, "head")

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def write(self, records: Sequence[Record]) -> None:
        """Write records in a single transaction; records with a stored id are skipped.

        Raises SQLAlchemyError, and then writes none of the records.
        """
        try:
            batch = Batch(self._version, self._known_texts)
            for record in records:
                batch.add(record)
            with self._begin() as connection:
                self._insert(connection, texts, batch.texts, update=("digest", "used_at"))
                self._insert(connection, rollouts, batch.rollouts)
                self._write_evaluations(connection, batch)
        except BaseException:
            self._known_texts.forget()
            raise

    @contextmanager
    def _begin(self) -> Iterator[Connection]:
        """Return a connection in a writing transaction."""
        with self._engine.begin() as connection:
            if self._is_sqlite:  # other writers wait between this read and this write
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection

    def _write_evaluations(self, connection: Connection, batch: Batch) -> None:
        if not batch.evaluations:
            return
        # Only what is new: a record may come twice, after the end of a writer.
        numbers = self._insert_evaluations(connection, batch.evaluations)
        found = [
            {"tenant": tenant, "kind": kind, "label": label, "number": numbers[id_]}
            for id_, tenant, kind, label in batch.labels
            if id_ in numbers
        ]
        self._insert(connection, labels, found)
        if self._with_words:
            words = dict(batch.words)
            found_words = [(numbers[id_], words[id_]) for id_ in numbers if id_ in words]
            self._insert_words(connection, found_words)
        changes = Changes()
        rows = {row["id"]: row for row in batch.evaluations}
        for id_ in numbers:
            changes.add([rows[id_][name] for name in COUNTED])
        changes.write(connection)

    def _insert_evaluations(self, connection: Connection, rows: Sequence[Row]) -> dict[str, int]:
        """Insert evaluations; return the numbers of the new ones by id.

        They get their numbers here: RETURNING of many rows costs more than all the rest.
        """
        if self._is_sqlite:
            last = connection.execute(select(func.max(evaluations.c.number))).scalar() or 0
            numbers = list(range(last + 1, last + 1 + len(rows)))
        else:
            sequence = func.pg_get_serial_sequence(evaluations.name, "number")
            following = func.nextval(sequence).label("number")
            each = func.generate_series(1, len(rows)).table_valued("n")
            numbers = list(connection.execute(select(following).select_from(each)).scalars())
        numbered = [{"number": number, **row} for number, row in zip(numbers, rows, strict=True)]
        self._insert(connection, evaluations, numbered)
        new = select(evaluations.c.id, evaluations.c.number).where(
            evaluations.c.number.in_(numbers)
        )
        return {row.id: row.number for row in connection.execute(new)}

    def _insert(
        self,
        connection: Connection,
        table: Table,
        rows: Sequence[Row],
        update: tuple[str, str] | None = None,
    ) -> None:
        """Insert rows with the same columns; for a known key, do nothing or increase one column.

        The driver takes the values as they are: SQLAlchemy's work on each would be a third of all.
        """
        if not rows:
            return
        names = tuple(rows[0])
        mark = "?" if self._is_sqlite else "%s"
        statement = (
            f"INSERT INTO {table.name} ({', '.join(names)})"
            f" VALUES ({', '.join([mark] * len(names))}) ON CONFLICT "
        )
        if update is None:
            statement += "DO NOTHING"
        else:
            key, column = update
            # Never back: a process of an older version rounds up to an hour, and counts on that.
            statement += (
                f"({key}) DO UPDATE SET {column} = excluded.{column}"
                f" WHERE {table.name}.{column} < excluded.{column}"
            )
        connection.exec_driver_sql(statement, [tuple(row.values()) for row in rows])

    def _insert_words(self, connection: Connection, words: Sequence[tuple[int, str]]) -> None:
        if not words:
            return
        if self._is_sqlite:
            statement = "INSERT INTO words (rowid, completion) VALUES (?, ?)"
        else:
            statement = (
                "INSERT INTO words (number, found) VALUES (%s, strip(to_tsvector('simple', %s)))"
            )
        connection.exec_driver_sql(statement, words)

    # ------------------------------------------------------------ bounds

    def has_outgrown(self, most_bytes: float) -> bool:
        """Return True if the database is larger than this, and the oldest records are to go.

        The files of PostgreSQL stay as large as they are, with room for new rows in place of the
        removed ones: there it is True only if they have grown since the last call.
        """
        size, last = self.size_bytes(), self._last_size_bytes
        self._last_size_bytes = size
        return size > most_bytes and (self._is_sqlite or size > last)

    def size_bytes(self) -> int:
        """Return the size of the journal on disk, without the free pages of a file of SQLite."""
        with self._engine.connect() as connection:
            if self._is_sqlite:
                pages = connection.execute(text("PRAGMA page_count")).scalar_one()
                free = connection.execute(text("PRAGMA freelist_count")).scalar_one()
                size = connection.execute(text("PRAGMA page_size")).scalar_one()
                return int((pages - free) * size)
            names = [*metadata.tables, "words"]
            found = connection.execute(_SIZE_IN_POSTGRESQL, {"names": names})
            return int(found.scalar_one())

    def prune(self, before: float, most: int = PRUNED_AT_ONCE) -> int:
        """Remove up to `most` of the oldest evaluations and rollouts from before a time.

        Returns how many were removed. `prune_texts` removes the texts used by them alone.
        """
        return self._prune(before, before, most)

    def _prune(self, evaluations_before: float, rollouts_before: float, most: int) -> int:
        with self._begin() as connection:
            oldest = (
                select(evaluations.c.number)
                .where(evaluations.c.at < evaluations_before)
                .order_by(evaluations.c.at)
                .limit(most)
            )
            columns = [evaluations.c[name] for name in (*COUNTED, *_OF_PRUNED)]
            # Rows removed by another process at the same time are counted once.
            old = connection.execute(
                delete(evaluations).where(evaluations.c.number.in_(oldest)).returning(*columns)
            ).all()
            if self._with_words:
                self._forget_words(connection, old)
            _forget_labels(connection, old)
            changes = Changes()
            for row in old:
                changes.add(row[: len(COUNTED)], by=-1)
            changes.write(connection)
            old_rollouts = (
                select(rollouts.c.number)
                .where(rollouts.c.at < rollouts_before)
                .order_by(rollouts.c.at)
                .limit(most)
            )
            gone = connection.execute(delete(rollouts).where(rollouts.c.number.in_(old_rollouts)))
            return len(old) + max(gone.rowcount, 0)

    def prune_oldest(self, part: float) -> int:
        """Remove this part of the evaluations and of the rollouts, the oldest; return how many.

        At most `PRUNED_AT_ONCE` of each are removed.
        """
        with self._engine.connect() as connection:
            evaluations_before = _end_of_oldest(connection, evaluations, part)
            rollouts_before = _end_of_oldest(connection, rollouts, part)
        return self._prune(evaluations_before, rollouts_before, PRUNED_AT_ONCE)

    def prune_texts(self, most: int = TEXTS_PRUNED_AT_ONCE) -> int:
        """Remove up to `most` of the texts whose last record is gone; return how many.

        Texts in use stay: a writer in another process may know them as stored.
        """
        with self._begin() as connection:
            first = connection.execute(select(func.min(evaluations.c.at))).scalar()
            other = connection.execute(select(func.min(rollouts.c.at))).scalar()
            times = [each for each in (first, other) if each is not None]
            unused = min([time.time() - WRITTEN_WITHIN_SECONDS, *times])
            oldest = (
                select(texts.c.digest)
                .where(texts.c.used_at < unused)
                .order_by(texts.c.used_at)
                .limit(most)
            )
            digests = connection.execute(oldest).scalars().all()
            # The time again: another process may use one of these texts before it is removed. As a
            # list: PostgreSQL may join a subquery of some thousand rows by comparing all with all.
            gone = connection.execute(
                delete(texts).where(texts.c.digest.in_(digests), texts.c.used_at < unused)
            )
            removed = max(gone.rowcount, 0)
        if removed:
            self._known_texts.forget()
        return removed

    def _forget_words(self, connection: Connection, old: Sequence[Any]) -> None:
        if not self._is_sqlite:
            numbers = [row.number for row in old]
            connection.execute(text("DELETE FROM words WHERE number = ANY(:n)"), {"n": numbers})
            return
        # The index has no content: it needs the text to find its entries.
        for begin in range(0, len(old), WORDS_FORGOTTEN_AT_ONCE):
            some = old[begin : begin + WORDS_FORGOTTEN_AT_ONCE]
            digests = {row.completion for row in some} - {None}
            found = select(texts.c.digest, texts.c.packed).where(texts.c.digest.in_(digests))
            values = {row.digest: row.packed for row in connection.execute(found)}
            words = [
                (row.number, words_of(unpacked(value).decode("utf-8", "surrogatepass")))
                for row in some
                if (value := values.get(row.completion)) is not None
            ]
            if words:
                connection.exec_driver_sql(
                    "INSERT INTO words (words, rowid, completion) VALUES ('delete', ?, ?)", words
                )


def _end_of_oldest(connection: Connection, table: Table, part: float) -> float:
    """Return the time before which this part of a table's records were made; 0 for no record.

    The count ends at the number removed at once: a count of a million rows takes too long.
    """
    some = select(table.c.number).limit(int(PRUNED_AT_ONCE / part)).subquery()
    count = connection.execute(select(func.count()).select_from(some)).scalar_one()
    row = select(table.c.at).order_by(table.c.at).offset(max(1, int(count * part))).limit(1)
    return connection.execute(row).scalar() or 0.0


def _forget_labels(connection: Connection, old: Iterable[Any]) -> None:
    found = [
        {"t": row.tenant, "k": kind, "l": clean(label), "n": row.number}
        for row in old
        for kind, names in (("tag", row.tags), ("signal", row.signals))
        for label in json.loads(names)
    ]
    if found:
        key = (labels.c.tenant, labels.c.kind, labels.c.label, labels.c.number)
        same = [column == bindparam(name) for column, name in zip(key, "tkln", strict=True)]
        connection.execute(delete(labels).where(*same), found)


def _make_private(path: Path) -> None:
    """Create the file for its owner alone; SQLite gives its companions the same mode."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
