"""The steps that a journal in a file has recorded, read without the service's packages."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Literal

import httpx
from waits import WAIT_SECONDS


def recorded_steps(
    url: str, path: Path, table: Literal["evaluations", "rollouts"] = "evaluations"
) -> dict[int | None, int]:
    """The number of records of each step in the journal at `path`, once the service has written it."""
    turns = int(WAIT_SECONDS / 0.02)
    with httpx.Client(base_url=url, trust_env=False, timeout=240) as http:
        while "proctor_journal_unwritten 0.0" not in http.get("/metrics").text:
            turns -= 1
            assert turns > 0, "the journal was not written"
            threading.Event().wait(0.02)  # another process has no event for us
    with closing(sqlite3.connect(path)) as database:
        found = database.execute(f"SELECT step, count(*) FROM {table} GROUP BY step")
        return dict(found.fetchall())
