"""Replicas in processes of their own, with the real local backend, that a test may treat badly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import httpx
from service_process import remove_groups_of
from waits import WAIT_SECONDS

from fault_rig.programs import free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]


class Process:
    """One replica. It keeps its port over deaths and starts, and what it logged."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.settings: dict[str, str] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._lives: list[int] = []
        self._last_words = ""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process

    @property
    def said(self) -> str:
        """What all its lives have logged."""
        if self._log.closed:
            return self._last_words
        # Not by `seek`: the process writes at the same position.
        descriptor = self._log.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")

    @property
    def runs(self) -> bool:
        """Whether it does."""
        return self._child is not None and self._child.poll() is None

    def start(self, settings: Mapping[str, str] | None = None) -> None:
        """Starts it, and waits until it is ready. `settings` are kept for the next time."""
        assert not self.runs, "it runs"
        self.settings.update(settings or {})
        self._child = subprocess.Popen(
            [sys.executable, "-m", "proctor_service", "serve", "--port", str(self.port),
             "--end-with-parent", str(os.getpid())],
            env={**_environment(), **self.settings},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )  # fmt: skip
        self._lives.append(self._child.pid)
        wait_until(lambda: self.is_ready() or not self.runs, "it is not ready")
        assert self.runs, self.said[-4000:]

    def is_ready(self) -> bool:
        """Whether it says so."""
        try:
            return httpx.get(f"{self.url}/readyz", timeout=2, trust_env=False).is_success
        except httpx.HTTPError:
            return False

    def send(self, sign: signal.Signals) -> None:
        """Sends it a signal."""
        assert self._child is not None, "it was never started"
        self._child.send_signal(sign)

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        """Waits until it is gone; its exit status."""
        assert self._child is not None, "it was never started"
        return self._child.wait(seconds)

    def kill(self) -> None:
        """Kills it, without a word."""
        self.send(signal.SIGKILL)
        self.wait()

    def close(self) -> None:
        """Ends it, whatever state it is in."""
        if self.runs:
            self.send(signal.SIGCONT)
            self.kill()
        self._last_words = self.said
        self._log.close()
        remove_groups_of(self._lives)


def _environment() -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if "PROCTOR_" not in name}
    path = f"{ROOT}/client{os.pathsep}{ROOT}/service"
    return {**clean, "PYTHONPATH": path, "PROCTOR_JOURNAL": "off"}
