"""Results that a killed replica left in Redis: the journal has each of them once."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
from harness import exec_request
from service_process import ServiceProcess, processes_of
from waits import WAIT_SECONDS

from fault_rig.programs import redis_server

BROKEN = {"kind": "asserts", "tests": ["assert f(1) =="]}
QUICK = [{"completion": source} for source in ("x = 1", "x = 1 / 0", "print('said')")]
SUBMISSIONS = [
    *QUICK,
    {"completion": "only prose", "extract": "auto"},
    {"completion": "def f(x): ...", "grader": BROKEN},
    {"completion": "import time\ntime.sleep(3)", "id": "slow"},
]
BODY = {**exec_request(), "submissions": SUBMISSIONS, "cache": False, "job": "run", "step": 7}


def test_what_a_killed_replica_had_judged_is_in_the_journal_once(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    with (
        redis_server() as redis,
        ServiceProcess(
            PROCTOR_REDIS_URL=redis.url,
            PROCTOR_JOURNAL=f"sqlite:///{journal}",
            PROCTOR_ALLOW_DEGRADED="true",
            PROCTOR_WORKERS="0",
        ) as service,
        httpx.Client(timeout=WAIT_SECONDS, trust_env=False) as client,
    ):
        url, key = f"{service.url}/reward", {"Idempotency-Key": "key"}
        [writer] = processes_of(service.pid, "proctor_service.features.journal")
        os.kill(writer, signal.SIGSTOP)
        by_line = {**key, "Accept": "application/x-ndjson"}
        with client.stream("POST", url, json=BODY, headers=by_line) as answer:
            lines = answer.iter_lines()
            seen = [next(lines) for _ in range(len(SUBMISSIONS) - 1)]
            service.kill()
        os.kill(writer, signal.SIGKILL)
        service.start()
        for _ in range(2):
            results = client.post(url, json=BODY, headers=key).json()["results"]
        service.stop()
    answered = {each["evaluation_id"]: each for each in results}
    assert all(any(id_ in line for id_ in answered) for line in seen)
    with closing(sqlite3.connect(journal)) as connection:
        columns = "id, verdict, reward, error, job, step, submission_id"
        rows = connection.execute(f"SELECT {columns} FROM evaluations").fetchall()
    assert len(rows) == len(answered) == len(SUBMISSIONS)
    for id_, verdict, reward, error, job, step, submission_id in rows:
        result = answered[id_]
        reason = result["error"] and result["error"]["reason"]
        assert (verdict, reward, error) == (result["verdict"], result["reward"], reason)
        assert (job, step, submission_id) == ("run", 7, result["id"])
    found = {each["verdict"] or each["error"]["reason"] for each in results}
    assert found == {"passed", "runtime_error", "no_code", "invalid_task"}
