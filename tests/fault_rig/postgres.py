"""A PostgreSQL of one's own for a test, on a free port, ended with it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fault_rig.programs import PLACES, free_port, wait_until

DEBIAN = Path("/usr/lib/postgresql")
USER = "postgres"
"""PostgreSQL refuses to run as root; Debian's package makes this user."""


def program(name: str) -> str | None:
    """Where a program of PostgreSQL is: Debian keeps them in a folder for each version."""
    folders = [str(each) for each in sorted(DEBIAN.glob("*/bin"), reverse=True)]
    return shutil.which(name, path=os.pathsep.join([*folders, PLACES]))


class PostgresServer:
    """A server with an empty database. It can be ended and started again."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="postgres-")
        self._child: subprocess.Popen[bytes] | None = None
        self._user = USER if os.geteuid() == 0 else None
        self.port = free_port()
        if self._user:
            shutil.chown(self._folder.name, self._user)
        made = subprocess.run(
            [str(program("initdb")), "-D", self._data, "-U", "proctor", "-A", "trust", "--no-sync"],
            user=self._user,
            cwd="/",
            capture_output=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr.decode()
        self.start()

    @property
    def url(self) -> str:
        """Its address, as PROCTOR_JOURNAL takes it."""
        return f"postgresql://proctor@127.0.0.1:{self.port}/postgres"

    @property
    def _data(self) -> str:
        return f"{self._folder.name}/data"

    def start(self) -> None:
        """Starts it, and waits until it takes connections."""
        self._child = subprocess.Popen(
            [str(program("postgres")), "-D", self._data, "-p", str(self.port), "-h", "127.0.0.1",
             "-k", self._folder.name, "-c", "fsync=off"],
            user=self._user,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(self._answers, "postgres does not answer")

    def _answers(self) -> bool:
        """Whether it takes connections; it listens a while before."""
        asked = [str(program("pg_isready")), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(asked, check=False).returncode == 0

    def stop(self) -> None:
        """Ends it at once, with its connections, if it runs."""
        if self._child is not None:
            self._child.send_signal(signal.SIGINT)
            self._child.wait()
            self._child = None

    def close(self) -> None:
        """Ends it and its folder."""
        self.stop()
        self._folder.cleanup()


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL, until the block ends."""
    server = PostgresServer()
    try:
        yield server
    finally:
        server.close()
