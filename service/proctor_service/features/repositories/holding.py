"""Makes files of the tests read-only while they run: from a runner's claim to report, before it reads them.

Until the claim, the task's own commands edit files freely. The claim blocks the runner's process as long as a
certain file exists; the service removes this file once the tests' files are read-only.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from proctor_service.features.repositories.change import FileState
from proctor_service.features.repositories.reports.listener import HOLD
from proctor_service.features.repositories.trees import Tree
from proctor_service.sandbox.interface import Ended, StatefulSandbox

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.005, 0.05
_SLOWER = 1.05
_MOST_READ_BYTES = 1 << 20


class Holding:
    """Makes files read-only at the first claim of a run.

    `paths`: below `directory`. `image`: the sandbox's root. `socket`: path of the listener's socket.
    `record`: the service's file with the events of the listener.
    """

    def __init__(
        self,
        sandbox: StatefulSandbox,
        image: Tree,
        directory: str,
        paths: Sequence[bytes],
        socket: str,
        record: str,
    ) -> None:
        self._sandbox, self._image, self._directory = sandbox, image, directory
        self._paths, self._record = paths, record
        self._hold = (socket + HOLD).lstrip("/").encode()

    async def during(self, tests: Coroutine[Any, Any, Ended]) -> Ended:
        """Return the end of the tests' command. Raises the errors of the command and of `make_read_only`."""
        if not self._paths:
            return await tests
        running = asyncio.ensure_future(tests)
        holding = asyncio.ensure_future(self._at_claim())
        try:
            await asyncio.wait([running, holding], return_when=asyncio.FIRST_COMPLETED)
            if holding.done():
                holding.result()
            return await running
        finally:
            for each in (running, holding):
                each.cancel()
            await asyncio.gather(running, holding, return_exceptions=True)

    async def open(self) -> None:
        """Let the claims of a run wait. Call before the tests."""
        if self._paths:
            await self._image.put({self._hold: FileState("644", b"")})

    async def _at_claim(self) -> None:
        offset, is_claimed = 0, False
        pause_seconds = _FIRST_PAUSE_SECONDS
        while not is_claimed:
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * _SLOWER, _LONGEST_PAUSE_SECONDS)
            offset, is_claimed = await asyncio.to_thread(_read_claim, self._record, offset)
        await self._sandbox.make_read_only(self._directory, self._paths)
        await self._image.put({self._hold: None})


def _read_claim(record: str, offset: int) -> tuple[int, bool]:
    """Return the end of the lines complete by now, and True if a claim is among these lines."""
    with Path(record).open("rb") as file:
        file.seek(offset)
        lines, _, _ = file.read(_MOST_READ_BYTES).rpartition(b"\n")
    return offset + len(lines) + bool(lines), any(map(_is_claim, lines.splitlines()))


def _is_claim(line: bytes) -> bool:
    """Return True for `[1, "main", "claim", "main", "pytest"]`."""
    try:
        event = json.loads(line)
    except ValueError:
        return False
    return isinstance(event, list) and event[2:3] == ["claim"]
