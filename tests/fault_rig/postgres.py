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

from needed_programs import PLACES

from fault_rig.programs import free_port, wait_until

DEBIAN = Path("/usr/lib/postgresql")
USER = "postgres"
"""PostgreSQL refuses to run as root; Debian's package makes this user."""


def program(name: str) -> str | None:
    """Where a program of PostgreSQL is: Debian keeps them in a folder for each version."""
    folders = [str(each) for each in sorted(DEBIAN.glob("*/bin"), reverse=True)]
    return shutil.which(name, path=os.pathsep.join([*folders, PLACES]))


class PostgresServer:
    """A server with an empty database. It can be ended and started again.

    With a `password` it asks everybody of the network of `host` for it.
    """

    def __init__(
        self, host: str = "127.0.0.1", port: int | None = None, password: str = ""
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="postgres-")
        self._child: subprocess.Popen[bytes] | None = None
        self._user = USER if os.geteuid() == 0 else None
        self._host = host
        self.port = port or free_port()
        secret = Path(self._folder.name) / "password"
        secret.write_text(password)
        if self._user:
            shutil.chown(self._folder.name, self._user)
            shutil.chown(secret, self._user)
        asks = ["-A", "scram-sha-256", "--pwfile", str(secret)] if password else ["-A", "trust"]
        made = subprocess.run(
            [str(program("initdb")), "-D", self._data, "-U", "proctor", *asks, "--no-sync"],
            user=self._user,
            cwd="/",
            capture_output=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr.decode()
        if password:
            with Path(f"{self._data}/pg_hba.conf").open("a") as rules:
                rules.write("host all all samenet scram-sha-256\n")
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
            [str(program("postgres")), "-D", self._data, "-p", str(self.port), "-h", self._host,
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
        asked = [str(program("pg_isready")), "-q", "-h", self._host, "-p", str(self.port)]
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
