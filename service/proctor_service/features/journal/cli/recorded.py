"""Access of commands to the journal's database, with errors for users to fix.

The commands of an operator see the records of all tenants, or of a chosen tenant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proctor_service.cli.console import plain
from proctor_service.cli.failures import Trouble, settings_from
from proctor_service.errors import StartError
from proctor_service.settings.state_folder import NoStateFolder, journal_path
from proctor_service.version import version

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from proctor_service.features.journal.filters import Filter
    from proctor_service.features.journal.reading import Page, Reader
    from proctor_service.features.journal.store import JournalStore

_SET = "set PROCTOR_JOURNAL to its address"
_MOST_OTHERS = 20
Row = dict[str, Any]
Read = Callable[["str | None", "Filter", int, "int | None"], "Page"]
Tenant = Annotated[
    str | None, typer.Option(help="Only records of this tenant; default: of all tenants.")
]


@contextmanager
def reading() -> Iterator[Reader]:
    """Return a reader of the journal. Raises Trouble, also for errors of the database meanwhile."""
    address = _address()
    from proctor_service.features.journal.reading import Reader

    with _explained(address):
        reader = Reader(address)
        try:
            if not reader.has_tables():
                place = address.render_as_string(hide_password=True)
                raise Trouble(f"no journal is at {place}: its tables are not there")
            yield reader
        finally:
            reader.close()


@contextmanager
def writing() -> Iterator[JournalStore]:
    """Return a store for the journal, which must exist. Raises Trouble as `reading`."""
    with reading() as reader:  # a foreign database is left unchanged
        from proctor_service.features.journal.filters import Filter

        reader.evaluations(None, Filter(), 1)
    address = _address()
    from proctor_service.features.journal.store import JournalStore

    with _explained(address):
        store = JournalStore(address, version())
        try:
            yield store
        finally:
            store.close()


def rows(
    read: Read, tenant: str | None, wanted: Filter, *, page: int, limit: int | None = None
) -> Iterator[Row]:
    """Yield matching evaluations, the newest first, at most `limit`; `page` are read at once."""
    before, left = None, limit
    while left is None or left > 0:
        found = read(tenant, wanted, page if left is None else min(page, left), before)
        yield from found.rows
        if found.following is None:
            return
        before = found.following
        left = None if left is None else left - len(found.rows)


def _address() -> URL:
    """Return the database's address. Raises Trouble without an address, or without its file."""
    from proctor_service.features.journal.address import checked

    set_address, folder = _set_or_own()
    if set_address == "off":
        raise Trouble(f"the journal is off: {_SET}")
    try:
        address = checked(set_address)
    except StartError as error:
        raise Trouble(str(error)) from None
    if address.get_backend_name() == "sqlite" and not Path(str(address.database)).is_file():
        others = "" if folder is None else _others(folder)
        raise Trouble(f"no journal is at {address.database}{others}")
    return address


def _set_or_own() -> tuple[str, Path | None]:
    """Return the configured address, or the file in the state folder and this folder.

    Raises Trouble without a home.
    """
    settings = settings_from()
    if settings.journal is not None:
        return settings.journal.get_secret_value(), None
    from proctor_service.features.journal.address import of_file

    try:
        path = journal_path(settings.address())
    except NoStateFolder as error:
        raise Trouble(f"no journal: {error}; {_SET}") from None
    return of_file(path), path.parent


def _others(folder: Path) -> str:
    """Return lines with the journals of services at other addresses."""
    from proctor_service.features.journal.address import of_file

    found = sorted(folder.glob("journal-*.db")) if folder.is_dir() else []
    if not found:
        return f"; {_SET}"
    lines = "".join(f"\n  PROCTOR_JOURNAL={plain(of_file(path))}" for path in found[:_MOST_OTHERS])
    return f"; services at other addresses have:{lines}"


@contextmanager
def _explained(address: URL) -> Iterator[None]:
    """Turn errors of the database into Trouble; the message is free of passwords and statements."""
    from sqlalchemy.exc import SQLAlchemyError

    place = address.render_as_string(hide_password=True)
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise Trouble(
            "PostgreSQL needs psycopg: python -m pip install 'proctor-service[postgres]'"
        ) from None
    except SQLAlchemyError as error:
        why = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        raise Trouble(f"the journal at {place} cannot be used: {why}") from None
