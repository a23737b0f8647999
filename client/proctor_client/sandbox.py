"""`Sandbox` and `AsyncSandbox`: handles of stateful sandboxes, for an agent's loop.

    with proctor.sandbox(tags=["run-7"]) as sandbox:
        sandbox.write_file("solution.py", code)
        seen = sandbox.exec(["python", "solution.py"], timeout_seconds=30)
        result = sandbox.grade({"kind": "pytest", "files": tests})

A client or a session creates the handles. Leaving the block always stops the sandbox, also after an
exception, Ctrl-C or a cancellation. A failed command raises no exception: check its exit code. A
command ended by its time limit raises SandboxTimeoutError. Every method raises a SandboxError if
the sandbox is gone, and other ProctorErrors as the client does.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from proctor_client import wire
from proctor_client._driver import AsyncDriver, Driver, to_the_end
from proctor_client._handle import Handle, Observer
from proctor_client._process import PerProcess
from proctor_client._sandbox_calls import AnyGrader, AnyLimits, SandboxCalls, exec_request
from proctor_client.errors import ProctorError, SandboxNotFoundError
from proctor_client.streams import AsyncExecStream, ExecStream


class Sandbox(Handle):
    """Handle of a stateful sandbox, for threads. Several threads may share a handle."""

    def __init__(
        self,
        driver: Driver,
        calls: SandboxCalls,
        order: wire.SandboxRequest | None = None,
        *,
        sandbox_id: str | None = None,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(calls, order, sandbox_id=sandbox_id, observer=observer)
        self._driver = driver
        self._lock = PerProcess(threading.RLock)  # serializes start and stop

    def start(self) -> Self:
        """Create the sandbox, unless this was done already. Returns this handle."""
        with self._lock.get():
            if self._begins():
                try:
                    self._started(self._driver.finish(self._create(self._calls)))
                except ProctorError:
                    self._observer.on_end(self)
                    raise
                except BaseException:
                    self._abandon()
                    raise
        return self

    def stop(self, *, missing_ok: bool = False) -> bool:
        """Stop the sandbox; return True if this call stopped the sandbox.

        Raises SandboxNotFoundError for a sandbox unknown to the service, unless `missing_ok`.
        """
        with self._lock.get():
            if self._id is None and missing_ok:
                self._ended()
                return False
            try:
                stopped = self._driver.finish(self._calls.stop(self.id, missing_ok=missing_ok))
            except SandboxNotFoundError:
                self._ended()
                raise
            self._ended()
            return stopped

    def close(self) -> None:
        """Stop the sandbox if this handle created it. Leaving the `with` block calls this method.

        The method makes a few quick attempts and raises no ProctorError; the ttl ends a remaining
        sandbox. A first Ctrl-C during the call waits for the clean-up; a second Ctrl-C ends the
        call.
        """
        try:
            self._close()
        except BaseException:
            self._close()
            raise

    def exec(
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
        return self._driver.finish(self._exec(request))

    def stream(
        self,
        command: Sequence[str] | None = None,
        *,
        code: str | None = None,
        stdin: str = "",
        timeout_seconds: float | None = None,
    ) -> ExecStream:
        """Run a command as exec does, but iterate over the output; the last line has the result.

        The command starts at the first `next`; leaving the stream early kills the command.
        """
        request = exec_request(command, code, stdin, timeout_seconds)
        return ExecStream(self._driver.drive(self._stream(request)))

    def read_file(self, path: str) -> bytes:
        """Return a whole file; `path` is absolute, or relative to the working directory.

        Raises SandboxFileError if the path is missing or is not a file.
        """
        return self._driver.finish(self._calls.read_file(self.id, path))

    def write_file(self, path: str, data: bytes | str) -> None:
        """Write a whole file and its parent directories; text as UTF-8. Raises SandboxFileError."""
        self._driver.finish(self._calls.write_file(self.id, path, data))

    def grade(
        self,
        grader: AnyGrader,
        *,
        scoring: wire.Scoring = "all",
        limits: AnyLimits | None = None,
    ) -> wire.Result:
        """Judge the sandbox's `solution.py` in the current state, which stays unchanged.

        As with rewards, a result that could not be judged has `error` set.
        """
        return self._driver.finish(self._calls.grade(self.id, grader, scoring, limits))

    def refresh(self) -> wire.Sandbox:
        """Ask the service for the sandbox's state, and update `status` and `tags`."""
        self._known = self._driver.finish(self._calls.get(self.id))
        return self._known

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _close(self) -> None:
        with self._lock.get():
            if self._is_stopped or (self._id is not None and not self._is_ours):
                return
            if self._id is not None:
                try:
                    self._driver.finish(self._calls.hasty().stop(self._id, missing_ok=True))
                except ProctorError as error:
                    _log_left(self._id, error)
            self._ended()

    def _abandon(self) -> None:
        """Stop the sandbox of an interrupted creation, found by its Idempotency-Key."""
        calls = self._calls.hasty()
        with suppress(ProctorError):
            made = self._driver.finish(self._create(calls))
            self._driver.finish(calls.stop(made.id, missing_ok=True))
        self._ended()


class AsyncSandbox(Handle):
    """Async version of Sandbox, for event loops. Cancelling an `exec` kills the command."""

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
        self._lock = PerProcess(asyncio.Lock)

    async def start(self) -> Self:
        """Async version of Sandbox.start."""
        async with self._lock.get():
            if self._begins():
                try:
                    self._started(await self._driver.finish(self._create(self._calls)))
                except ProctorError:
                    self._observer.on_end(self)
                    raise
                except BaseException:
                    await to_the_end(self._abandon())
                    raise
        return self

    async def stop(self, *, missing_ok: bool = False) -> bool:
        """Async version of Sandbox.stop."""
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
        """Async version of Sandbox.close. A cancellation takes effect after the clean-up."""
        await to_the_end(self._close())

    async def exec(
        self,
        command: Sequence[str] | None = None,
        *,
        code: str | None = None,
        stdin: str = "",
        timeout_seconds: float | None = None,
    ) -> wire.ExecResult:
        """Async version of Sandbox.exec."""
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
        """Async version of Sandbox.stream, for `async for`."""
        request = exec_request(command, code, stdin, timeout_seconds)
        return AsyncExecStream(self._driver.drive(self._stream(request)))

    async def read_file(self, path: str) -> bytes:
        """Async version of Sandbox.read_file."""
        return await self._driver.finish(self._calls.read_file(self.id, path))

    async def write_file(self, path: str, data: bytes | str) -> None:
        """Async version of Sandbox.write_file."""
        await self._driver.finish(self._calls.write_file(self.id, path, data))

    async def grade(
        self,
        grader: AnyGrader,
        *,
        scoring: wire.Scoring = "all",
        limits: AnyLimits | None = None,
    ) -> wire.Result:
        """Async version of Sandbox.grade."""
        return await self._driver.finish(self._calls.grade(self.id, grader, scoring, limits))

    async def refresh(self) -> wire.Sandbox:
        """Async version of Sandbox.refresh."""
        self._known = await self._driver.finish(self._calls.get(self.id))
        return self._known

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
        calls = self._calls.hasty()
        with suppress(ProctorError):
            made = await self._driver.finish(self._create(calls))
            await self._driver.finish(calls.stop(made.id, missing_ok=True))
        self._ended()


def _log_left(sandbox_id: str, error: ProctorError) -> None:
    logging.getLogger("proctor_client").warning(
        "sandbox %s was not stopped, its ttl will end it: %s", sandbox_id, error
    )
