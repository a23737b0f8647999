"""Times of the journal's questions in SQLite, its size, and the cost of a write.

    PYTHONPATH=client:service python bench/journal.py [--count 1000000] [--keep FILE] [--only TEXT]

Fills a journal with invented evaluations of four jobs (`journal_records.py`), and asks each
question a few times, by a new reader each. `first` is without the file in the machine's page cache;
`median`, `worst` and `CPU` (of the thread) are of the later runs. `--keep` keeps the journal in a
file, or reads the file. Ends with status 1 if a question takes more CPU time than its bar.
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from journal_records import FREQUENT_WORD, RARE_WORD, TENANT, Records
from sqlalchemy.engine import URL

from proctor_service.features.journal.address import checked
from proctor_service.features.journal.filters import Filter
from proctor_service.features.journal.reading import Reader
from proctor_service.features.journal.store import JournalStore

GROUP = 500
"""Records in a transaction, as the service's writer has them when it is behind."""
PAGE = 50
LIST_SECONDS, ONE_SECONDS, JOB_SECONDS = 0.2, 0.05, 1.0
"""Bars on an idle machine."""
REPEATS = 5

Ask = Callable[[Reader], Any]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and its longest time."""

    name: str
    ask: Ask
    most_seconds: float = LIST_SECONDS


def lists() -> Iterator[Question]:
    """Yield the questions for lists: each filter with a frequent, a rare and an unknown value."""
    wanted: dict[str, list[Any]] = {
        "job": ["main", "old", "none"],
        "step": [999, 3, 5000],
        "task": ["task-7", "task-499", "none"],
        "verdict": ["passed", "timeout", "memory"],
        "error": ["deadline", "*", "draining"],
        "reward": [1.0, 0.377, 0.5005],
        "tag": ["train", "probe", "none"],
        "signal": ["early_exit", "none"],
        "words": [FREQUENT_WORD, RARE_WORD, "none-of-them", f"{FREQUENT_WORD} {RARE_WORD}"],
        "rollout_id": [f"ro_{25_000:032x}", "none"],
    }
    yield list_of()
    for name, values in wanted.items():
        for value in values:
            yield list_of(**{name: value})
            if name != "job":
                for job in ("main", "old", "none"):
                    yield list_of(job=job, **{name: value})
    yield list_of(verdict="no_code", error="deadline")
    yield list_of(verdict="passed", reward=0.0)
    yield list_of(job="main", step=500, verdict="timeout")
    yield list_of(job="main", task="task-10", verdict="passed")
    yield list_of(task="task-10", tag="probe")
    yield list_of(tag="train", signal="none")
    yield list_of(tag="train", words=RARE_WORD)
    yield list_of(signal="early_exit", verdict="passed", words=FREQUENT_WORD)


def list_of(**wanted: Any) -> Question:
    """Return the question for the first page of a list."""
    name = ", ".join(f"{name}={value}" for name, value in wanted.items()) or "all"
    return Question(
        f"list {name}", lambda reader: reader.evaluations(TENANT, Filter(**wanted), PAGE).rows
    )


def after(before: int, **wanted: Any) -> Question:
    """Return the question for the page after a cursor."""
    name = ", ".join(f"{name}={value}" for name, value in wanted.items()) or "all"

    def ask(reader: Reader) -> Any:
        return reader.evaluations(TENANT, Filter(**wanted), PAGE, before).rows

    return Question(f"page before {before} of {name}", ask)


def others(count: int) -> Iterator[Question]:
    """Yield all other questions."""
    yield after(count // 2)
    yield after(count // 2, job="main")
    yield after(count // 2, job="main", verdict="timeout")
    yield after(count // 2, tag="train")
    yield after(count // 2, words=FREQUENT_WORD)
    id_ = f"ev_{count // 2 + 3:032x}"
    yield Question("one evaluation", lambda r: [r.evaluation(TENANT, id_)], ONE_SECONDS)
    yield Question("an unknown one", lambda r: r.evaluation(TENANT, "ev_0") or [], ONE_SECONDS)
    yield Question("jobs", lambda r: r.jobs(TENANT))
    for job in ("main", "eval", "sweep"):
        yield Question(f"job {job}", partial(job_page, job), JOB_SECONDS)


def job_page(job: str, reader: Reader) -> Any:
    """Ask for all parts of a job's page."""
    return [reader.job(TENANT, job)]


def timed(url: URL, question: Question) -> tuple[list[float], list[float], int]:
    """Return the wall times and CPU times of a question in seconds, and the number of rows."""
    walls, used, rows = [], [], 0
    _drop_pages(Path(str(url.database)))
    for _ in range(REPEATS):
        reader = Reader(url)
        wall, cpu = time.perf_counter(), time.thread_time()
        rows = len(question.ask(reader))
        walls.append(time.perf_counter() - wall)
        used.append(time.thread_time() - cpu)
        reader.close()
    return walls, used, rows


def _drop_pages(path: Path) -> None:
    """Take a file out of the machine's page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def fill(url: URL, count: int) -> None:
    """Write the records, and print the cost."""
    store = JournalStore(url, "0.0.0")
    store.open()
    wall = used = 0.0
    records = iter(Records(count))
    for done, group in enumerate(iter(lambda: list(islice(records, GROUP)), [])):
        begun, before = time.perf_counter(), time.thread_time()
        store.write(group)
        wall += time.perf_counter() - begun
        used += time.thread_time() - before
        if done % 200 == 199:
            written = (done + 1) * GROUP
            print(f"  {written:,}: {1e6 * used / written:.0f} µs CPU each", file=sys.stderr)
    print(f"written: {1e6 * used / count:.0f} µs CPU and {1e6 * wall / count:.0f} µs each")
    store.close()


def sizes(path: Path) -> None:
    """Print the bytes on disk of each evaluation, in all and by table and index."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [count] = connection.execute("SELECT count(*) FROM evaluations").fetchone()
        print(f"on disk: {path.stat().st_size / count:.0f} bytes for each of {count:,}")
        parts = connection.execute(
            "SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC LIMIT 14"
        )
        for name, size in parts:
            print(f"  {name}: {size / count:.1f}")


def main() -> None:
    """Print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="the file to fill, or to take")
    parser.add_argument("--only", default="", help="ask only questions with this text")
    given = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {platform.platform()}")
    packages = ", ".join(f"{name} {version(name)}" for name in ("SQLAlchemy", "alembic"))
    load = os.getloadavg()[0]
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {packages}")
    print(f"load at the start {load:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        path = given.keep or Path(folder) / "journal.db"
        url = checked(f"sqlite:///{path.resolve()}")
        if not path.exists():
            fill(url, given.count)
        if not given.only:
            sizes(path)
        over = 0
        print("milliseconds: first, median, worst, CPU; rows")
        for question in (*lists(), *others(given.count)):
            if given.only not in question.name:
                continue
            walls, used, rows = timed(url, question)
            cpu = statistics.median(used[1:])
            slow = cpu > question.most_seconds
            over += slow
            figures = (walls[0], statistics.median(walls[1:]), max(walls[1:]), cpu)
            print(
                f"{question.name:45}", *(f"{1000 * each:8.1f}" for each in figures),
                f"{rows:5}", f"  over {1000 * question.most_seconds:.0f}" if slow else "",
                flush=True,
            )  # fmt: skip
    print(f"questions over their bars: {over}")
    sys.exit(over > 0)


if __name__ == "__main__":
    main()
