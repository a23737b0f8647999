"""Questions about a journal that is empty, damaged or slow: an answer comes in any case, and soon."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import forget_settings, proctor
from harness import Service, exec_request, running_service
from journal_store import PASSED, Under, item
from pydantic import SecretStr
from sandbox_server import problem
from service_process import processes_of
from sqlalchemy.exc import SQLAlchemyError

from proctor_service.features.journal import feature
from proctor_service.features.journal.address import checked
from proctor_service.features.journal.answering import questions as questions_module
from proctor_service.features.journal.answering.questions import Questions
from proctor_service.features.journal.database import TooSlow
from proctor_service.features.journal.filters import Filter
from proctor_service.features.journal.reading import Reader
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.outcomes import Origin
from proctor_service.sandbox.interface import Sandboxes
from proctor_service.settings import Settings


async def passing(submission: Submission, backend: Sandboxes) -> Judgement:
    """A judge."""
    return Judgement("passed", 1, 1)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service with a journal in `journal.db`."""
    journal = SecretStr(f"sqlite:///{tmp_path}/journal.db")
    with running_service(Settings(journal=journal, workers=0), judge=passing) as found:
        yield found


def reward(service: Service) -> None:
    """Judge, and wait until it is recorded."""
    with service.client() as client:
        answer = client.post("/reward", json=exec_request("x = 1"))
        assert answer.json()["results"][0]["reward"] == 1.0
    journal = service.parts.feature("journal").recorder
    assert journal is not None
    service.until(lambda: journal.unwritten == 0)


def changed(path: Path, *statements: str) -> None:
    """Change a database from outside."""
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def check_empty(service: Service) -> None:
    with service.client() as client:
        assert client.get("/evaluations?text=x&tag=t").json() == {"evaluations": [], "next": None}
        assert client.get("/jobs").json() == {"jobs": []}
        for path in ("/jobs/j?by=time", "/evaluations/ev_1", "/rollouts/ro_1"):
            problem(client.get(path), 404, "not_found")
        problem(client.post("/evaluations/ev_1/replay"), 404, "not_found")


def test_a_journal_without_a_file_or_tables_is_empty(service: Service, tmp_path: Path) -> None:
    reward(service)  # the writer has made the file
    for file in tmp_path.glob("journal.db*"):
        file.unlink()
    check_empty(service)
    assert not (tmp_path / "journal.db").exists()
    (tmp_path / "journal.db").touch()
    check_empty(service)


def test_a_journal_that_does_not_answer_is_a_503(service: Service, tmp_path: Path) -> None:
    reward(service)
    changed(
        tmp_path / "journal.db",
        "ALTER TABLE evaluations RENAME COLUMN reward TO other",
        "DROP TABLE jobs",
    )
    with service.client() as client:
        for path in ("/evaluations", "/evaluations/ev_1", "/jobs"):
            found = problem(client.get(path), 503, "journal_down")
            assert found.retryable
        answer = client.post("/reward", json=exec_request("x = 2"))
        assert answer.json()["results"][0]["reward"] == 1.0


def test_a_question_that_takes_too_long_is_a_503_that_says_so(
    under: Under, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature, "QUERY_SECONDS", 0.2)
    under.write((item(1), PASSED))
    slow(under)
    with (
        running_service(Settings(journal=SecretStr(str(under.url)), workers=0)) as service,
        service.client() as client,
    ):
        found = problem(client.get("/evaluations?job=none"), 503, "journal_down")
        assert "too long" in found.message
        assert "narrow" in found.message


def process_of_questions(service: Service) -> int:
    """The process that answers questions; one is asked first."""
    with service.client() as client:
        assert client.get("/jobs").status_code == 200
    [found] = processes_of(os.getpid(), "proctor_service.features.journal.answering")
    return found


def test_a_killed_process_of_questions_is_started_again(service: Service) -> None:
    reward(service)
    os.kill(process_of_questions(service), signal.SIGKILL)
    with service.client() as client:
        statuses = [client.get("/jobs").status_code for _ in range(2)]
        assert statuses[1] == 200, statuses  # the first may meet the end of the process
        assert len(client.get("/evaluations").json()["evaluations"]) == 1


def test_questions_fail_with_the_process_that_should_answer(service: Service) -> None:
    pid = process_of_questions(service)
    os.kill(pid, signal.SIGSTOP)
    with service.client() as client, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(client.get, "/jobs")
        service.until(lambda: len(questions_of(service)._waiting) == 1)
        os.kill(pid, signal.SIGKILL)
        found = problem(asked.result(), 503, "journal_down")
        assert found.retryable
        assert client.get("/jobs").status_code == 200


def test_a_process_of_questions_that_hangs_is_replaced(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = process_of_questions(service)
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(questions_module, "ANSWER_SECONDS", 0.2)
    with service.client() as client:
        problem(client.get("/jobs"), 503, "journal_down")
        monkeypatch.undo()
        assert not Path(f"/proc/{pid}").exists()
        assert client.get("/jobs").status_code == 200


def test_a_process_of_questions_that_cannot_start_is_a_503(service: Service) -> None:
    os.kill(process_of_questions(service), signal.SIGKILL)
    questions_of(service)._command = ("/nowhere/python",)
    with service.client() as client:
        found = [problem(client.get("/jobs"), 503, "journal_down") for _ in range(2)]
        assert "cannot start" in found[1].message  # the first may meet the end of the process
        assert client.get("/healthz").status_code == 200


def test_so_many_questions_wait(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = process_of_questions(service)
    monkeypatch.setattr(questions_module, "MOST_ASKED", 2)
    os.kill(pid, signal.SIGSTOP)
    with service.client() as client, ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(client.get, "/jobs") for _ in range(2)]
        service.until(lambda: len(questions_of(service)._waiting) == 2)
        assert problem(client.get("/jobs"), 429, "busy").retryable
        os.kill(pid, signal.SIGCONT)
        assert {each.result().status_code for each in asked} == {200}


def questions_of(service: Service) -> Questions:
    found: Questions | None = service.parts.feature("journal").handler._questions
    assert found is not None
    return found


def slow(under: Under) -> None:
    """Make the table of evaluations one that takes hours to read."""
    under.store.close()
    count = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    with closing(sqlite3.connect(under.path)) as connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(evaluations)")]
    columns = ", ".join(f"substr(i, 99) AS {name}" for name in names if name != "number")
    changed(
        under.path,
        "DROP TABLE evaluations",
        f"CREATE VIEW evaluations AS SELECT i AS number, {columns} FROM ({count})",
    )


def test_a_question_ends_after_its_time(under: Under) -> None:
    under.write((item(1), PASSED))
    slow(under)
    reader = Reader(under.url, query_seconds=0.2)
    try:
        for ask in (
            lambda: reader.evaluations("t", Filter(job="none")),
            lambda: reader.evaluation("t", "ev_1"),
            lambda: reader.whole_evaluations("t", Filter(verdict="passed")),
            lambda: reader.job("t", "job"),
        ):
            with pytest.raises(TooSlow):
                ask()
        assert [each["job"] for each in reader.jobs("t")] == ["job"]  # the connection is in order
    finally:
        reader.close()


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_text("this is no database, but a text of some length " * 40)
    reader = Reader(checked(f"sqlite:///{path}"))
    assert reader.has_tables()
    with pytest.raises(SQLAlchemyError, match="not a database"):
        reader.jobs(None)
    reader.close()


def test_jobs_are_bounded(under: Under) -> None:
    made: list[Any] = [
        (float(n), replace(item(n), job=f"job {n}", origin=Origin()), PASSED) for n in range(250)
    ]
    under.write_at(*reversed(made))
    assert [row["job"] for row in under.reader.jobs("t")] == [
        f"job {n}" for n in range(249, 49, -1)
    ]


@pytest.mark.parametrize("command", [["list"], ["prune", "--days", "1"]])
def test_a_command_leaves_another_database_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    forget_settings(monkeypatch)
    path = tmp_path / "empty.db"
    path.touch()
    result = proctor("journal", *command, PROCTOR_JOURNAL=f"sqlite:///{path}")
    assert result.exit_code == 2
    assert "its tables are not there" in result.stderr
    assert path.read_bytes() == b""
