"""Records that a stop leaves unwritten: the next start writes them, each once."""

from __future__ import annotations

import asyncio
import logging
import marshal
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from harness import exec_request
from journal_recorder import WRITING, Under, numbered, recording
from journals import Evaluated
from service_process import ServiceProcess, processes_of
from waits import WAIT_SECONDS

from proctor_service.features.journal import leftover as leftover_module
from proctor_service.features.journal import recorder as recorder_module
from proctor_service.features.journal.default import leftover_of
from proctor_service.features.journal.leftover import Leftover
from proctor_service.settings import Settings

WRITER = "proctor_service.features.journal"


def saved(path: Path) -> list[Path]:
    """Files of unwritten records, also unfinished ones."""
    return [each for each in path.parent.iterdir() if "unwritten" in each.name]


async def stopped(path: Path, monkeypatch: pytest.MonkeyPatch, leave: bool = True) -> Under:
    """A recorder after the end of its service, whose writer stood still: 10 of 220 are written."""
    monkeypatch.setattr(recorder_module, "CLOSE_SECONDS", 0.2)
    async with recording(path) as under:
        under.record(0, 10)
        await under.written(10)
        os.kill(under.writer(), signal.SIGSTOP)
        under.record(10, 220)
        if not leave:
            monkeypatch.setattr(under.recorder, "_leftover", None)
    return under


async def test_what_a_stop_leaves_is_written_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j [1]*.db"
    under = await stopped(path, monkeypatch)
    assert (under.ids(), under.counts.dropped) == (numbered(10), {})
    [file] = saved(path)
    assert file.stat().st_mode & 0o777 == 0o600
    monkeypatch.undo()
    async with recording(path) as later:
        later.record(220, 230)
        await later.written(220)
        assert saved(path) == []
    assert sorted(later.ids()) == sorted(numbered(230))


async def test_a_stop_that_is_killed_while_it_waits_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j.db"
    monkeypatch.setattr(recorder_module, "CLOSE_SECONDS", WAIT_SECONDS)
    under = Under(path, 1e6, WRITING)
    await under.recorder.open()
    under.record(0, 1)
    await under.written(1)
    writer = under.writer()
    os.kill(writer, signal.SIGSTOP)
    under.record(1, 220)
    closing_it = asyncio.create_task(under.recorder.close())
    while not [each for each in saved(path) if not each.name.startswith(".")]:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    async with recording(path) as later:
        await later.written(219)
    assert sorted(later.ids()) == sorted(numbered(220))
    os.kill(writer, signal.SIGCONT)  # it writes them again, and none is there twice
    await closing_it
    assert sorted(later.ids()) == sorted(numbered(220))
    assert saved(path) == []


async def test_a_loss_is_logged_with_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    under = await stopped(tmp_path / "j.db", monkeypatch, leave=False)
    assert under.counts.dropped == {"stopped": 210}
    [lost] = [each for each in caplog.records if "are lost" in each.message]
    assert (lost.levelno, vars(lost)["records"]) == (logging.ERROR, 210)
    caplog.clear()
    monkeypatch.setattr(recorder_module, "MOST_UNWRITTEN_BYTES", 20_000)
    async with recording(tmp_path / "k.db") as full:
        full.record(0, 1000)
        dropped = full.counts.dropped["full"]
        await full.written(1000 - dropped)
        [lost] = [each for each in caplog.records if "are lost" in each.message]
        assert vars(lost)["records"] == dropped


async def test_a_file_that_is_not_ours_stays_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j.db"
    record = marshal.dumps(Evaluated(1).record())
    monkeypatch.setattr(leftover_module, "_shape", lambda: "of another version")
    old = Leftover(path).save([record])
    monkeypatch.undo()
    odd, others = (Leftover(path).save([record]) for _ in range(2))
    odd.write_bytes(b"\x00")
    others.chmod(0o666)
    async with recording(path) as under:
        under.record(0, 1)
        await under.written(1)
    assert sorted(saved(path)) == sorted([old, odd, others])
    assert under.ids() == ["ev_0"]
    named = {vars(each)["file"] for each in caplog.records if "cannot be read" in each.message}
    assert named == {str(old), str(odd), str(others)}


def test_the_place_is_beside_a_file_and_in_the_state_folder_for_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    settings = Settings()
    found = leftover_of("sqlite:////var/lib/proctor/j.db", settings, keeps_state=False)
    assert found == Leftover(Path("/var/lib/proctor/j.db"))
    server = "postgresql://user:secret@host/journal"
    assert leftover_of(server, settings, keeps_state=False) is None
    place = leftover_of(server, settings, keeps_state=True)
    assert place is not None
    assert place.beside.parent == tmp_path / "proctor"
    place.save([b"a record"])
    [file] = (tmp_path / "proctor").iterdir()
    assert "secret" not in file.name
    again = leftover_of(server, settings, keeps_state=True)
    other = leftover_of("postgresql://user:secret@host/other", settings, keeps_state=True)
    assert again is not None
    assert other is not None
    assert (again.load(), other.load()) == ([b"a record"], [])


def test_a_stopped_service_whose_journal_stands_still_loses_no_record(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    body = exec_request(*(f"x = {number}" for number in range(220)))
    settings = {"PROCTOR_JOURNAL": f"sqlite:///{path}", "PROCTOR_ALLOW_DEGRADED": "true"}
    with ServiceProcess(**settings) as service:
        [writer] = processes_of(service.pid, WRITER)
        os.kill(writer, signal.SIGSTOP)
        answer = httpx.post(f"{service.url}/reward", json=body, timeout=WAIT_SECONDS)
        ids = [each["evaluation_id"] for each in answer.json()["results"]]
        service.stop()
        service.start()
        service.stop()
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT id FROM evaluations").fetchall()
    assert sorted(rows) == sorted((each,) for each in ids)
    assert saved(path) == []
