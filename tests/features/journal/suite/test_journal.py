"""The journal of a real service: each reward is recorded once, by whatever route, and after a kill."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_process import ServiceProcess, processes_of
from waits import WAIT_SECONDS

from fault_rig.batches import batch, replicas, send

SQUARES = {"kind": "asserts", "tests": ["assert f(2) == 4"]}
RIGHT = "def f(x):\n    return x * x  # {}"


class Journal:
    """A journal's file, as anybody with the right to read it sees it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    def rows(self, columns: str, count: int, ids: Collection[str] = ()) -> list[Any]:
        """Columns of all evaluations, once there are so many, and with these first columns."""
        for _ in range(int(WAIT_SECONDS / 0.02)):
            found = self._rows(columns)
            if len(found) >= count and {row[0] for row in found}.issuperset(ids):
                return found
            threading.Event().wait(0.02)
        raise AssertionError(f"{len(self._rows(columns))} records, and {count} were expected")

    def _rows(self, columns: str) -> list[Any]:
        if not self.path.exists():
            return []
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as connection:
            try:
                return connection.execute(
                    f"SELECT {columns} FROM evaluations ORDER BY number"
                ).fetchall()
            except sqlite3.OperationalError:  # the tables are not there yet
                return []


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.db")


@pytest.fixture
def service(journal: Journal) -> Iterator[ServiceProcess]:
    with ServiceProcess(PROCTOR_JOURNAL=journal.url, PROCTOR_WORKERS="0") as running:
        yield running


def post(service: ServiceProcess, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = httpx.post(service.url + path, json=body, timeout=WAIT_SECONDS, trust_env=False)
    assert answer.is_success, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_every_way_to_a_reward_is_recorded(service: ServiceProcess, journal: Journal) -> None:
    submissions = [
        {"completion": RIGHT.format(1), "id": "one", "group": "p"},
        {"completion": RIGHT.format(1), "id": "again"},
        {"completion": "I do not know.", "id": "none"},
        {"completion": "def f(x):\n    return 0", "id": "wrong"},
    ]
    body = {"submissions": submissions, "grader": SQUARES, "job": "j", "step": 3, "tags": ["a"]}
    results = post(service, "/reward", body)["results"]
    post(service, "/compat/run_code", {"code": "print(1)", "language": "python"})
    with httpx.Client(base_url=service.url, timeout=WAIT_SECONDS, trust_env=False) as http:
        sandbox = http.post("/sandboxes", json={"job": "j"}).json()["id"]
        http.put(f"/sandboxes/{sandbox}/files/solution.py", content=RIGHT.format(2).encode())
        graded = http.post(f"/sandboxes/{sandbox}/grade", json={"grader": SQUARES})
        assert graded.json()["reward"] == 1.0, graded.text
        http.delete(f"/sandboxes/{sandbox}")
    rows = journal.rows(
        "id, submission_id, verdict, reward, cache, step, task, graded_sandbox_id", 5
    )
    assert len(rows) == 5
    by_name = {row[1]: row for row in rows}
    assert {row[0] for row in rows[:4]} == {each["evaluation_id"] for each in results}
    assert by_name["one"][2:4] == by_name["again"][2:4] == ("passed", 1.0)
    assert {by_name["one"][4], by_name["again"][4]} == {"miss", "coalesced"}
    assert by_name["none"][2:4] == ("no_code", 0.0)
    assert by_name["wrong"][2:4] == ("failed", 0.0)
    assert {row[5] for row in rows[:4]} == {3}
    assert by_name["one"][6] == "p"
    assert rows[4][7] == sandbox


def test_a_killed_service_loses_no_record_of_2_seconds_ago(journal: Journal) -> None:
    answered: list[tuple[float, str]] = []
    kills: list[float] = []

    def ask(service: ServiceProcess, first: int) -> None:
        with httpx.Client(timeout=WAIT_SECONDS, trust_env=False) as http:
            for number in range(first, 100_000, 4):
                submission = {"completion": RIGHT.format(number)}
                body = {"submissions": [submission], "grader": SQUARES}
                try:
                    answer = http.post(f"{service.url}/reward", json=body)
                except httpx.HTTPError:
                    return
                answered.append((time.monotonic(), answer.json()["results"][0]["evaluation_id"]))

    with ServiceProcess(PROCTOR_JOURNAL=journal.url, PROCTOR_WORKERS="0") as service:
        for turn in range(2):
            begun = time.monotonic()
            clients = [
                threading.Thread(target=ask, args=(service, 10_000 * turn + n)) for n in range(4)
            ]
            for client in clients:
                client.start()
            while not answered or answered[-1][0] < begun + 4:
                threading.Event().wait(0.02)
            service.kill()
            for client in clients:
                client.join()
            kills.append(time.monotonic())  # the last answers have come
            service.start()
    old = {id_ for at, id_ in answered if not any(kill - 2 < at <= kill for kill in kills)}
    assert len(old) > 20
    ids = [row[0] for row in journal.rows("id", len(old), old)]
    assert len(set(ids)) == len(ids)
    with closing(sqlite3.connect(journal.path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_the_processes_of_the_journal_end_with_a_killed_service(service: ServiceProcess) -> None:
    assert httpx.get(service.url + "/jobs", trust_env=False, timeout=240).status_code == 200
    pids = [
        *processes_of(service.pid, "proctor_service.features.journal"),
        *processes_of(service.pid, "proctor_service.features.journal.answering"),
    ]
    assert len(pids) == 2
    service.kill()
    for _ in range(int(WAIT_SECONDS / 0.02)):
        if not any(_runs(pid) for pid in pids):
            return
        threading.Event().wait(0.02)
    raise AssertionError(f"of {pids} these run: {[pid for pid in pids if _runs(pid)]}")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_peers_record_a_batch_once(tmp_path: Path) -> None:
    journals = [Journal(tmp_path / f"{number}.db") for number in range(2)]
    with replicas(2) as found:
        for process, journal in zip(found, journals, strict=True):
            process.kill()
            process.start({"PROCTOR_JOURNAL": journal.url})
        answer = send(found[0], batch(400, 0))
        assert (answer.lost, answer.wrong) == (0, 0)
        ids = [row[0] for row in journals[0].rows("id", 400)]
        assert len(ids) == len(set(ids)) == 400
        assert journals[1].rows("id", 0) == []


def test_the_writer_ends_with_the_service(service: ServiceProcess, journal: Journal) -> None:
    body = {"submissions": [{"completion": RIGHT.format(1)}], "grader": SQUARES}
    post(service, "/reward", body)
    children = Path(f"/proc/{service.pid}/task/{service.pid}/children").read_text().split()
    [writer] = [
        int(pid)
        for pid in children
        if b"proctor_service.features.journal" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    service.stop()
    assert not Path(f"/proc/{writer}").exists()
    assert len(journal.rows("id", 1)) == 1
