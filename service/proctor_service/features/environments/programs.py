"""Programs of the operator: uv, its build scripts, and interpreters during imports of packages.

They run with the rights of the caller, but without the service's secrets. They end with the caller,
even if the caller is killed.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_END_BYTES = 4_000
"""Returned bytes of the output's beginning, and of its end."""
_CHUNK_BYTES = 65_536
_LONGEST_LINE = 1_000


@dataclass(frozen=True, slots=True)
class Ran:
    """An ended program: exit status, or 128 + signal; its output with the middle cut out.

    `timed_out`: ended at its time limit.
    """

    status: int
    output: str
    timed_out: bool = False


def run_program(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    *,
    wall_seconds: float | None = None,
    on_line: Callable[[str], None] | None = None,
) -> Ran:
    """Run a program in a folder, and end its remaining processes.

    `on_line` gets each line of its output at once. Raises OSError if the process cannot be started.
    """
    supervised = [sys.executable, "-I", "-S", str(_SUPERVISOR), str(os.getpid())]
    output = _Output(on_line)
    deadline = None if wall_seconds is None else time.monotonic() + wall_seconds
    with subprocess.Popen(
        [*supervised, *command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # no question on the terminal, and a group to end
        umask=0o022,
    ) as process:
        try:
            in_time = _read(process, output, deadline)
        finally:
            # The process is not reaped yet, so its group's number is still its own.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Ran(process.returncode, output.text(), timed_out=not in_time)


def _read(process: subprocess.Popen[bytes], output: _Output, deadline: float | None) -> bool:
    """Read the output until the program has ended; return False at the deadline.

    A background process may hold the pipe open for longer, so the end of the pipe is not awaited.
    """
    assert process.stdout is not None
    pipe, ended = process.stdout.fileno(), os.pidfd_open(process.pid)
    os.set_blocking(pipe, False)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            selector.register(ended, selectors.EVENT_READ)
            while True:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                ready = {key.fd for key, _ in selector.select(left)}
                if pipe in ready:
                    chunk = os.read(pipe, _CHUNK_BYTES)
                    output.add(chunk)
                    if not chunk:
                        selector.unregister(pipe)
                elif ended in ready:
                    return True
    finally:
        os.close(ended)


class _Output:
    """The beginning and the end of an output, and its lines on demand."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self._on_line = on_line
        self._first = self._last = self._line = b""
        self._cut = False

    def add(self, chunk: bytes) -> None:
        room = _END_BYTES - len(self._first)
        self._first += chunk[:room]
        last = self._last + chunk[room:]
        self._cut = self._cut or len(last) > _END_BYTES
        self._last = last[-_END_BYTES:]
        if self._on_line is not None:
            *lines, rest = (self._line + chunk).split(b"\n")
            self._line = rest[-_LONGEST_LINE:]
            for line in lines:
                self._on_line(line[-_LONGEST_LINE:].decode(errors="replace"))

    def text(self) -> str:
        middle = b"\n[\xe2\x80\xa6]\n" if self._cut else b""
        return (self._first + middle + self._last).decode(errors="replace")
