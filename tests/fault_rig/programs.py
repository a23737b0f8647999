"""Programs of the system that are started for a test, on free ports, and ended with it."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from needed_programs import PLACES
from waits import WAIT_SECONDS

PAUSE_SECONDS = 0.02


def path_of(program: str) -> str:
    """Where it is."""
    found = shutil.which(program, path=PLACES)
    assert found is not None, f"{program} is missing: make test-programs"
    return found


def free_port() -> int:
    """A port on loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Looks again and again: another process has no event for us. Raises AssertionError."""
    pause = threading.Event()
    for _ in range(int(WAIT_SECONDS / PAUSE_SECONDS)):
        if condition():
            return
        pause.wait(PAUSE_SECONDS)
    raise AssertionError(f"{what}, for {WAIT_SECONDS:g} s")


def listens(port: int) -> bool:
    """Whether somebody takes connections there."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class RedisServer:
    """A Redis of one's own, without a disk. It can be ended and started again, empty."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="redis-")
        self._child: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self, *arguments: str) -> None:
        """Starts it, and waits until it takes connections."""
        self._child = subprocess.Popen(
            [path_of("redis-server"), "--port", str(self.port), "--bind", "127.0.0.1",
             "--save", "", "--appendonly", "no", *arguments],
            cwd=self._folder.name,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(lambda: listens(self.port), "redis-server does not listen")

    def send(self, sign: signal.Signals) -> None:
        """Sends it a signal."""
        assert self._child is not None, "it does not run"
        self._child.send_signal(sign)

    def stop(self) -> None:
        """Ends it, if it runs."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def close(self) -> None:
        """Ends it and its folder."""
        self.stop()
        self._folder.cleanup()


@contextmanager
def redis_server() -> Iterator[RedisServer]:
    """A Redis, until the block ends."""
    server = RedisServer()
    try:
        yield server
    finally:
        server.close()


@contextmanager
def nginx(configuration: str) -> Iterator[None]:
    """nginx with this configuration inside its `http` block, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="nginx-") as name:
        folder = Path(name)
        (folder / "site.conf").write_text(configuration)
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        places = "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
        (folder / "nginx.conf").write_text(
            f"daemon off; pid {folder}/pid; error_log {folder}/error.log warn;\n"
            "worker_processes 1; events { worker_connections 4096; }\n"
            f"http {{ access_log off; {places} include {folder}/site.conf; }}\n"
        )
        command = [path_of("nginx"), "-p", name, "-c", f"{folder}/nginx.conf"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
            try:
                wait_until(
                    lambda: (folder / "pid").exists() or child.poll() is not None, "no nginx"
                )
                assert child.poll() is None, child.stderr and child.stderr.read().decode()
                yield
            finally:
                child.terminate()
