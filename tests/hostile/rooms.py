"""One stateful sandbox, as an agent and its trainer use it over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx

from hostile.attacks import GRADER

LIMITS = {"cpu_seconds": 2, "wall_seconds": 5, "memory_mb": 128, "processes": 32, "disk_mb": 16}
SOLUTION = "def double(x):\n    return 2 * x\n"
WRONG = "def double(x):\n    return 3 * x\n"


class Room:
    """One sandbox, and what an agent and its trainer do with it."""

    def __init__(self, client: httpx.Client, **limits: Any) -> None:
        self.client = client
        answer = client.post("/sandboxes", json={"limits": {**LIMITS, **limits}})
        assert answer.status_code == 201, answer.text
        self.url = f"/sandboxes/{answer.json()['id']}"

    def exec(self, **body: Any) -> httpx.Response:
        return self.client.post(f"{self.url}/exec", json=body)

    def python(self, code: str, **body: Any) -> dict[str, Any]:
        return self._ended(self.exec(code=code, **body))

    def shell(self, line: str, **body: Any) -> dict[str, Any]:
        return self._ended(self.exec(command=["/bin/sh", "-c", line], **body))

    def background(self, code: str) -> None:
        """Leaves code running in a session of its own, with no parent but the first process."""
        lines = [
            "import os, time",
            "if os.fork() == 0:",
            "    os.setsid()",
            "    while os.getppid() != 1: time.sleep(0.001)",
            f"    exec({code!r})",
        ]
        assert self.python("\n".join(lines))["exit_code"] == 0

    def put(self, path: str, data: bytes) -> int:
        return self.client.put(self._file(path), content=data).status_code

    def get(self, path: str) -> httpx.Response:
        return self.client.get(self._file(path))

    def grade(self, **grader: Any) -> dict[str, Any]:
        answer = self.client.post(f"{self.url}/grade", json={"grader": grader or GRADER})
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        assert result["error"] is None, result
        return result

    def stop(self) -> None:
        self.client.delete(f"{self.url}?missing_ok=true").raise_for_status()

    def _file(self, path: str) -> str:
        return f"{self.url}/files/{quote(path, safe='')}"

    def _ended(self, answer: httpx.Response) -> dict[str, Any]:
        assert answer.status_code == 200, answer.text
        ended: dict[str, Any] = answer.json()
        return ended
