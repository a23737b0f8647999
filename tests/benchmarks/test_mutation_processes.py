"""The processes of a mutation run's tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mutants import supervised


def run_supervised(seconds: float, command: str) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, supervised.__file__, str(seconds), "sh", "-c", command]
    return subprocess.run(script, capture_output=True, text=True)


def test_a_process_that_a_command_leaves_is_killed() -> None:
    done = run_supervised(1000, "setsid sleep 1000 >/dev/null 2>&1 & echo $!; exit 3")
    assert done.returncode == 3, done.stderr
    assert not Path(f"/proc/{int(done.stdout)}").exists()


def test_a_command_whose_time_is_over_is_killed_with_its_children() -> None:
    done = run_supervised(0.1, "sleep 1000 & sleep 1000")  # which have the pipe that is read
    assert done.returncode == supervised.OVERTIME, done.stderr
