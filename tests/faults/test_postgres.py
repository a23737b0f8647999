"""The journal of several replicas in one PostgreSQL, and a restart of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy.exc import SQLAlchemyError

from fault_rig.batches import batch, replicas, send
from fault_rig.postgres import PostgresServer, postgres_server
from fault_rig.processes import Process
from fault_rig.programs import WAIT_SECONDS, wait_until
from proctor_service.journal.address import checked
from proctor_service.journal.filters import Filter
from proctor_service.journal.reading import Reader

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
    """How many evaluations there are, none before the tables are made."""
    try:
        return sum(row["evaluations"] for row in reader.jobs(None))
    except SQLAlchemyError:
        return 0


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
