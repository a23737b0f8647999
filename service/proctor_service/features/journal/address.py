"""Addresses of the journal's database."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from proctor_service.errors import StartError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

_PLAIN_FILE = re.compile(r"sqlite:///[A-Za-z0-9/._ -]+")
"""Address of a file without escapes, such as `sqlite:////var/lib/proctor/journal-8080.db`."""
_EXPECTED = "expected sqlite:////path/to/file, postgresql://user@host/database, or off"


def is_plain_file(url: str) -> bool:
    """Return True for a valid address of a file, without escapes.

    SQLAlchemy, which parses all other addresses, is slow to import.
    """
    return _PLAIN_FILE.fullmatch(url) is not None


def checked(url: str) -> URL:
    """Return the parsed address. Raises StartError unless it is of SQLite or of PostgreSQL."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

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
    url = f"sqlite:///{path}"
    if is_plain_file(url):
        return url
    from sqlalchemy.engine import URL

    return URL.create("sqlite", database=str(path)).render_as_string()
