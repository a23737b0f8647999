"""Shortages of resources counted by user in the kernel, where sandboxes are processes of the service's user.

A process of its own (`shortage_probe`) looks all the time, and again at the end of each run. A failed run
during a shortage gets no verdict, and is judged again. Meanwhile the sandbox with the largest part is
found and ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from proctor_service.errors import StartError
from proctor_service.sandbox.local import shortage_probe

_log = logging.getLogger(__name__)
_OF_EVERY_USER = shortage_probe.INOTIFY | shortage_probe.PROCESSES
"""Resources also counted for the service's user where each sandbox is a user of its own."""
_PATIENCE_SECONDS = 2.0
_START_SECONDS = 10.0
_AGAIN_SECONDS = 0.2
_SILENT_SECONDS = 10.0
_EVERYTHING = 31
_NAMES = {
    shortage_probe.PIPES: "pipes",
    shortage_probe.IN_TRANSIT: "descriptors in transit",
    shortage_probe.EPOLL: "watches of epoll",
    shortage_probe.INOTIFY: "inotify",
    shortage_probe.PROCESSES: "processes",
}


class Shortages:
    """Present and past shortages; without `open`, all resources count as sufficient.

    `on_short`: called with the bits of the short resources, every 20 ms and once more at the end.
    """

    def __init__(self) -> None:
        self.on_short: Callable[[int], None] = lambda bits: None
        self.bits = 0
        self._counts = dict.fromkeys(_NAMES, 0)
        self._since = 0.0
        self._said_at = -_SILENT_SECONDS
        self._open_files = 0
        self._probe: subprocess.Popen[bytes] | None = None
        self._is_open = False
        self._callers: list[Callable[[], None]] = []
        self._newcomers: list[Callable[[], None]] = []
        self._change = asyncio.Event()
        self._restart: asyncio.Task[None] | None = None

    async def open(self, open_files: int) -> None:
        """Start to look. `open_files`: limit of a sandbox's processes. Raises StartError."""
        self._loop = asyncio.get_running_loop()
        self._open_files = open_files
        self._is_open = True
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._start()
                await self.looked()
        except (OSError, TimeoutError) as error:
            raise StartError(f"the look for shortages does not start: {error}") from None

    def close(self) -> None:
        """Stop; callers waiting for a look go on."""
        self._is_open = False
        if self._restart is not None:
            self._restart.cancel()
        self._end()
        self.bits = 0
        self._go_on()

    def mark(self, has_own_user: bool) -> int:
        """Return a mark for `were_since`. `has_own_user`: of the sandbox in question."""
        bits = kinds_of(has_own_user)
        return sum(count for kind, count in self._counts.items() if kind & bits)

    def were_since(self, mark: int, has_own_user: bool) -> bool:
        """Return True for a shortage for this kind of sandbox since the mark, past or present."""
        return self.are(has_own_user) or self.mark(has_own_user) != mark

    def are(self, has_own_user: bool) -> bool:
        """Return True for a present shortage for this kind of sandbox."""
        return bool(self.bits & kinds_of(has_own_user))

    def when_looked(self, then: Callable[[], None]) -> None:
        """Call `then` after the next look; at once without a running probe."""
        if self._probe is None:
            then()
            return
        self._newcomers.append(then)
        if len(self._newcomers) == 1:
            self._loop.call_soon(self._ask)

    async def looked(self) -> None:
        """Wait for the next look."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_looked(lambda: None if done.done() else done.set_result(None))
        await done

    async def over(self, has_own_user: bool) -> None:
        """Wait for the end of a shortage, with an upper bound."""
        while self.are(has_own_user):
            rest = self._since + _PATIENCE_SECONDS - time.monotonic()
            if rest <= 0:
                return
            self._change.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._change.wait()

    async def _start(self) -> None:
        self._probe = await asyncio.to_thread(self._spawn)
        assert self._probe.stdout is not None
        os.set_blocking(self._probe.stdout.fileno(), False)
        self._loop.add_reader(self._probe.stdout.fileno(), self._on_report)

    def _spawn(self) -> subprocess.Popen[bytes]:
        path = Path(shortage_probe.__file__)
        most = self._open_files * 3 // 4  # what is nearly used up counts as short
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", path.read_text(), str(most)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            env={},
            start_new_session=True,
        )

    def _ask(self) -> None:
        callers, self._newcomers = self._newcomers, []
        self._callers += callers
        if self._probe is None or self._probe.stdin is None:
            self._go_on()
            return
        try:
            os.write(self._probe.stdin.fileno(), b"?" * len(callers))
        except OSError:
            pass  # it has ended, as `_on_report` will find

    def _on_report(self) -> None:
        assert self._probe is not None
        assert self._probe.stdout is not None
        try:
            report = os.read(self._probe.stdout.fileno(), 1 << 12)
        except BlockingIOError:
            return
        if not report:
            self._on_death()
            return
        for place in range(0, len(report) - 1, 2):
            self._note(report[place + 1] - shortage_probe.LETTER)
            if report[place] == ord("="):
                self._callers.pop(0)()

    def _note(self, bits: int) -> None:
        if bits and not self.bits:
            self._since = time.monotonic()
        if bits and time.monotonic() > self._said_at + _SILENT_SECONDS:
            self._said_at = time.monotonic()
            short = [name for kind, name in _NAMES.items() if kind & bits]
            _log.warning("the user of the service is short of %s", ", ".join(short))
        over, self.bits = self.bits & ~bits, bits
        for kind in _NAMES:
            self._counts[kind] += bool(kind & bits)
        if bits or over:
            self.on_short(bits | over)
        self._change.set()

    def _on_death(self) -> None:
        """Start again. Until then everything counts as short: the state is unknown."""
        self._end()
        self._note(_EVERYTHING)
        self._go_on()
        if self._is_open:
            self._restart = self._loop.create_task(self._start_again())

    async def _start_again(self) -> None:
        while self._is_open:
            _log.error("the look for shortages ended, and starts again")
            try:
                await self._start()
            except OSError:
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                await self.looked()
                return

    def _end(self) -> None:
        probe, self._probe = self._probe, None
        if probe is None:
            return
        assert probe.stdin is not None
        assert probe.stdout is not None
        self._loop.remove_reader(probe.stdout.fileno())
        probe.stdin.close()
        probe.stdout.close()
        probe.kill()
        self._loop.run_in_executor(None, probe.wait)

    def _go_on(self) -> None:
        waiting = self._callers + self._newcomers
        self._callers, self._newcomers = [], []
        for then in waiting:
            then()


def kinds_of(has_own_user: bool) -> int:
    """Return the bits of possible shortages for a sandbox with or without a user of its own."""
    return _OF_EVERY_USER if has_own_user else _EVERYTHING
