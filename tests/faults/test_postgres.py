"""The journal of several replicas in one PostgreSQL, and a restart of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from journal_store import FAILED, PASSED, item
from sqlalchemy.exc import SQLAlchemyError
from waits import WAIT_SECONDS

from fault_rig.batches import batch, replicas, send
from fault_rig.postgres import PostgresServer, postgres_server
from fault_rig.processes import Process
from fault_rig.programs import wait_until
from proctor_service.errors import SandboxLost
from proctor_service.features.journal.address import checked
from proctor_service.features.journal.database import TooSlow, connect
from proctor_service.features.journal.entry import Entries, Record
from proctor_service.features.journal.filters import Filter
from proctor_service.features.journal.reading import Reader
from proctor_service.features.journal.store import JournalStore
from proctor_service.outcomes import Origin, Outcome

TESTS = ["assert f(2) == 4"]
HOSTILE = "def f(x):\n    return x * x  # <script>\0 \ud800 \U0001f600 '; DROP TABLE texts; --"


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


def judge(process: Process, completion: str, job: str) -> dict[str, Any]:
    body = {
        "submissions": [{"completion": completion}],
        "grader": {"kind": "asserts", "tests": TESTS},
        "extract": "none",
        "job": job,
        "tags": ["a", HOSTILE[-40:]],
    }
    answer = httpx.post(
        f"{process.url}/reward",
        content=json.dumps(body),
        headers={"Content-Type": "application/json"},
        timeout=WAIT_SECONDS,
        trust_env=False,
    )
    found: dict[str, Any] = answer.json()["results"][0]
    return found


def count(reader: Reader) -> int:
    """How many evaluations there are, none while the database is away."""
    try:
        return sum(row["evaluations"] for row in reader.jobs(None))
    except SQLAlchemyError:
        return 0


def stores(*urls: str) -> Iterator[tuple[JournalStore, Reader]]:
    """Yield an open store and a reader for each address."""
    for url in urls:
        store, reader = JournalStore(checked(url), "1"), Reader(checked(url), query_seconds=60.0)
        assert reader.jobs(None) == []  # it has no tables yet
        store.open()
        try:
            yield store, reader
        finally:
            reader.close()
            store.close()


def some(number: int) -> Record:
    """The record of an evaluation of one of two jobs."""
    outcome = (PASSED, FAILED, Outcome(failure=SandboxLost("gone")))[number % 3]
    task = f"p{number % 4}" if number % 9 else "".join(map(chr, range(300 + number, 6000)))
    origin = Origin(f"word{number % 5} said", "none", None, task, number % 7)
    made = item(number, job=f"job {number % 2}", origin=origin, tags=(f"t{number % 3}", HOSTILE))
    kind, head, *rest = Entries(True).evaluation(made, outcome, 0.5)
    return (kind, (head[0], 1e9 + 60.0 * number, *head[2:]), *rest)


def answers(reader: Reader) -> dict[str, Any]:
    """All that a reader says about these."""
    filters: list[dict[str, Any]] = [
        {}, {"job": "job 1"}, {"step": 3}, {"task": "p1", "verdict": "passed"}, {"error": "*"},
        {"error": "sandbox_lost", "job": "job 0"}, {"tag": "t1", "words": "WORD3 said"},
        {"tag": "t1", "job": "job 0", "reward": 0.0}, {"signal": "none"}, {"words": "word1"},
    ]  # fmt: skip
    pages = [reader.evaluations("t", Filter(**each), 500, 400) for each in filters]
    return {
        "pages": [[row["id"] for row in page.rows] for page in pages],
        "jobs": [{**row, "rewards": None} for row in reader.jobs("t")],
        "by": [reader.job("t", "job 1", by) for by in ("step", "time")],
        "whole": reader.evaluation("t", "ev_7"),
    }


def test_answers_are_those_of_sqlite(postgres: PostgresServer, tmp_path: Path) -> None:
    found = []
    for store, reader in stores(f"sqlite:///{tmp_path}/journal.db", postgres.url):
        for begin in (0, 0, 700):  # the first records come twice
            store.write([some(number) for number in range(begin, begin + 700)])
        found.append(answers(reader))
        assert store.prune(1e9 + 60.0 * 500, 300) == 300
        found.append(answers(reader))
        assert store.prune(2e9, 10_000) == 1100
        store.prune_texts()
        assert (reader.jobs("t"), reader.job("t", "job 1")) == ([], None)
    for in_sqlite, in_postgres in zip(found[:2], found[2:], strict=True):
        assert in_sqlite == in_postgres
    assert len(found[0]["pages"][0]) == 399


def test_a_journal_beyond_its_size_loses_the_oldest_records_alone(postgres: PostgresServer) -> None:
    """The files of the database stay as large, however many records are removed."""
    for store, reader in stores(postgres.url):
        store.write([some(number) for number in range(500)])
        rounds = [store.has_outgrown(1.0) and store.prune_oldest(0.02) for _ in range(20)]
        assert [bool(removed) for removed in rounds] == [True] + [False] * 19
        assert count(reader) == 490
        store.write([some(number) for number in range(500, 1000)])
        assert store.has_outgrown(1.0)
        assert not store.has_outgrown(1e12)


def test_a_question_ends_after_its_time(postgres: PostgresServer) -> None:
    for store, _ in stores(postgres.url):
        store.write([some(1)])
        engine = connect(checked(postgres.url))
        with engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE evaluations RENAME TO others")
            slow = "CREATE VIEW evaluations AS SELECT others.* FROM others, pg_sleep(100)"
            connection.exec_driver_sql(slow)
        engine.dispose()
        reader = Reader(checked(postgres.url), query_seconds=0.5)
        with pytest.raises(TooSlow):
            reader.evaluations("t", Filter(job="job 1"))
        assert len(reader.jobs("t")) == 1
        reader.close()


def test_replicas_write_one_journal(postgres: PostgresServer) -> None:
    with replicas(2, {"PROCTOR_JOURNAL": postgres.url}) as found:
        reader = Reader(checked(postgres.url))
        try:
            results = [judge(process, HOSTILE, f"job {n}") for n, process in enumerate(found)]
            answer = send(found[0], batch(300, 0))
            assert (answer.lost, answer.wrong) == (0, 0)
            wait_until(lambda: count(reader) == 302, "not all is recorded")
            for number, result in enumerate(results):
                page = reader.evaluations(
                    None, Filter(job=f"job {number}", tag="a", words="return x")
                )
                [row] = page.rows
                assert (row["id"], row["reward"]) == (result["evaluation_id"], result["reward"])
                whole = reader.evaluation(None, row["id"])
                assert whole is not None
                assert whole["source"] == HOSTILE
            series = reader.job(None, "default")
            assert series is not None
            assert series["series"][0]["count"] == 300
            figures = reader.figures(None, "default")
            assert figures is not None
            assert (figures["judged"], figures["mean_reward"]) == (300, 0.9)
        finally:
            reader.close()


def test_rewards_go_on_while_the_database_is_away(postgres: PostgresServer) -> None:
    with replicas(1, {"PROCTOR_JOURNAL": postgres.url}) as [process]:
        reader = Reader(checked(postgres.url))
        try:
            right = "def f(x):\n    return x * x  # {}"
            assert judge(process, right.format(0), "j")["reward"] == 1.0
            wait_until(lambda: count(reader) == 1, "it is not recorded")
            postgres.stop()
            for number in range(1, 20):
                assert judge(process, right.format(number), "j")["reward"] == 1.0
            postgres.start()
            assert judge(process, right.format(20), "j")["reward"] == 1.0
            wait_until(lambda: count(reader) == 21, "not all is recorded")
        finally:
            reader.close()
