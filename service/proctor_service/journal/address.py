"""Addresses of the journal's database."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from proctor_service.errors import StartError

_EXPECTED = "expected sqlite:////path/to/file, postgresql://user@host/database, or off"


def checked(url: str) -> URL:
    """Return the parsed address. Raises StartError unless it is of SQLite or of PostgreSQL."""
    try:
        found = make_url(url)
    except ArgumentError:
        raise StartError(f"PROCTOR_JOURNAL: {_EXPECTED}") from None
    if found.get_backend_name() == "sqlite" and found.database:
        return found
    if found.get_backend_name() == "postgresql":
        return found.set(drivername="postgresql+psycopg")
    raise StartError(f"PROCTOR_JOURNAL: {_EXPECTED}")


def of_file(path: Path) -> str:
    """Return the address of the SQLite database in a file."""
    return URL.create("sqlite", database=str(path)).render_as_string()
