"""A fresh sandbox for one program: `sandbox.interface.Sandbox` over one warden's run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from proctor_service.sandbox.backends.aviato.execution import Execution
from proctor_service.sandbox.interface import Ended, Job

_REST_SECONDS = 0.05
_KILL_SECONDS = 5.0


class AviatoSandbox:
    """Implements `sandbox.interface.Sandbox`.

    While nobody waits for the program, its idle time does not count: the judge is then busy with
    something else, such as having a second sandbox made, which takes a while here.
    """

    def __init__(self, name: str, execution: Execution, flood_bytes: int) -> None:
        self.id = name
        self._execution = execution
        self._flood_bytes = flood_bytes
        self._loop = asyncio.get_running_loop()
        self._attending = 0
        self._resting = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, job: Job) -> None:
        """See `Sandbox.begin`."""
        self._execution.begin(job.limits, self._flood_bytes, job.keep_stdout_bytes)
        self.send(job.message)

    def send(self, line: bytes) -> None:
        """See `Sandbox.send`."""
        self._execution.pass_on(line)

    async def drain(self) -> None:
        """See `Sandbox.drain`."""
        await self._execution.drain()

    def hang_up(self) -> None:
        """See `Sandbox.hang_up`."""
        self._execution.send(b"h\n")

    async def receive(self) -> bytes | None:
        """See `Sandbox.receive`."""
        with self._attended():
            return await self._execution.receive()

    async def ended(self) -> Ended:
        """See `Sandbox.ended`."""
        with self._attended():
            return await self._execution.ended()

    def kill(self) -> None:
        """See `Sandbox.kill`."""
        if self._execution.begun:
            self._execution.send(b"k\n")
            self._loop.call_later(_KILL_SECONDS, self._execution.give_up)
        else:
            self._execution.give_up()

    @contextlib.contextmanager
    def _attended(self) -> Iterator[None]:
        self._attending += 1
        if self._timer is not None:
            self._timer.cancel()
        if self._resting:
            self._resting = False
            self._execution.send(b"r\n")
        try:
            yield
        finally:
            self._attending -= 1
            if self._attending == 0 and not self._execution.over:
                self._timer = self._loop.call_later(_REST_SECONDS, self._rest)

    def _rest(self) -> None:
        if self._execution.begun and not self._execution.over:
            self._resting = True
            self._execution.send(b"p\n")
