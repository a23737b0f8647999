"""How a test has a stand-in, and what it orders of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waits import WAIT_SECONDS

from proctor_service.settings import Settings

KEY = "right-key"


def has_other_users() -> bool:
    """Whether this process may become another user, and so a program in the stand-in's sandboxes."""
    ranges = Path("/proc/self/uid_map").read_text().split()
    return os.geteuid() == 0 and int(ranges[2]) > 1


class StandIn:
    """A running stand-in."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self._answer()}"

    def order(self, what: str, value: Any = None) -> Any:
        """Has something go wrong, or waits for something; see `__main__.Gateway.obey`."""
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps([what, value]) + "\n")
            self._process.stdin.flush()
            return self._answer()

    def alive(self, tag: str = "") -> list[str]:
        """The sandboxes that live, or those of them with a tag."""
        alive = self.order("census")["alive"]
        return [box["id"] for box in alive if not tag or tag in box["tags"]]

    def settings(self, **more: Any) -> Settings:
        """Settings of a service that uses it."""
        own: dict[str, Any] = {
            "backend": "aviato",
            "aviato_base_url": self.url,
            "aviato_api_key": KEY,
            "aviato_instance": "test",
            "pool_size": 4,
            "allow_degraded": not has_other_users(),
        }
        return Settings(**{**own, **more})

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the stand-in ended"
        return json.loads(line)


@contextmanager
def stand_in(streams: int = 0, user: int = 0) -> Iterator[StandIn]:
    """A stand-in for the length of a block; nothing of it is left afterwards."""
    options = ["--streams", str(streams), "--user", str(user)]
    tests = Path(__file__).parents[1]
    path = [str(tests), str(tests / "support"), *sys.path]
    with subprocess.Popen(
        [sys.executable, "-m", "aviato_gateway", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
    ) as process:
        try:
            yield StandIn(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(WAIT_SECONDS)
