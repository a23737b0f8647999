"""A judge process, as seen from the listening process: start, requests, supervision, end.

The listening process never waits for a judge process without serving others meanwhile: a request is
a message, and its answer comes as a message. Each judge process writes the number of its current
request into a page of shared memory. When a judge process ends, this number tells which request may
have caused the end.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from proctor_service.errors import StartError
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
from proctor_service.processes.values import Values, error_of
from proctor_service.sandbox.environments import Environments, LayeredEnvironments
from proctor_service.sandbox.interface import Hear, charge_nobody
from proctor_service.settings import Settings, Share

log = logging.getLogger(__name__)

Cause = Literal["stalled", "grown", "crashed", "killed", "hung", "closed"]
"""Reason for the end of a judge process.

`stalled`: killed after it had worked on one request for too much CPU time. `grown`: killed for its
memory. `crashed`: ended by itself. `killed`: killed by somebody else. `hung`: killed since it did
not answer for a minute, although it did not work. `closed`: ended by the service.
"""
BLAMED: frozenset[Cause] = frozenset({"stalled", "grown", "crashed"})
"""Causes for which a request may be responsible."""
JUDGE = "judge"
MEMORY_MB = 1024
"""A judge process with more memory is replaced; the items under way take a part."""
START_SECONDS = 60.0
END_SECONDS = 15.0
WATCH_SECONDS = 0.25
STALLED_CPU_SECONDS = 5.0
SILENT_SECONDS = 1.0
HUNG_SECONDS = 60.0
_NUMBER = struct.Struct("<Q")
_MEBIBYTE = 1024 * 1024
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_FAR_START_SECONDS = 3 * 60.0
"""A backend far away starts three sandboxes in turn, until it is open."""
_ARCHIVE_COPIES = 4  # of a sandbox's files in a judge process: as read, as bytes, and in messages


class WorkerEnded(Exception):
    """The judge process ended before its answer. `is_suspect`: this request may be the reason."""

    def __init__(self, cause: Cause, is_suspect: bool) -> None:
        super().__init__(f"a judge process ended: {cause}")
        self.cause = cause
        self.is_suspect = is_suspect


@dataclass(frozen=True, slots=True)
class Start:
    """Start values of a judge process: the command line, its settings, its share, the environments.

    `stalled_cpu_seconds`: CPU time after which a silent process is replaced.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    settings: Settings
    share: Share
    environments: Environments
    stalled_cpu_seconds: float = STALLED_CPU_SECONDS


@dataclass(slots=True)
class _Request:
    method: str
    answer: asyncio.Future[Message]
    hear: Hear | None
    archive_bytes: int
    charge_up_to: Callable[[float], None]


class Worker:
    """A judge process. `pid` and `traits` are known after `open`.

    `load`: present submissions, and stateful sandboxes in which commands run. `sandboxes`: present
    stateful sandboxes. `census`, `yielding`, `long_runners`: the last report on its sandboxes: by
    status, evaluations away from their cores, and long runners by tenant and job. `used_at`: the
    environments there beside the default, with the time of their last use (monotonic clock).
    """

    def __init__(self, start: Start, on_note: Callable[[Worker, str, Values], None]) -> None:
        self.pid = 0
        self.traits: Values = ()
        self.load = 0
        self.sandboxes = 0
        self.census: dict[str, int] = {}
        self.yielding = 0
        self.long_runners: dict[tuple[str, str], int] = {}
        self.used_at: dict[str, float] = {}
        self.cause: Cause | None = None
        self._start = start
        self._on_note = on_note
        self._numbers = itertools.count(1)
        self._requests: dict[int, _Request] = {}
        self._connection: Connection | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = asyncio.Event()
        self._mark = -1
        self._ready: asyncio.Future[Message] | None = None
        self._lost = asyncio.Event()
        self._ended_archive_bytes = 0  # of requests that ended since the last look at the memory
        self._pinged: tuple[float, float] | None = None  # CPU and wall seconds at the last ping

    @property
    def is_up(self) -> bool:
        """False once the process is known to end: a request would fail."""
        return self.cause is None and self._connection is not None and not self._lost.is_set()

    @property
    def is_silent(self) -> bool:
        """True if the process was silent for a second: stopped, or busy with a single thing."""
        return self._pinged is not None and time.monotonic() - self._pinged[1] > SILENT_SECONDS

    @property
    def slots(self) -> int:
        """Evaluations at once, as of its start."""
        return self._start.settings.slots

    async def open(self) -> None:
        """Start the process, and wait until its sandboxes work. Raises StartError."""
        self._ready = asyncio.get_running_loop().create_future()
        try:
            end = self._spawn()
        except OSError as error:
            raise StartError(f"a judge process cannot start: {error}") from None
        self._connection = await Connection.over(end, self._receive, self._lost.set)
        if self.cause is not None:  # `close` came meanwhile, and found no connection to close
            self._connection.close()
            raise StartError("a judge process was closed before it was ready")
        # The bytes go to our own process, which trusts this one.
        environments = self._start.environments
        if not isinstance(environments, LayeredEnvironments):
            environments = dict(environments)
        started_with = pickle.dumps((self._start.settings, self._start.share, environments))
        self._connection.send(NOTE, "start", (started_with,))
        seconds = self._start_seconds()
        lost = asyncio.ensure_future(self._lost.wait())
        try:
            first: set[asyncio.Future[Any]] = {lost, self._ready}
            done, _ = await asyncio.wait(
                first, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            lost.cancel()
        if not done:
            self.kill("hung")
            raise StartError(f"a judge process was not ready within {seconds:.0f} s")
        if not self._ready.done():
            raise StartError("a judge process ended before it was ready; the log says why")
        _, name, values = self._ready.result()
        if name == "start_error":
            self.kill("closed")
            raise StartError(values[0])
        self.traits = values

    def _spawn(self) -> socket.socket:
        """Start the process, and return this side's end of the connection. Raises OSError."""
        self._mark = os.memfd_create("proctor-request", os.MFD_CLOEXEC)
        os.ftruncate(self._mark, _NUMBER.size)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                ours.setblocking(False)
                passed = (theirs.fileno(), self._mark)
                # In this thread: the kernel kills the process with the thread that started it.
                process = subprocess.Popen(
                    [*self._start.command, *map(str, (*passed, os.getpid()))],
                    env=dict(self._start.environment),
                    stdin=subprocess.DEVNULL,
                    stdout=sys.__stderr__,
                    pass_fds=passed,
                    process_group=0,  # Ctrl-C is for the listening process, from the first moment
                )
            try:
                pidfd = os.pidfd_open(process.pid)
            except OSError:  # descriptors ran out: an unwatched process may not stay
                process.kill()
                process.wait()
                raise
        except OSError:
            ours.close()
            raise
        self._process = process
        self.pid = process.pid
        self._watch_end(pidfd)
        return ours

    def _start_seconds(self) -> float:
        """Return the longest start: sandboxes far away come in turn."""
        far = _FAR_START_SECONDS if self._start.settings.backend == "aviato" else 0.0
        return START_SECONDS + far

    async def run(self) -> Cause:
        """Supervise the process until its end; fail its requests, and return the cause."""
        watching = asyncio.create_task(self._watch())
        try:
            await self._lost.wait()
        finally:
            watching.cancel()
        return await self._bury()

    async def call(
        self,
        method: str,
        *arguments: Any,
        hear: Hear | None = None,
        archive_bytes: int = 0,
        charge_up_to: Callable[[float], None] = charge_nobody,
    ) -> Any:
        """Return the answer to a request. A cancellation cancels the request there.

        `archive_bytes`: most size of a sandbox's files in the request or in its answer.
        `charge_up_to`: called with the core seconds that the request has used so far.

        Raises the error of the request, and WorkerEnded.
        """
        number = next(self._numbers)
        if not self.is_up or self._connection is None:
            raise WorkerEnded(self.cause or "killed", is_suspect=False)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._requests[number] = _Request(method, answer, hear, archive_bytes, charge_up_to)
        self._connection.send(REQUEST, number, method, arguments)
        try:
            message = await answer
        except asyncio.CancelledError:
            if self._connection is not None and number in self._requests:
                self._connection.send(CANCEL, number)
            raise
        finally:
            self._requests.pop(number, None)
            self._ended_archive_bytes += archive_bytes
        if message[0] == REPLY:
            return message[2]
        _, _, name, *more = message
        if name == WorkerEnded.__name__:
            raise WorkerEnded(*more)
        raise error_of(name, more[0])

    def notify(self, name: str, *values: Any) -> None:
        """Send a message without an answer; without effect after the end of the process."""
        if self._connection is not None:
            self._connection.send(NOTE, name, values)

    def kill(self, cause: Cause) -> None:
        """Kill the process at once; `run` reports the cause."""
        if self.cause is None:
            self.cause = cause
            self._kill()

    async def close(self) -> None:
        """End the process in good order, or kill it after 15 s."""
        self.cause = self.cause or "closed"
        if self._process is not None:
            if self._connection is not None:
                self._connection.close()  # its own sign to end
            if not await self._ends_within(END_SECONDS):
                self._kill()
                await self._ended.wait()
        self._fail_requests(self.cause)

    def _kill(self) -> None:
        if self._process is not None and not self._ended.is_set():
            self._process.kill()

    def _watch_end(self, pidfd: int) -> None:
        """Reap the process at its end."""
        loop = asyncio.get_running_loop()

        def end() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            assert self._process is not None, "it was started"
            self._process.wait()
            self._ended.set()

        loop.add_reader(pidfd, end)

    async def _ends_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._ended.wait()
        except TimeoutError:
            return False

    def _receive(self, message: Message) -> None:
        kind = message[0]
        if kind in (REPLY, FAILED):
            request = self._requests.get(message[1])
            if request is not None and not request.answer.done():
                request.answer.set_result(message)
        elif kind == HEARD:
            request = self._requests.get(message[1])
            if request is not None and request.hear is not None:
                request.hear(message[2], message[3])
        else:
            _, name, values = message
            if name == "pong":
                self._pinged = None
                self.yielding, self.census, used = values
                for number, core_seconds in used.items():
                    if (request := self._requests.get(number)) is not None:
                        request.charge_up_to(core_seconds)
            elif name == "asleep":
                self.yielding, self.long_runners = values
            if name in ("ready", "start_error"):
                if self._ready is not None and not self._ready.done():
                    self._ready.set_result(message)
            else:
                self._on_note(self, name, values)

    async def _watch(self) -> None:
        """Kill the process if it stalls, hangs, or grows.

        A wait for a core is allowed: only the CPU time of the process counts.
        """
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                now = (cpu_seconds(self.pid), time.monotonic())
                memory = memory_mb(self.pid)
            except OSError:
                if self._ended.is_set():
                    return
                continue  # the service is short of descriptors
            archives = self._ended_archive_bytes  # their memory may have just been freed
            archives += sum(each.archive_bytes for each in self._requests.values())
            self._ended_archive_bytes = 0
            room_mb = _ARCHIVE_COPIES * archives / _MEBIBYTE
            if memory > MEMORY_MB + room_mb:
                self.kill("grown")
            elif self._pinged is None:
                self._pinged = now
                self.notify("ping")
            elif now[0] - self._pinged[0] > self._start.stalled_cpu_seconds:
                self.kill("stalled")
            elif now[1] - self._pinged[1] > HUNG_SECONDS:
                self.kill("hung")

    async def _bury(self) -> Cause:
        """Wait for the end of the process, and fail its requests."""
        assert self._process is not None, "it was started"
        if self.cause is None:
            await self._ends_within(1.0)
        if self.cause != "closed":  # `close` waits longer
            self._kill()
        await self._ended.wait()
        if self.cause is None:
            killed = self._process.returncode == -signal.SIGKILL
            self.cause = "killed" if killed else "crashed"
        self._fail_requests(self.cause)
        return self.cause

    def _fail_requests(self, cause: Cause) -> None:
        """Fail the requests of an ended process; a second call has no effect."""
        if self._mark < 0:
            return
        marked = _NUMBER.unpack(os.pread(self._mark, _NUMBER.size, 0))[0]
        os.close(self._mark)
        self._mark = -1
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        # Memory is taken over many steps, and by several requests together. And without a mark any
        # of the requests may be the reason.
        suspects = (marked,) if marked and cause != "grown" else tuple(self._requests)
        for number, request in list(self._requests.items()):
            suspect = cause in BLAMED and request.method == JUDGE and number in suspects
            if not request.answer.done():
                request.answer.set_result((FAILED, number, WorkerEnded.__name__, cause, suspect))


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, by its clock (see clock_getcpuclockid(3)).

    Raises OSError for an ended process.
    """
    return time.clock_gettime(~pid << 3 | 2)


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process in MiB. Raises OSError."""
    text = Path(f"/proc/{pid}/statm").read_bytes()
    return int(text.split()[1]) * _PAGE_BYTES / _MEBIBYTE
