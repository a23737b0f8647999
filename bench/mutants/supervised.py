"""Runs a command for a bounded time, and kills all processes left behind.

A script of its own: `python supervised.py SECONDS COMMAND…`, which ends with status 124 where the time
was over.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

OVERTIME = 124
_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the parent of orphaned processes below."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def children_of(pid: int) -> list[int]:
    found = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in listed.read_text().split()]
    return found


def descendants_of(pids: Sequence[int]) -> list[int]:
    found = list(pids)
    for pid in found:  # which grows meanwhile
        found += children_of(pid)
    return found


def end_children() -> None:
    """Kill all processes below this process and wait for their ends."""
    while children := children_of(os.getpid()):
        for pid in descendants_of(children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def main() -> int:
    adopt_orphans()
    process = subprocess.Popen(sys.argv[2:], start_new_session=True)
    try:
        return process.wait(float(sys.argv[1])) & 0xFF
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return OVERTIME
    finally:
        end_children()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
