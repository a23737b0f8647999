"""Fresh sandbox for a single program: `sandbox.interface.Sandbox` over a supervisor's run."""

from __future__ import annotations

import asyncio

from proctor_service.features.aviato.execution import RemoteExecution
from proctor_service.sandbox.interface import Ended, GuestMessage

_KILL_SECONDS = 5.0


class AviatoSandbox:
    """Implements `sandbox.interface.Sandbox`."""

    def __init__(self, name: str, execution: RemoteExecution, flood_bytes: int) -> None:
        self.id = name
        self._execution = execution
        self._flood_bytes = flood_bytes
        self._loop = asyncio.get_running_loop()

    def begin(self, message: GuestMessage) -> None:
        """See `Sandbox.begin`."""
        self._execution.on_line = message.on_line
        self._execution.begin(
            message.limits,
            self._flood_bytes,
            message.keep_stdout_bytes,
            takes_turns=message.takes_turns,
        )
        self.send(message.line)

    def send(self, line: bytes) -> None:
        """See `Sandbox.send`."""
        self._execution.pass_on(line)

    def begin_test(self) -> None:
        """See `Sandbox.begin_test`."""
        self._execution.send(b"t\n")

    async def drain(self) -> None:
        """See `Sandbox.drain`."""
        await self._execution.drain()

    def hang_up(self) -> None:
        """See `Sandbox.hang_up`."""
        self._execution.send(b"h\n")

    async def receive(self) -> bytes | None:
        """See `Sandbox.receive`."""
        return await self._execution.receive()

    async def ended(self) -> Ended:
        """See `Sandbox.ended`."""
        return await self._execution.ended()

    def kill(self) -> None:
        """See `Sandbox.kill`."""
        if self._execution.begun:
            self._execution.send(b"k\n")
            self._loop.call_later(_KILL_SECONDS, self._execution.give_up)
        else:
            self._execution.give_up()
