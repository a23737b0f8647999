"""A judge process: does the requests of the listening process, with a judge and a backend of its own.

The process ends when its connection ends, and the kernel kills it when the listening process ends
in any other way. Signals of the terminal and of a service manager are for the listening process.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import mmap
import os
import pickle
import signal
import socket
import struct
import time
import traceback
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from proctor_service.errors import ProctorServiceError, StartError
from proctor_service.evaluate import Judge
from proctor_service.features.replicas.judge_processes.turns import Turns
from proctor_service.http.process_end import end_process
from proctor_service.observe.observer import ObservedSandboxes
from proctor_service.processes.connection import (
    CANCEL,
    FAILED,
    HEARD,
    NOTE,
    REPLY,
    REQUEST,
    Connection,
    Message,
)
from proctor_service.processes.values import (
    Graders,
    Values,
    ended_values,
    judgement_values,
    submission_of,
    traits_values,
)
from proctor_service.sandbox.environments import (
    NO_ENVIRONMENTS,
    Environments,
    ReplacedEnvironments,
    TakesEnvironments,
)
from proctor_service.sandbox.interface import (
    CHARGE,
    PAYER,
    Backend,
    Command,
    EndsIdle,
    Limits,
    Operation,
    Sandboxes,
    Spent,
    StatefulSandbox,
)
from proctor_service.settings import Settings, Share
from proctor_service.settings.event_loop import event_loop
from proctor_service.settings.garbage import spare_collector
from proctor_service.settings.threads import leave_threads

log = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
_NUMBER = struct.Struct("<Q")
IDLE = 0
"""Mark of an idle process."""

Build = Callable[[Settings, Share, Environments], tuple[Judge, Backend]]
"""Maker of the judge and the backend. Raises StartError."""


@runtime_checkable
class FarBackend(Protocol):
    """Backend with remote sandboxes, which reports their starts and failures."""

    def when_created(self, callback: Callable[[float], None]) -> None:
        """Call `callback(seconds)` for each started sandbox."""

    def when_failed(self, callback: Callable[[str], None]) -> None:
        """Call `callback(reason)` for each failed sandbox or command."""

    def when_spent(self, callback: Spent) -> None:
        """Call `callback((tenant, job), seconds, dollars)` when sandboxes end."""


class Mark:
    """Number of the request under work, in memory shared with the listening process."""

    def __init__(self, descriptor: int) -> None:
        self._page = mmap.mmap(descriptor, _NUMBER.size)
        os.close(descriptor)

    def set(self, number: int) -> None:
        """Write the number of the request, or `IDLE`."""
        _NUMBER.pack_into(self._page, 0, number)


class Marked:
    """Awaitable around a coroutine: the mark has the request's number during each of its steps.

    `begin` makes the coroutine, at the first step: a task may be cancelled before.
    """

    def __init__(self, begin: Callable[[], Awaitable[Any]], mark: Mark, number: int) -> None:
        self._begin = begin
        self._mark = mark
        self._number = number

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._begin().__await__()
        thrown: BaseException | None = None
        while True:
            self._mark.set(self._number)
            try:
                waited = next(steps) if thrown is None else steps.throw(thrown)
            except StopIteration as stop:
                return stop.value
            finally:
                self._mark.set(IDLE)
            thrown = None
            try:
                yield waited
            except BaseException as error:  # a cancellation, which goes on into the work
                thrown = error


@dataclass(slots=True)
class _Held:
    """A stateful sandbox, open until `release`."""

    sandbox: StatefulSandbox
    stack: AsyncExitStack


class Process:
    """Requests of the listening process, each a task."""

    def __init__(self, build: Build, mark: Mark) -> None:
        self.ended = asyncio.Event()
        self._build = build
        self._mark = mark
        self._graders = Graders()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._held: dict[int, _Held] = {}
        self._connection: Connection | None = None
        self._judge: Judge | None = None
        self._backend: Backend | None = None
        self._environments: Environments = NO_ENVIRONMENTS
        self._starting: asyncio.Task[None] | None = None
        self._traced = False
        self._lendable = 0
        self._commands = 0
        self._used: dict[int, float] = {}  # core seconds by request
        self._turns = Turns(1)

    async def serve(self, end: socket.socket) -> None:
        """Serve requests until the connection ends; then end all sandboxes."""
        self._connection = await Connection.over(end, self._receive, self.ended.set)
        await self.ended.wait()
        tasks = [*self._tasks.values(), *([self._starting] if self._starting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._backend is not None:
            await self._backend.close()

    def _send(self, *message: Any) -> None:
        if self._connection is not None and not self.ended.is_set():
            self._connection.send(*message)

    def _send_later(self, *message: Any) -> None:
        if self._connection is not None and not self.ended.is_set():
            self._connection.send_later(*message)

    def _receive(self, message: Message) -> None:
        kind = message[0]
        if kind == REQUEST:
            _, number, method, arguments = message
            work = Marked(lambda: self._answer(number, method, arguments), self._mark, number)
            task = asyncio.ensure_future(_awaited(work))
            self._tasks[number] = task
            task.add_done_callback(lambda _: self._tasks.pop(number, None))
        elif kind == CANCEL:
            self._cancel(message[1])
        else:
            self._note(message[1], message[2])

    def _cancel(self, number: int) -> None:
        task = self._tasks.get(number)
        if task is not None and not task.done():
            task.cancel()
        elif number in self._held:  # opened, but the caller left before the answer came
            held = self._held.pop(number)
            self._tasks[number] = asyncio.ensure_future(held.stack.aclose())
            self._tasks[number].add_done_callback(lambda _: self._tasks.pop(number, None))

    def _note(self, name: str, values: Values) -> None:
        match name:
            case "ping":
                census = {} if self._backend is None else self._backend.census()
                self._send(NOTE, "pong", (self._lendable, census, dict(self._used)))
                self._turns.hand_back()
            case "environments":
                self._take_environments(*pickle.loads(values[0]))
            case "end_idle":
                if isinstance(self._backend, EndsIdle):
                    self._backend.end_idle()
            case "kill":
                if values[0] in self._held:
                    self._held[values[0]].sandbox.kill()
            case "start":
                self._starting = asyncio.ensure_future(self._start(*pickle.loads(values[0])))

    def _take_environments(self, names: list[str], environments: Environments) -> None:
        present = self._environments
        both = (present, environments)
        if isinstance(both[0], ReplacedEnvironments) and isinstance(both[1], ReplacedEnvironments):
            both[0].replace_listed(both[1].listed)
            if isinstance(self._backend, TakesEnvironments):
                self._backend.environments_changed(names, present)

    async def _start(self, settings: Settings, share: Share, environments: Environments) -> None:
        self._environments = environments
        try:
            self._judge, backend = self._build(settings, share, environments)
            try:
                await backend.start()
            except asyncio.CancelledError:
                await backend.close()
                raise
        except StartError as error:
            self._send(NOTE, "start_error", (str(error),))
            return
        except Exception:
            log.exception("a judge process cannot start")
            self._send(
                NOTE, "start_error", ("a judge process cannot start: the log has the error",)
            )
            return
        self._backend = backend
        self._traced = bool(settings.otlp_endpoint)
        self._turns = Turns(settings.slot_count())
        backend.when_asleep(self._tell_asleep)
        if isinstance(backend, FarBackend):
            backend.when_created(lambda seconds: self._send(NOTE, "created", (seconds,)))
            backend.when_failed(lambda reason: self._send(NOTE, "failed", (reason,)))
            backend.when_spent(
                lambda payer, seconds, dollars: self._send(
                    NOTE, "spent", (*payer, seconds, dollars)
                )
            )
        spare_collector()
        self._send(NOTE, "ready", traits_values(backend.traits))

    def _tell_asleep(
        self, yielding: int, lent: int, long_runners: Mapping[tuple[str, str], int]
    ) -> None:
        """Report the evaluations that left their cores: evaluations without a sandbox on a core."""
        with_sandboxes = self._turns.running + self._commands
        self._lendable = max(0, yielding - max(0, lent - with_sandboxes))
        self._turns.lend(self._lendable)
        self._send(NOTE, "asleep", (self._lendable, dict(long_runners)))

    async def _answer(self, number: int, method: str, arguments: Sequence[Any]) -> None:
        """Do a request, and send its result or its error."""
        try:
            value = await self._do(number, method, arguments)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():  # the caller still waits
                self._send(FAILED, number, "", traceback.format_exc())
            raise
        except ProctorServiceError as error:
            self._send(FAILED, number, type(error).__name__, str(error))
        except Exception:
            self._send(FAILED, number, "", traceback.format_exc())
        else:
            if self._turns.waiting:  # there is work: the listening process need not wake up
                self._send_later(REPLY, number, value)
            else:
                self._send(REPLY, number, value)

    async def _do(self, number: int, method: str, arguments: Sequence[Any]) -> Any:
        if method == "judge":
            return await self._judged(number, *arguments)
        if method == "open":
            return await self._open(number, *arguments)
        sandbox_number, *rest = arguments
        held = self._held.get(sandbox_number)
        assert held is not None, "a sandbox is used between `open` and `close`"
        sandbox = held.sandbox
        match method:
            case "exec":
                values, is_heard = rest
                hear = self._hear(number) if is_heard else None
                self._commands += 1
                try:
                    return ended_values(await sandbox.exec(Command(*values), hear))
                finally:
                    self._commands -= 1
            case "write_file":
                return await sandbox.write_file(*rest)
            case "read_file":
                return await sandbox.read_file(*rest)
            case "snapshot":
                return await sandbox.snapshot()
            case "restore":
                return await sandbox.restore(*arguments)
            case "operate":
                operation, most_bytes = rest
                return await sandbox.operate(Operation(*operation), most_bytes)
            case "set_command_defaults":
                return await sandbox.set_command_defaults(*rest)
            case "make_read_only":
                return await sandbox.make_read_only(*rest)
            case "ended":
                return ended_values(await sandbox.ended())
            case "close":
                del self._held[sandbox_number]
                return await held.stack.aclose()
        raise ValueError(f"no method {method}")

    def _hear(self, number: int) -> Callable[[str, bytes], None]:
        return lambda stream, data: self._send(HEARD, number, stream, data)

    async def _judged(self, number: int, values: Values, payer: tuple[str, str]) -> Values:
        """Wait for a turn, and judge.

        Return the judgement, the seconds of the turn, the leases, and the core seconds or None.
        """
        PAYER.set(payer)

        def charge(core_seconds: float) -> None:
            if number in self._used:
                self._used[number] += core_seconds

        CHARGE.set(charge)
        assert self._judge is not None, "requests come after `ready`"
        assert self._backend is not None, "they are set together"
        submission = submission_of(values, self._graders)
        async with self._turns:
            begun = time.monotonic()
            sandboxes: Sandboxes = self._backend
            leases: list[Values] = []
            if self._traced:
                sandboxes = ObservedSandboxes(sandboxes, lambda *lease: leases.append(lease))
            self._used[number] = 0.0
            try:
                judgement = await self._judge(submission, sandboxes)
            finally:
                used_seconds = self._used.pop(number) or None
            seconds = time.monotonic() - begun
            return judgement_values(judgement), seconds, leases, used_seconds

    async def _open(
        self,
        number: int,
        environment: str,
        limits: Values,
        tags: tuple[str, ...],
        payer: tuple[str, str],
    ) -> Values:
        PAYER.set(payer)
        assert self._backend is not None, "requests come after `ready`"
        stack = AsyncExitStack()
        sandbox = await stack.enter_async_context(
            self._backend.open(Limits(*limits), environment, tags)
        )
        self._held[number] = _Held(sandbox, stack)
        return number, sandbox.id


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def run(build: Build, arguments: Sequence[str]) -> None:
    """Run a judge process to its end.

    `arguments`: the descriptors of the connection and of the mark, and the PID of the listening
    process.
    """
    descriptor, mark, parent = map(int, arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) or os.getppid() != parent:
        raise SystemExit("the service that wanted this judge process is gone")
    end = socket.socket(fileno=descriptor)
    end.setblocking(False)

    async def main() -> None:
        leave_threads()
        await Process(build, Mark(mark)).serve(end)

    with asyncio.Runner(loop_factory=event_loop) as runner:
        runner.run(main())
    end_process(0)
