"""A real service in a process of its own, which a test may kill and start again at the same address.

For tests that run in a trainer's environment, where the service is not installed: it runs in the one
that `make install` makes, or in that of PROCTOR_SERVICE_PYTHON.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import httpx
from waits import WAIT_SECONDS

ROOT = Path(__file__).resolve().parents[2]
CGROUPS = Path("/sys/fs/cgroup")


class ServiceProcess:
    """Runs while the block does. `url` stays the same over kills and starts."""

    def __init__(self, **settings: str) -> None:
        self._group: Path | None = None
        self._user_change: list[str] = []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._settings = settings
        self._child: subprocess.Popen[bytes] | None = None
        self._lives: list[int] = []
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed with the block

    def within(self, group: Path, *user_change: str) -> Self:
        """Has it start in a cgroup, by way of a program that then becomes another user."""
        self._group = group
        self._user_change = list(user_change)
        return self

    @property
    def pid(self) -> int:
        """Of the service that runs."""
        assert self._child is not None, "it does not run"
        return self._child.pid

    def start(self) -> None:
        """Starts it, and waits until it is ready."""
        self.spawn()
        assert self._child is not None, "it was started"
        turns = int(WAIT_SECONDS / 0.02)
        with httpx.Client(base_url=self.url, trust_env=False, timeout=5) as http:
            while not _is_ready(http):  # another process has no event for us
                turns -= 1
                assert turns > 0, self._last_words()
                assert self._child.poll() is None, self._last_words()
                threading.Event().wait(0.02)

    def spawn(self) -> None:
        """Starts it, and waits for nothing."""
        assert self._child is None, "it runs"
        python = os.environ.get("PROCTOR_SERVICE_PYTHON") or str(ROOT / ".venv" / "bin" / "python")
        arguments = ["-m", "proctor_service", "serve", "--port", str(self.port)]
        clean = {name: value for name, value in os.environ.items() if "PROCTOR_" not in name}
        enter = []
        if self._group is not None:
            enter = ["/bin/sh", "-c", 'echo 0 > "$0" && exec "$@"', f"{self._group}/cgroup.procs"]
            enter += self._user_change
        self._child = subprocess.Popen(
            [*enter, python, *arguments, "--end-with-parent", str(os.getpid())],
            env={
                **clean,
                "PYTHONPATH": f"{ROOT}/client{os.pathsep}{ROOT}/service",
                "PROCTOR_JOURNAL": "off",
                **self._settings,
            },
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        self._lives.append(self._child.pid)

    @property
    def logged(self) -> str:
        """The text that it has written so far, in all its lives."""
        descriptor = self._log.fileno()  # its position is the service's: nobody else may move it
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")

    def kill(self) -> None:
        """Kills it, without a word: SIGKILL."""
        self._lives += judge_processes(self.pid)
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Has it end in good order: SIGTERM."""
        self._end(signal.SIGTERM)

    def wait(self) -> None:
        """Waits for its end, which somebody else has begun."""
        assert self._child is not None, "it does not run"
        self._child.wait(WAIT_SECONDS)
        self._child = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends it, if it runs."""
        if self._child is not None:
            self._end(signal.SIGTERM)
        self._log.close()
        remove_groups_of(self._lives)

    def _end(self, sign: signal.Signals) -> None:
        assert self._child is not None, "it does not run"
        self._child.send_signal(sign)
        self._child.wait(WAIT_SECONDS)
        self._child = None

    def _last_words(self) -> str:
        return self.logged[-4000:]


def judge_processes(service_pid: int) -> list[int]:
    """The judge processes of a service, or of the services in this process."""
    return processes_of(service_pid, "proctor_service.cli.judge_process")


def processes_of(service_pid: int, module: str) -> list[int]:
    """The processes that a service, or the services in this process, started with a module."""
    found = []
    for thread in Path(f"/proc/{service_pid}/task").iterdir():
        with suppress(OSError):  # one that has ended meanwhile
            for pid in (thread / "children").read_text().split():
                if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    found.append(int(pid))
    return found


def remove_groups_of(pids: Collection[int]) -> None:
    """Removes the cgroups of services that were killed, as the next one to start would."""
    turns = int(WAIT_SECONDS / 0.02)
    while left := groups_of(pids):
        for group in left:
            for directory in (*(group / name for name in _folders_in(group)), group):
                with suppress(OSError):  # what is in it may not be gone yet
                    directory.rmdir()
        turns -= 1
        assert turns > 0, f"these stay: {left}"
        threading.Event().wait(0.02)


def groups_of(pids: Iterable[int]) -> list[Path]:
    """The cgroups that services have made. Groups of others may vanish meanwhile."""
    prefixes = tuple(f"proctor-{pid}-" for pid in pids)
    return [
        Path(folder, name)
        for folder, names, _ in os.walk(CGROUPS)
        for name in names
        if name.startswith(prefixes)
    ]


def _folders_in(folder: Path) -> list[str]:
    return next(os.walk(folder), ("", [], []))[1]


def _is_ready(http: httpx.Client) -> bool:
    try:
        return http.get("/readyz").status_code == 200
    except httpx.HTTPError:
        return False
