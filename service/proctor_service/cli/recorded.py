"""Access of commands to the journal's database, with errors that a user can fix.

The commands of an operator see the records of all tenants, or those of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proctor_service.cli.console import Trouble, service_version, settings_from
from proctor_service.errors import StartError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from proctor_service.journal.filters import Filter
    from proctor_service.journal.reading import Page, Reader
    from proctor_service.journal.store import Store

Row = dict[str, Any]
Read = Callable[["str | None", "Filter", int, "int | None"], "Page"]
Journal = Annotated[
    str | None,
    typer.Option(help="The database: sqlite:////path or postgresql://…; default: PROCTOR_JOURNAL."),
]
Tenant = Annotated[
    str | None, typer.Option(help="Only records of this tenant; default: of all tenants.")
]


@contextmanager
def reading(journal: str | None) -> Iterator[Reader]:
    """Return a reader of the journal. Raises Trouble, also for errors of the database meanwhile."""
    address = _address(journal)
    from proctor_service.journal.reading import Reader

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
def writing(journal: str | None) -> Iterator[Store]:
    """Return a store for the journal, which must exist. Raises Trouble as `reading`."""
    with reading(journal) as reader:  # a database of something else is left as it is
        from proctor_service.journal.filters import Filter

        reader.evaluations(None, Filter(), 1)
    address = _address(journal)
    from proctor_service.journal.store import Store

    with _explained(address):
        store = Store(address, service_version())
        try:
            yield store
        finally:
            store.close()


def rows(
    read: Read, tenant: str | None, wanted: Filter, *, page: int, limit: int | None = None
) -> Iterator[Row]:
    """Yield evaluations that fit, the newest first, at most `limit`; `page` are read at once."""
    before, left = None, limit
    while left is None or left > 0:
        found = read(tenant, wanted, page if left is None else min(page, left), before)
        yield from found.rows
        if found.following is None:
            return
        before = found.following
        left = None if left is None else left - len(found.rows)


def _address(journal: str | None) -> URL:
    """Return the database's address. Raises Trouble if there is none, or no file at it."""
    given = journal if journal is not None else settings_from().journal.get_secret_value()
    if given == "off":
        raise Trouble("the journal is off: set PROCTOR_JOURNAL, or give its address by --journal")
    from proctor_service.journal.address import checked

    try:
        address = checked(given)
    except StartError as error:
        message = str(error)
        if journal is not None:
            message = message.replace("PROCTOR_JOURNAL", "--journal", 1)
        raise Trouble(message) from None
    if address.get_backend_name() == "sqlite" and not Path(str(address.database)).is_file():
        raise Trouble(f"no journal is at {address.database}")
    return address


@contextmanager
def _explained(address: URL) -> Iterator[None]:
    """Turn errors of the database into Trouble; the message has no password and no statement."""
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
