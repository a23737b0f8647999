"""One sandbox as the service sees it: a channel, two output streams, and how it ended.

All of it happens on the event loop, in callbacks that read what is there and never wait. What comes
out of a sandbox is hostile: it is bounded here, and understood elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Sequence

from proctor_service.errors import SandboxLost
from proctor_service.sandbox.backends.local import procfs
from proctor_service.sandbox.backends.local.cgroups import Group
from proctor_service.sandbox.backends.local.endings import Evidence, classify
from proctor_service.sandbox.backends.local.forkserver import LIMITS_BYTES, LOCKED
from proctor_service.sandbox.backends.local.streams import Stream
from proctor_service.sandbox.backends.local.watch import Look
from proctor_service.sandbox.interface import Ended, Ending, Job, Limits, Usage

_CHUNK = 1 << 16
_INTERPRETER_MB = 64  # address space that a bare interpreter takes up
_FORKSERVER_PROCESSES = 1  # it counts against the same user's number
_UNREAD_BYTES = 64 << 20  # on the channel; values are bounded to less where they are encoded
_UNREAD_LINES = 100_000
_UNSENT_BYTES = 1 << 20  # to a program; whoever relays to it waits beyond that


class LocalSandbox:
    """Implements `sandbox.interface.Sandbox` over the descriptors that a forkserver handed out."""

    def __init__(
        self,
        name: str,
        descriptors: list[int],
        group: Group | None,
        flood_bytes: int,
        memory_is_counted: bool,
    ) -> None:
        channel, out, err, self._pidfd = descriptors
        self.id = name
        self._host_pid: int | None = None
        self._loop = asyncio.get_running_loop()
        self._group = group
        self._flood_bytes = flood_bytes
        self._memory_is_counted = memory_is_counted
        self._channel = socket.socket(fileno=channel)
        self._channel.setblocking(False)
        self._streams = (Stream(out), Stream(err))
        for descriptor in (out, err):
            os.set_blocking(descriptor, False)
        self._received = bytearray()
        self._unread_bytes = 0
        self._locked = False
        self._lines: deque[bytes] = deque()
        self._channel_open = True
        self._hung_up = False
        self._wanted: asyncio.Future[None] | None = None
        self._unsent: deque[tuple[memoryview, list[int]]] = deque()
        self._unsent_bytes = 0
        self._drained: asyncio.Future[None] | None = None
        self._limits: Limits | None = None
        self._stopped_for: Ending | None = None
        self._ended: asyncio.Future[Ended] = self._loop.create_future()
        self.started_at = 0.0
        self.idle_seconds = 0.0
        self._cpu_before = 0.0
        self._kills_before = 0

    # ------------------------------------------------------------ what the judge calls

    def begin(self, job: Job) -> None:
        """Starts the program; see `Sandbox.begin`."""
        self._limits = job.limits
        if self._group is not None:
            self._cpu_before = self._group.cpu_seconds() or 0.0
            self._kills_before = self._group.out_of_memory_kills()
        out, err = self._streams
        out.room = max(job.limits.output_kb << 10, job.keep_stdout_bytes)
        err.room = job.limits.output_kb << 10
        self.started_at = time.monotonic()
        self._loop.add_reader(self._channel.fileno(), self._on_channel)
        for stream in self._streams:
            self._loop.add_reader(stream.descriptor, self._on_output, stream)
        self.send(self._limits_line(job.limits) + job.message)

    def _limits_line(self, limits: Limits) -> bytes:
        """What the sandbox sets for itself: rlimits, behind or instead of the cgroup's."""
        uncounted = not self._memory_is_counted
        words = (
            math.ceil(limits.cpu_seconds) + 1,
            max(8, min(64, limits.memory_mb // 4)),
            limits.memory_mb + _INTERPRETER_MB if uncounted else 0,
            limits.processes + _FORKSERVER_PROCESSES if uncounted else 0,
        )
        return " ".join(map(str, words)).encode().ljust(LIMITS_BYTES)

    def send(self, line: bytes, descriptors: Sequence[int] = ()) -> None:
        """Sends a line; what does not fit the socket waits until it does.

        `descriptors` go along, and are closed here once they are on their way.
        """
        given = list(descriptors)
        if not self._channel_open:
            _close_all(given)
            return
        view = memoryview(line)
        if not self._unsent:
            view = view[self._write(view, given) :]
        if view:
            if not self._unsent:
                self._loop.add_writer(self._channel.fileno(), self._on_writable)
            self._unsent.append((view, given))
            self._unsent_bytes += len(view)

    async def drain(self) -> None:
        """Gives way to the loop, and waits while much is unsent."""
        await asyncio.sleep(0)
        while self._unsent_bytes > _UNSENT_BYTES and self._channel_open:
            self._drained = self._loop.create_future()
            await self._drained

    def hang_up(self) -> None:
        """No more lines will come; those under way still arrive."""
        self._hung_up = True
        if self._channel_open and not self._unsent:
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_WR)

    async def receive(self) -> bytes | None:
        """The next line, None after the last."""
        while not self._lines:
            if not self._channel_open:
                return None
            self._wanted = self._loop.create_future()
            try:
                await self._wanted
            finally:
                self._wanted = None
        line = self._lines.popleft()
        self._unread_bytes -= len(line)
        return line

    async def ended(self) -> Ended:
        """How it ended, once all its processes are gone."""
        return await asyncio.shield(self._ended)

    def kill(self) -> None:
        """Ends it: nobody needs it any more."""
        self.stop("killed")

    # ------------------------------------------------------------ what the slot calls

    def stop(self, reason: Ending) -> None:
        """Kills all its processes; `reason` stands as its ending unless the kernel knows better."""
        if self._pidfd < 0:
            return  # gone already; its number may be another's by now
        if self._stopped_for is None:
            self._stopped_for = reason
        with contextlib.suppress(ProcessLookupError, OSError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def host_pid(self) -> int | None:
        """Its first process, as the service's own pid namespace names it."""
        if self._host_pid is None and self._channel.fileno() >= 0:
            self._host_pid = procfs.pid_of(self._pidfd)
        return self._host_pid

    @property
    def is_over(self) -> bool:
        """Whether it ended."""
        return self._ended.done()

    @property
    def resting(self) -> bool:
        """Whether it does nothing of which its limits count the time."""
        return self._limits is None

    def cpu_seconds(self) -> float | None:
        """CPU time so far, where a cgroup counts it."""
        counted = None if self._group is None else self._group.cpu_seconds()
        return None if counted is None else counted - self._cpu_before

    def out_of_memory_kills(self) -> int:
        """How many of its processes the kernel has killed for memory."""
        kills = 0 if self._group is None else self._group.out_of_memory_kills()
        return kills - self._kills_before

    def on_look(self, look: Look) -> None:
        """Stops it when it is over a limit."""
        limits = self._limits
        if limits is None:
            return
        self.idle_seconds += look.idle_seconds
        if look.cpu_seconds > limits.cpu_seconds:
            self.stop("cpu_limit")
        elif self.idle_seconds > limits.wall_seconds:
            self.stop("wall_limit")
        elif not self._memory_is_counted and procfs.exceeds_memory(look.pids, limits.memory_mb):
            self.stop("memory_limit")

    def on_exit(self, status: int, cpu_seconds: float, max_rss_kb: int) -> None:
        """All its processes are gone: reads what is left, and says how it ended."""
        if self._ended.done():
            return
        if self._limits is not None:
            for stream in self._streams:
                while stream.open and self._on_output(stream):
                    pass
            while self._channel_open and self._on_channel():
                pass
        self.close()
        limits = self._limits
        if limits is not None and not self._locked and self._stopped_for != "killed":
            why = bytes(self._received[:300]).decode("utf-8", "replace")
            self._fail(f"its walls did not come up: {why}")
            return
        if limits is None:
            self._ended.set_result(Ended("killed", None, None, b"", b"", False, Usage()))
            return
        kills = self.out_of_memory_kills()
        cpu = max(cpu_seconds, self.cpu_seconds() or 0.0)
        ending, code, number = classify(Evidence(status, self._stopped_for, kills, cpu), limits)
        out, err = self._streams
        self._ended.set_result(
            Ended(
                ending=ending,
                exit_code=code,
                signal=number,
                stdout=out.text(),
                stderr=err.text(),
                truncated=out.cut or err.cut,
                usage=Usage(
                    cpu_seconds=cpu,
                    wall_seconds=time.monotonic() - self.started_at,
                    peak_memory_mb=max_rss_kb / 1024,
                    idle_seconds=self.idle_seconds,
                ),
            )
        )

    def on_lost(self, why: str) -> None:
        """Its forkserver died. For memory that is an ending; else it is a failure of ours."""
        if self._ended.done():
            return
        if self.out_of_memory_kills() > 0:
            self._stopped_for = "memory_limit"
            self.on_exit(signal.SIGKILL, 0.0, 0)
            return
        self.stop("killed")
        self.close()
        self._fail(why)

    def _fail(self, why: str) -> None:
        self._ended.set_exception(SandboxLost(why))
        self._ended.exception()  # retrieved here, so that an unwatched sandbox does not warn

    def close(self) -> None:
        """Closes every descriptor; may be called again."""
        if self._channel.fileno() >= 0:
            self._close_channel()
            self._channel.close()
            for stream in self._streams:
                self._close_stream(stream)
                os.close(stream.descriptor)
            os.close(self._pidfd)
            self._pidfd = -1

    # ------------------------------------------------------------ callbacks of the loop

    def _on_output(self, stream: Stream) -> bool:
        """Reads once; whether there may be more to read at once."""
        try:
            data = os.read(stream.descriptor, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._close_stream(stream)
            return False
        stream.add(data)
        if stream.total > self._flood_bytes:
            self.stop("output_limit")
        return True

    def _on_channel(self) -> bool:
        """Reads once; whether there may be more to read at once."""
        try:
            data = self._channel.recv(_CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self._take(data)
        else:
            self._close_channel()
        if self._wanted is not None and (self._lines or not self._channel_open):
            _wake(self._wanted)
        return bool(data)

    def _take(self, data: bytes) -> None:
        if not self._locked:
            self._locked = data.startswith(LOCKED)
            data = data[len(LOCKED) :] if self._locked else data
        self._unread_bytes += len(data)
        self._received += data
        if b"\n" in data:
            *lines, rest = self._received.split(b"\n")
            self._unread_bytes -= len(lines)
            self._lines.extend(bytes(line) for line in lines)
            self._received = rest
        if self._unread_bytes > _UNREAD_BYTES or len(self._lines) > _UNREAD_LINES:
            self.stop("output_limit")
            self._close_channel()

    def _on_writable(self) -> None:
        while self._unsent:
            view, given = self._unsent[0]
            count = self._write(view, given)
            self._unsent_bytes -= count
            if self._drained is not None and self._unsent_bytes <= _UNSENT_BYTES:
                _wake(self._drained)
            if count < len(view):
                self._unsent[0] = view[count:], given
                return
            self._unsent.popleft()
        self._loop.remove_writer(self._channel.fileno())
        if self._hung_up:
            self.hang_up()

    def _write(self, view: memoryview, given: list[int]) -> int:
        """How much of it went; `given` goes with its first byte, and is empty after that."""
        try:
            sent = (
                socket.send_fds(self._channel, [view], given) if given else self._channel.send(view)
            )
        except BlockingIOError:
            return 0
        except OSError:
            sent = len(view)  # it no longer listens, and how it ended will say why
        _close_all(given)
        return sent

    def _close_channel(self) -> None:
        if self._channel_open:
            self._channel_open = False
            self._loop.remove_reader(self._channel.fileno())
            if self._unsent:
                for _, given in self._unsent:
                    _close_all(given)
                self._unsent.clear()
                self._loop.remove_writer(self._channel.fileno())
            for waiter in (self._wanted, self._drained):
                if waiter is not None:
                    _wake(waiter)

    def _close_stream(self, stream: Stream) -> None:
        if stream.open:
            stream.open = False
            self._loop.remove_reader(stream.descriptor)


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
