"""Connections to the journal's database, and the bounds of a question."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import OperationalError, SQLAlchemyError

T = TypeVar("T")
LOCKED_SECONDS = 5.0
CONNECT_SECONDS = 5
_STEPS = 500_000
"""Steps of SQLite between two looks at the clock, some milliseconds apart."""
_PAUSE_SECONDS = 0.02
_DEADLINE = "deadline"
_ENDED = ("SQLITE_INTERRUPT", "57014")
"""Names of the error of an ended question, in SQLite and PostgreSQL."""


class TooSlow(Exception):
    """A question took longer than allowed."""


def connect(url: URL, *, read_only: bool = False) -> Engine:
    """Return the engine of the database. Connections open later."""
    if url.get_backend_name() != "sqlite":
        return create_engine(
            url, pool_pre_ping=True, connect_args={"connect_timeout": CONNECT_SECONDS}
        )
    if read_only:  # never creates the file: the writer makes it, for its owner alone
        file = f"file:{quote(str(url.database))}?mode=rw"
        open_file = partial(
            sqlite3.connect, file, timeout=LOCKED_SECONDS, uri=True, check_same_thread=False
        )
        engine = create_engine(url, creator=open_file)
    else:
        engine = create_engine(url, connect_args={"timeout": LOCKED_SECONDS})

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, _: object) -> None:
        if read_only:
            connection.execute("PRAGMA query_only = 1")
        else:
            _set_journal_mode(connection)
            connection.execute("PRAGMA synchronous = NORMAL")

    return engine


def _set_journal_mode(connection: sqlite3.Connection) -> None:
    """Turn on the write-ahead log. SQLite itself fails when two processes do so together."""
    deadline = time.monotonic() + LOCKED_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return


class Database:
    """Database for questions. `query_seconds`: longest time of a question; None: unbounded."""

    def __init__(self, url: URL, query_seconds: float | None = None) -> None:
        self.is_sqlite = url.get_backend_name() == "sqlite"
        self._url = url
        self._engine = connect(url, read_only=True)
        self._query_seconds = query_seconds
        if not self.is_sqlite:
            event.listen(self._engine, "before_cursor_execute", _bound_statement)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def ask(self, question: Callable[[Connection], T], empty: T) -> T:
        """Return the answer to a question; `empty` if the writer has not made the tables yet.

        Raises TooSlow and SQLAlchemyError.
        """
        try:
            with self._engine.connect() as connection, self._bounded(connection):
                return question(connection)
        except SQLAlchemyError as error:
            if _is_ended(error):
                raise TooSlow from None
            if self.has_tables():
                raise
            return empty

    def has_tables(self) -> bool:
        """Return False if the database lacks the journal's tables."""
        if self.is_sqlite and not Path(str(self._url.database)).exists():
            return False
        if self.is_sqlite:
            query = "SELECT count(*) FROM sqlite_master WHERE name = 'evaluations'"
        else:
            query = "SELECT count(to_regclass('evaluations'))"
        try:
            with self._engine.connect() as connection:
                return bool(connection.execute(text(query)).scalar_one())
        except SQLAlchemyError:
            return True

    @contextmanager
    def _bounded(self, connection: Connection) -> Iterator[None]:
        """End the connection's statements when the time of the question is over."""
        if self._query_seconds is None:
            yield
            return
        deadline = time.monotonic() + self._query_seconds
        if not self.is_sqlite:
            connection.info[_DEADLINE] = deadline
            try:
                yield
            finally:
                connection.info.pop(_DEADLINE, None)
            return
        driver: Any = connection.connection.driver_connection
        driver.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
        try:
            yield
        finally:
            driver.set_progress_handler(None, 0)


def _bound_statement(connection: Connection, cursor: Any, *_: object) -> None:
    """Give a statement of PostgreSQL the rest of its question's time. Raises TooSlow."""
    deadline = connection.info.get(_DEADLINE)
    if deadline is not None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TooSlow
        cursor.execute(f"SET LOCAL statement_timeout = {max(1, int(1000 * left))}")


def short_error(error: Exception) -> str:
    """Return the first line of an error: SQLAlchemy adds the statement with its values."""
    return str(getattr(error, "orig", None) or error).partition("\n")[0][:300]


def _is_ended(error: SQLAlchemyError) -> bool:
    cause = error.orig if isinstance(error, OperationalError) else None
    names = (getattr(cause, "sqlite_errorname", None), getattr(cause, "sqlstate", None))
    return any(name in _ENDED for name in names)
