"""Starts and ends a process of the service beside the tests, which records their events.

Follows the source of the listener (`Listener` there takes a path and a function for lines).
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Sequence
from typing import Any

Listener: Any = None
parent_of: Any = None
_END_SECONDS = 10.0
_MOST_FILE_BYTES = 4 << 20


def main(action: str, value: Any, runner: Sequence[str] = ()) -> None:
    """Run `listen` at a path (the record's first line has the process number), or `end` a process.

    `runner`: folders and files of the runner.
    """
    if action == "end":
        _end(value)
        return
    os.makedirs(os.path.dirname(value), 0o755, exist_ok=True)
    stop, wake = os.pipe()
    ready, readiness = os.pipe()
    session = os.getppid()
    process = os.fork()
    if process == 0:
        try:
            _serve(value, stop, wake, readiness, session, runner)
        finally:
            os._exit(0)
    os.close(readiness)
    os.read(ready, 1)


def _serve(
    path: str, stop: int, wake: int, readiness: int, session: int, runner: Sequence[str]
) -> None:
    os.setsid()
    os.set_blocking(wake, False)
    for each in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(each, lambda *_: None)
    signal.set_wakeup_fd(wake)
    os.write(1, b"%d\n" % os.getpid())
    listener = Listener(path, _record, _Command(session), lambda: _digest(runner))
    os.close(readiness)
    listener.serve(stop)


def _digest(places: Sequence[str]) -> bytes:
    """Return a digest of the Python files at and below these places."""
    digest = hashlib.blake2b()
    for place in places:
        files = [place] if os.path.isfile(place) else []
        for folder, _, names in os.walk(place):
            files += [os.path.join(folder, each) for each in names if each.endswith(".py")]
        for path in sorted(files):
            try:
                with open(path, "rb") as file:
                    content = file.read(_MOST_FILE_BYTES)
            except OSError:
                content = b""
            digest.update(b"%d %s %d " % (len(path), os.fsencode(path), len(content)) + content)
    return digest.digest()


class _Command:
    """The number of the process started next by the session: the command of the tests.

    The number is found at the first request, since the command runs then. None where orphans of this sandbox
    do not become children of the session, unlike this process.
    """

    def __init__(self, session: int) -> None:
        self._session = session
        self._found: int | None = None

    def __call__(self) -> int | None:
        if self._found is None and os.getppid() == self._session:
            numbers = sorted(int(each) for each in os.listdir("/proc") if each.isdigit())
            later = (each for each in numbers if each > os.getpid())
            self._found = next((each for each in later if parent_of(each) == self._session), None)
        return self._found


def _record(line: bytes) -> None:
    while line:
        line = line[os.write(1, line) :]


def _end(process: int) -> None:
    """Let the listener take waiting messages, and wait for its end. Does nothing if the listener is gone."""
    try:
        os.kill(process, signal.SIGTERM)
    except ProcessLookupError:
        return
    until = time.monotonic() + _END_SECONDS
    while time.monotonic() < until and os.path.exists(f"/proc/{process}/exe"):
        try:
            with open(f"/proc/{process}/stat", "rb") as status:
                # "41 (a name) Z 7 …": the state is the first field behind the name
                if status.read().rpartition(b")")[2].split()[0] == b"Z":
                    return
        except OSError:
            return
        time.sleep(0.005)
