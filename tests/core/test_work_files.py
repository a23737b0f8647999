"""Files that cannot be written: a verdict where the submission can be the cause, else an error."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor_service.guest import command, work_files


@pytest.mark.parametrize(
    ("number", "raised"),
    [(errno.EMFILE, OSError), (errno.ENFILE, OSError), (errno.EIO, OSError),
     (errno.ENOSPC, work_files.Unfit), (errno.ENAMETOOLONG, work_files.Unfit)],
)  # fmt: skip
def test_what_a_submission_cannot_cause_is_no_verdict(
    number: int, raised: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("proctor_service.guest.work_files.os.open", refuse)
    with pytest.raises(raised):
        work_files.write_file("solution.py", b"")


@pytest.mark.parametrize(
    ("number", "raised"),
    [(errno.ENFILE, OSError), (errno.EIO, SystemExit), (errno.ENOENT, SystemExit)],
)
def test_a_command_that_the_machine_cannot_start_is_no_verdict(
    number: int, raised: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    channel: Any = SimpleNamespace(send=lambda data: None, began=lambda: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("proctor_service.guest.command.os.execvp", refuse)
    monkeypatch.setattr("proctor_service.guest.command.os._exit", sys.exit)
    # It takes over the process, which is the one of the tests here.
    monkeypatch.setattr("proctor_service.guest.command.signal.signal", lambda *_: None)
    with pytest.raises(raised):
        command.run_command(channel, {"argv": ["./main"]})
