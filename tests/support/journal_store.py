"""A journal's store under test with its reader, and items to write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from proctor_client.wire import AssertsGrader
from proctor_service.features.journal.address import checked
from proctor_service.features.journal.database import connect
from proctor_service.features.journal.entry import Entries, Record
from proctor_service.features.journal.filters import Filter
from proctor_service.features.journal.reading import Reader, Row, parsed
from proctor_service.features.journal.store import JournalStore
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.outcomes import Item, Origin, Outcome
from proctor_service.sandbox.interface import Limits

LIMITS = Limits(1.0, 10.0, 256, 64, 16, 64)
GRADER = AssertsGrader(kind="asserts", tests=["assert f(1) == 1"])
PASSED = Outcome(Judgement("passed", 1, 1), 1.0)
FAILED = Outcome(Judgement("failed", 0, 1, message="AssertionError"), 0.0)
HOSTILE = "<script>\0\ud800\x1b[2J''\"; DROP TABLE texts; -- \U0001f600"


class Under:
    """A store under test with its reader."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = checked(f"sqlite:///{path}")
        self.store = JournalStore(self.url, "1.2.3")
        self.store.open()
        self.reader = Reader(self.url)
        self.entries = Entries(with_texts=True)

    def write(self, *pairs: tuple[Item, Outcome]) -> None:
        """Write evaluations."""
        self.store.write([self.entries.evaluation(item, outcome, 0.5) for item, outcome in pairs])

    def write_at(self, *records: tuple[float, Item, Outcome]) -> None:
        """Write evaluations that ended at these times."""
        made: list[Record] = []
        for at, item, outcome in records:
            kind, head, *rest = self.entries.evaluation(item, outcome, 0.5)
            made.append((kind, (head[0], at, *head[2:]), *rest))
        self.store.write(made)

    def whole(self, id_: str, tenant: str | None = "t") -> Row:
        """An evaluation that is there, with its JSON parsed."""
        found = self.reader.evaluation(tenant, id_)
        assert found is not None
        return parsed(found)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """A connection of its own to the database, until the end of the block."""
        engine = connect(self.url)
        try:
            with engine.connect() as connection:
                yield connection
        finally:
            engine.dispose()

    def ids(self, **wanted: Any) -> list[str]:
        """Ids of the evaluations that fit, the newest first."""
        return [row["id"] for row in self.reader.evaluations("t", Filter(**wanted)).rows]


@contextmanager
def opened(path: Path) -> Iterator[Under]:
    """A store in a file, until the end of the block."""
    found = Under(path)
    try:
        yield found
    finally:
        found.reader.close()
        found.store.close()


def item(number: int, **changed: Any) -> Item:
    """An item of the tenant `t`."""
    source = f"def f(x):\n    return x  # {number}"
    origin = Origin(
        f"Say:\n```python\n{source}\n```", "auto", f"s{number}", f"p{number % 2}", number
    )
    base = Item(
        f"ev_{number}",
        Submission(source, GRADER, LIMITS),
        "t",
        "job",
        0.0,
        tags=("a",),
        origin=origin,
    )
    return replace(base, **changed)


@pytest.fixture
def under(tmp_path: Path) -> Iterator[Under]:
    """Open a journal, the folder of which is not there yet."""
    with opened(tmp_path / "journal" / "journal.db") as found:
        yield found
