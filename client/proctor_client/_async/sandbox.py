"""Handles of stateful sandboxes, for an agent's loop.

    async with proctor.sandbox(tags=["run-7"]) as sandbox:
        await sandbox.write_file("solution.py", code)
        seen = await sandbox.exec(["python", "solution.py"], timeout_seconds=30)
        result = await sandbox.grade({"kind": "pytest", "files": tests})

A client or a session creates the handles. Leaving the block always stops the sandbox, also after an
exception, Ctrl-C or a cancellation. A failed command raises no exception: check its exit code. A
command ended by its time limit raises SandboxTimeoutError. Every method raises a SandboxError if
the sandbox is gone, and other ProctorErrors as the client does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self, Unpack

from proctor_client import wire
from proctor_client._async.driver import AsyncDriver
from proctor_client._async.streams import AsyncExecStream
from proctor_client._calls import CodeOptions
from proctor_client._handle import Handle, Observer
from proctor_client._runtime import PerProcess, shielded
from proctor_client._sandbox_calls import AnyGrader, AnyLimits, SandboxCalls, exec_request
from proctor_client.errors import ProctorError, SandboxNotFoundError


class AsyncSandbox(Handle):
    """Handle of a stateful sandbox, for event loops. Cancelling an `exec` kills the command."""

    def __init__(
        self,
        driver: AsyncDriver,
        calls: SandboxCalls,
        order: wire.SandboxRequest | None = None,
        *,
        sandbox_id: str | None = None,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(calls, order, sandbox_id=sandbox_id, observer=observer)
        self._driver = driver
        self._lock = PerProcess(asyncio.Lock)  # serializes start and stop

    async def start(self) -> Self:
        """Create the sandbox, unless this was done already. Returns this handle."""
        async with self._lock.get():
            if self._begins():
                try:
                    self._started(await self._driver.finish(self._create(self._calls)))
                except ProctorError:
                    self._observer.on_end(self)
                    raise
                except BaseException:
                    await shielded(self._abandon)
                    raise
        return self

    async def stop(self, *, missing_ok: bool = False) -> bool:
        """Stop the sandbox; return True if this call stopped the sandbox.

        Raises SandboxNotFoundError for a sandbox unknown to the service, unless `missing_ok`.
        """
        async with self._lock.get():
            if self._id is None and missing_ok:
                self._ended()
                return False
            try:
                stopped = await self._driver.finish(
                    self._calls.stop(self.id, missing_ok=missing_ok)
                )
            except SandboxNotFoundError:
                self._ended()
                raise
            self._ended()
            return stopped

    async def close(self) -> None:
        """Stop the sandbox if this handle created it.

        Leaving the `async with` block calls this method. The method makes a few quick attempts and
        raises no ProctorError; the ttl ends a remaining sandbox.

        A cancellation takes effect after the clean-up.
        """
        try:
            await shielded(self._close)
        except BaseException:  # Ctrl-C in a thread; after a cancellation, nothing is left to do
            await self._close()
            raise

    async def exec(
        self,
        command: Sequence[str] | None = None,
        *,
        code: str | None = None,
        stdin: str = "",
        timeout_seconds: float | None = None,
    ) -> wire.ExecResult:
        """Run a command (an argv, no shell) or Python code, and wait for the end.

        `timeout_seconds` excludes the transfer and the wait for a core; by default the sandbox's
        own limits apply. At a time limit, SandboxTimeoutError is raised with the output so far.
        After a ProctorConnectionError or ProctorTimeoutError, the command may have run.
        """
        request = exec_request(command, code, stdin, timeout_seconds)
        return await self._driver.finish(self._exec(request))

    def stream(
        self,
        command: Sequence[str] | None = None,
        *,
        code: str | None = None,
        stdin: str = "",
        timeout_seconds: float | None = None,
    ) -> AsyncExecStream:
        """Run a command as exec does, but iterate over the output; the last line has the result.

        The command starts at the first `next`; leaving the stream early kills the command.
        """
        request = exec_request(command, code, stdin, timeout_seconds)
        return AsyncExecStream(self._driver.drive(self._stream(request)))

    async def read_file(self, path: str) -> bytes:
        """Return a whole file; `path` is absolute, or relative to the working directory.

        Raises SandboxFileError if the path is missing or is not a file.
        """
        return await self._driver.finish(self._calls.read_file(self.id, path))

    async def write_file(self, path: str, data: bytes | str) -> None:
        """Write a whole file and its parent directories; text as UTF-8. Raises SandboxFileError."""
        await self._driver.finish(self._calls.write_file(self.id, path, data))

    async def grade(
        self,
        grader: AnyGrader,
        *,
        scoring: wire.Scoring = "all",
        limits: AnyLimits | None = None,
        step: int | None = None,
        negative_control: wire.NegativeControl = "signal",
        **code: Unpack[CodeOptions],
    ) -> wire.Result:
        """Judge the sandbox's `solution.py` in the current state, which stays unchanged.

        `step` is the step of the training run, for the journal; `negative_control` is as for
        rewards, and so are `prelude` and the other fields of CodeOptions. As with rewards, a result
        that could not be judged has `error` set.
        """
        flow = self._calls.grade(self.id, grader, scoring, limits, step, negative_control, code)
        return await self._driver.finish(flow)

    async def refresh(self) -> wire.Sandbox:
        """Ask the service for the sandbox's state, and update `status` and `tags`."""
        self._state = await self._driver.finish(self._calls.get(self.id))
        return self._state

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _close(self) -> None:
        async with self._lock.get():
            if self._is_stopped or (self._id is not None and not self._is_ours):
                return
            if self._id is not None:
                try:
                    await self._driver.finish(self._calls.hasty().stop(self._id, missing_ok=True))
                except ProctorError as error:
                    _log_left(self._id, error)
            self._ended()

    async def _abandon(self) -> None:
        """Stop the sandbox of an interrupted creation, found by its Idempotency-Key."""
        calls = self._calls.hasty()
        with suppress(ProctorError):
            made = await self._driver.finish(self._create(calls))
            await self._driver.finish(calls.stop(made.id, missing_ok=True))
        self._ended()


def _log_left(sandbox_id: str, error: ProctorError) -> None:
    logging.getLogger("proctor_client").warning(
        "sandbox %s was not stopped, its ttl will end it: %s", sandbox_id, error
    )
