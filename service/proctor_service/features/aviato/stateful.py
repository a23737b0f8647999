"""Stateful sandbox: each command is a separate supervisor's run in the same workdir.

Between two commands, no process of the service waits in the sandbox, so a restart of the gateway
affects only the commands running at the time. Files and background processes stay in the sandbox.
Environment changes of Python code are reported, stored here, and passed to the next command.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from proctor_service.errors import SandboxEnded, SandboxLost, SandboxUnavailable
from proctor_service.features.aviato.execution import RemoteExecution
from proctor_service.sandbox.file_operations import FileOperations, limits_of_operation
from proctor_service.sandbox.interface import Command, Ended, Hear, Limits, Usage

_KILL_SECONDS = 5.0
_FILE_SECONDS = 60.0
_UNTIMED_SECONDS = 1e8
_MOST_ENVIRONMENT_BYTES = 1 << 16

T = TypeVar("T")
Open = Callable[[float], AbstractAsyncContextManager[RemoteExecution]]
"""Start a supervisor for a command with this time. Raises SandboxUnavailable."""


class AviatoStatefulSandbox(FileOperations):
    """Implements `sandbox.interface.StatefulSandbox`."""

    def __init__(self, name: str, limits: Limits, flood_bytes: int, open_supervisor: Open) -> None:
        self.id = name
        self._limits = limits
        self._flood_bytes = flood_bytes
        self._open = open_supervisor
        self._environment: dict[str, str | None] = {}
        self._over: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()

    # ------------------------------------------------------------ lifecycle

    async def ended(self) -> Ended:
        """See `StatefulSandbox.ended`."""
        return await asyncio.shield(self._over)

    def kill(self) -> None:
        """See `StatefulSandbox.kill`."""
        if not self._over.done():
            self._over.set_result(Ended("killed", None, None, b"", b"", False, Usage()))

    def lose(self, why: str) -> None:
        """Mark the sandbox as lost for an outside reason."""
        if not self._over.done():
            self._over.set_exception(SandboxLost(why))
            self._over.exception()  # retrieved here, or asyncio would log a warning

    # ------------------------------------------------------------ commands and files

    async def exec(self, command: Command, hear: Hear | None = None) -> Ended:
        """See `StatefulSandbox.exec`."""
        limits, timeout = self._limits, command.timeout_seconds
        if timeout is not None:
            limits = limits.with_time(_UNTIMED_SECONDS)
        kind = "argv" if command.code is None else "code"
        what: list[object] = list(command.argv) if command.code is None else [command.code]
        return await self._run(kind, what, command.stdin, limits, timeout, hear)

    async def _file_operation(
        self, kind: str, what: list[object], keep_bytes: int = 0, stdin: bytes = b""
    ) -> Ended:
        limits = limits_of_operation(self._limits, _FILE_SECONDS, keep_bytes)
        return await self._run(kind, what, stdin, limits, None, None)

    # ------------------------------------------------------------ runs

    async def _run(
        self,
        kind: str,
        what: list[object],
        stdin: bytes,
        limits: Limits,
        timeout: float | None,
        hear: Hear | None,
    ) -> Ended:
        async with contextlib.AsyncExitStack() as stack:
            seconds = limits.cpu_seconds + limits.wall_seconds if timeout is None else timeout
            execution = await self._unless_over(self._supervisor(stack, seconds))
            flood = max(self._flood_bytes, 2 * limits.output_kb << 10)
            still = kind == "save"  # other processes stop while the files are read
            execution.begin(limits, flood, timeout_seconds=timeout, hear=hear, still=still)
            execution.pass_on(_order(kind, what, stdin, self._environment, limits.disk_mb))
            try:
                ended = await self._unless_over(execution.ended())
            except asyncio.CancelledError:
                await _kill(execution)
                raise
            if kind == "code":
                self._take_environment(execution.report())
            return ended

    async def _supervisor(
        self, stack: contextlib.AsyncExitStack, seconds: float
    ) -> RemoteExecution:
        try:
            return await stack.enter_async_context(self._open(seconds))
        except SandboxUnavailable as failure:
            raise SandboxLost(failure.message) from failure

    async def _unless_over(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, unless the sandbox ends first.

        Raises SandboxEnded or SandboxLost if the sandbox ends first.
        """
        doing = asyncio.ensure_future(work)
        try:
            both: set[asyncio.Future[Any]] = {doing, self._over}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done() or self._over.done():
                raise self._end()
            return doing.result()
        except SandboxLost as lost:
            # The interrupted work may have run or not: the sandbox's state is unknown.
            self.lose(lost.message)
            raise
        finally:
            if not doing.done():
                doing.cancel()
                await asyncio.wait({doing})

    def _end(self) -> Exception:
        error = self._over.exception()
        if isinstance(error, SandboxLost):
            return SandboxLost(error.message)
        return SandboxEnded("the sandbox was stopped")

    def _take_environment(self, report: bytes) -> None:
        """Store the environment changes of Python code for all later commands in this sandbox."""
        with contextlib.suppress(ValueError, AttributeError):
            if len(report) <= _MOST_ENVIRONMENT_BYTES:
                for name, value in json.loads(report or b"{}").items():
                    if value is None or isinstance(value, str):
                        self._environment[name] = value


def _order(
    kind: str,
    what: list[object],
    stdin: bytes,
    environment: dict[str, str | None],
    file_mb: int,
) -> bytes:
    """Return the order for the child.

    A file written for the service is limited to the size of the whole disk.
    """
    order = {
        "kind": kind,
        "what": what,
        "environment": environment,
        "stdin_bytes": len(stdin),
        "file_mb": file_mb if kind == "write" else None,
    }
    text = json.dumps(order).encode()
    return f"{len(text):08d}".encode() + text + stdin


async def _kill(execution: RemoteExecution) -> None:
    """Kill a command's processes, and wait a limited time for the ending."""
    execution.send(b"k\n")
    with contextlib.suppress(TimeoutError, SandboxLost):
        async with asyncio.timeout(_KILL_SECONDS):
            await execution.ended()
