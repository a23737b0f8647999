"""Temporary service for a single command, on a free port, with a private token.

The service is normal, in a child process. The child ends with the block, and also if this
process is killed. Ctrl-C in a terminal reaches every process of the foreground group; the child has
its own session, so that only this module ends the child.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import IO

import httpx

from proctor_service.cli.failures import Trouble

START_SECONDS = 60.0
END_SECONDS = 30.0
_LOOK_SECONDS = 0.05
_SHOWN_BYTES = 4000
_SERVE = (sys.executable, "-m", "proctor_service", "serve")


@dataclass(frozen=True)
class Running:
    """URL, pid and token of the service."""

    url: str
    pid: int
    token: str = field(repr=False)


@contextmanager
def temporary_service(
    *,
    allow_degraded: bool = False,
    settings: Mapping[str, str] = MappingProxyType({}),
    command: Sequence[str] = _SERVE,
) -> Iterator[Running]:
    """Run a service until the block ends. Raises Trouble, with the end of its log, on failure.

    `settings`: variables of the service, in addition to those of this process. `command`: what is
    started, with the options of `proctor serve` that this function adds.
    """
    port, token = _free_port(), secrets.token_urlsafe(24)
    url = f"http://127.0.0.1:{port}"
    options = ["--end-with-parent", str(os.getpid())]
    options += ["--allow-degraded"] if allow_degraded else []
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            [*command, *options],
            env={**_environment(port, token), **settings},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as child,
    ):
        try:
            _wait_until_ready(child, url, log)
            yield Running(url, child.pid, token)
        finally:
            _end(child)


def _environment(port: int, token: str) -> dict[str, str]:
    environment = {**os.environ, "PROCTOR_HOST": "127.0.0.1", "PROCTOR_PORT": str(port)}
    environment["PROCTOR_TOKENS"] = json.dumps({"local": token})
    environment.setdefault("PROCTOR_JOURNAL", "off")
    environment.pop("PROCTOR_TOKENS_FILE", None)
    return environment


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(child: subprocess.Popen[bytes], url: str, log: IO[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    with httpx.Client(trust_env=False, timeout=1.0) as http:
        while time.monotonic() < end:
            if child.poll() is not None:
                raise Trouble(f"the service did not start:\n{_last_words(log)}")
            try:
                if http.get(f"{url}/readyz").status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(_LOOK_SECONDS)
    raise Trouble(f"the service was not ready within {START_SECONDS:.0f} s:\n{_last_words(log)}")


def _last_words(log: IO[bytes]) -> str:
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _SHOWN_BYTES))
    return log.read().decode(errors="replace").strip() or "(it said nothing)"


def _end(child: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM, then a second SIGTERM, which ends the service at once.

    SIGKILL follows if the service still runs.
    """
    for sign, seconds in ((signal.SIGTERM, END_SECONDS), (signal.SIGTERM, END_SECONDS / 3)):
        try:
            child.send_signal(sign)
            child.wait(seconds)
            return
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            continue
    child.kill()
