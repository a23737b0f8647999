"""`Sandbox` and `AsyncSandbox`: a sandbox that keeps its state between calls, for an agent's loop.

    with proctor.sandbox(tags=["run-7"]) as sandbox:
        sandbox.write_file("solution.py", code)
        seen = sandbox.exec(["python", "solution.py"], timeout_seconds=30)
        result = sandbox.grade({"kind": "pytest", "files": tests})

Made by a client or a session. Leaving the block stops the sandbox, whatever ends it: an exception,
Ctrl-C, a cancelled task. A command that fails is no exception, its exit code says so; one that its
time limit ended raises SandboxTimeoutError. Every method raises a SandboxError when the sandbox is
gone, and other ProctorErrors as the client does.
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
    """For threads; several may use one."""

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
        self._lock = PerProcess(threading.RLock)  # of starting and stopping

    def start(self) -> Self:
        """Make the sandbox, if it is not there yet. Returns this handle."""
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
        """Stop it; whether it was this call that did so.

        Raises SandboxNotFoundError for one that the service does not know, unless `missing_ok`.
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
        """Stop it if it was made by this handle; what leaving the block does.

        Makes a few quick attempts and raises no ProctorError: what is left is ended by its ttl.
        Ctrl-C in the middle goes through only when it comes twice.
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
        """Run a command (an argv, no shell) or Python code, and wait for its end.

        `timeout_seconds` counts neither the way nor the waiting for a core; without it the
        sandbox's own limits hold. Raises SandboxTimeoutError, which has the output, at a time limit.
        It may have run when a ProctorConnectionError or ProctorTimeoutError is raised.
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
        """As exec, but iterate over the output as it comes; the last line has the result.

        It runs from the first `next`; leaving early kills it.
        """
        request = exec_request(command, code, stdin, timeout_seconds)
        return ExecStream(self._driver.drive(self._stream(request)))

    def read_file(self, path: str) -> bytes:
        """A whole file; `path` is relative to the working directory, or absolute.

        Raises SandboxFileError when there is none, or it is none.
        """
        return self._driver.finish(self._calls.read_file(self.id, path))

    def write_file(self, path: str, data: bytes | str) -> None:
        """Write a whole file, making directories; text as UTF-8. Raises SandboxFileError."""
        self._driver.finish(self._calls.write_file(self.id, path, data))

    def grade(
        self,
        grader: AnyGrader,
        *,
        scoring: wire.Scoring = "all",
        limits: AnyLimits | None = None,
    ) -> wire.Result:
        """What its `solution.py` is worth in the state that it is in; it stays as it is.

        As for rewards, `error` is set in a result that could not be judged.
        """
        return self._driver.finish(self._calls.grade(self.id, grader, scoring, limits))

    def refresh(self) -> wire.Sandbox:
        """Ask the service about it, and remember the answer in `status` and `tags`."""
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
        """Stops what a creation that was broken off may have made: its key finds it."""
        calls = self._calls.hasty()
        with suppress(ProctorError):
            made = self._driver.finish(self._create(calls))
            self._driver.finish(calls.stop(made.id, missing_ok=True))
        self._ended()


class AsyncSandbox(Handle):
    """As Sandbox, for an event loop. Cancelling an `exec` kills the command."""

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
        """As Sandbox.start."""
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
        """As Sandbox.stop."""
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
        """As Sandbox.close. A cancellation waits until it is done."""
        await to_the_end(self._close())

    async def exec(
        self,
        command: Sequence[str] | None = None,
        *,
        code: str | None = None,
        stdin: str = "",
        timeout_seconds: float | None = None,
    ) -> wire.ExecResult:
        """As Sandbox.exec."""
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
        """As Sandbox.stream, for `async for`."""
        request = exec_request(command, code, stdin, timeout_seconds)
        return AsyncExecStream(self._driver.drive(self._stream(request)))

    async def read_file(self, path: str) -> bytes:
        """As Sandbox.read_file."""
        return await self._driver.finish(self._calls.read_file(self.id, path))

    async def write_file(self, path: str, data: bytes | str) -> None:
        """As Sandbox.write_file."""
        await self._driver.finish(self._calls.write_file(self.id, path, data))

    async def grade(
        self,
        grader: AnyGrader,
        *,
        scoring: wire.Scoring = "all",
        limits: AnyLimits | None = None,
    ) -> wire.Result:
        """As Sandbox.grade."""
        return await self._driver.finish(self._calls.grade(self.id, grader, scoring, limits))

    async def refresh(self) -> wire.Sandbox:
        """As Sandbox.refresh."""
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
