"""Service side of a sandbox's program: lines in both directions, its output, and its ending.

All work happens in callbacks of the event loop, without blocking. Data from a program is hostile: this
module only bounds the data, and other modules parse the lines. A `Poller` watches all descriptors of
programs behind a single descriptor of the event loop: libuv checks, adds and removes each with six calls
of epoll_ctl(2), and a sandbox has three descriptors for some milliseconds. A second epoll(7) instance
needs two calls for each.

Pure functions classify the ending of a program. A SIGKILL is ambiguous: the sender may be the service (a
limit, or an unneeded result), the kernel (out of memory), the program itself, or another process outside.
The service's own reason is checked first, then the kernel's counters, then the status alone. The order is
the same under load and on an idle machine, so the verdict is independent of timing.

Process 1 of a PID namespace cannot be killed from inside: the kernel ignores a SIGKILL from the same
namespace. Its unexplained end came from outside, and says nothing against the submission. An unexplained
SIGKILL of a program beside its init is the program's own, unless the machine is short of memory: then a
program like earlyoom may be the sender. An out-of-memory kill below the sandbox's own limit also says
nothing against the submission. Where the sandbox lacks a memory cgroup, any out-of-memory kill around the
sandbox, in the service's cgroup or on the machine, may have hit the sandbox: a program with a failure
meanwhile is judged again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proctor_service.sandbox.interface import Ended, Ending, Usage
from proctor_service.sandbox.linux.time_limits import TurnClock

_CHUNK = 1 << 16
# A full pipe or socket has at least so much, and its writer waits. The kernel counts about 800 bytes
# for each short message in a socket.
_MUCH_IN_A_PIPE_BYTES, _MUCH_IN_A_SOCKET_BYTES = _CHUNK // 2, 256
_UNREAD_BYTES = 64 << 20  # the encoding limits values to less
_UNREAD_LINES = 100_000
_UNSENT_BYTES = 1 << 20  # above this, a sender waits in `drain`
_MOST_EVENTS = 64  # per turn of the event loop; the others follow in the next turn


class Poller:
    """Calls a function when its descriptor is readable, between `open` and `close`.

    A loop of asyncio's own watches the descriptors itself, see `settings.event_loop`.
    """

    def __init__(self) -> None:
        self._readers: dict[int, Callable[[], object]] = {}
        self._epoll: select.epoll | None = None

    def open(self) -> None:
        """Start to call; requires a running event loop."""
        self._loop = asyncio.get_running_loop()
        if not isinstance(self._loop, asyncio.SelectorEventLoop):
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._on_readable, self._epoll)

    def add(self, descriptor: int, read: Callable[[], object]) -> None:
        """Call `read` whenever the descriptor is readable, hung up, or in error."""
        if self._epoll is None:
            self._loop.add_reader(descriptor, read)
        else:
            self._epoll.register(descriptor, select.EPOLLIN)
        self._readers[descriptor] = read

    def remove(self, descriptor: int) -> None:
        """Forget an open descriptor, before its close: a copy in a sandbox may live on."""
        if self._readers.pop(descriptor, None) is None:
            return
        if self._epoll is None:
            self._loop.remove_reader(descriptor)
        else:
            self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Forget all descriptors; idempotent."""
        if self._epoll is None:
            for descriptor in self._readers:
                self._loop.remove_reader(descriptor)
        elif not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
        self._readers.clear()

    def _on_readable(self, epoll: select.epoll) -> None:
        for descriptor, _ in epoll.poll(0, _MOST_EVENTS):
            # An earlier call may have removed this descriptor.
            if (read := self._readers.get(descriptor)) is not None:
                read()


class Lines:
    """Queues in both directions: lines from a program, and the size of the unsent data."""

    def __init__(self) -> None:
        self.open = True
        self._loop = asyncio.get_running_loop()
        self._lines: deque[bytes] = deque()
        self._line = bytearray()  # still without its newline
        self._unread_bytes = 0
        self._unsent_bytes = 0
        self._wanted: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self.on_line: Callable[[bytes], None] | None = None  # called when a line is queued

    async def receive(self) -> bytes | None:
        """Return the next line, or None after the last."""
        while not self._lines:
            if not self.open:
                return None
            self._wanted = self._loop.create_future()
            try:
                await self._wanted
            finally:
                self._wanted = None
        line = self._lines.popleft()
        self._unread_bytes -= len(line)
        return line

    async def drain(self) -> None:
        """Yield to the event loop, and wait while the queue of unsent data is long."""
        await asyncio.sleep(0)
        while self._unsent_bytes > _UNSENT_BYTES and self.open:
            self._drained = self._loop.create_future()
            await self._drained

    def _split(self, data: bytes) -> bool:
        """Queue the lines in `data`; False when more is queued than will ever be read."""
        self._unread_bytes += len(data)
        # Each byte is searched once and copied twice, for any length of line.
        end, *others = data.split(b"\n")
        self._line += end
        if others:
            self._unread_bytes -= len(others)
            whole = bytes(self._line)
            self._line = bytearray(others.pop())
            for line in (whole, *others):
                self._lines.append(line)
                if self.on_line is not None:
                    self.on_line(line)
        return self._unread_bytes <= _UNREAD_BYTES and len(self._lines) <= _UNREAD_LINES

    def _close_lines(self) -> None:
        """Note the end of the lines."""
        self.open = False
        self.on_line = None  # it refers to the sandbox, which reference counts are to free
        self._wake()

    def _wake(self) -> None:
        """Wake the receiver if a line or the end is there, and the sender if the queue is short."""
        for waiter, due in (
            (self._wanted, self._lines),
            (self._drained, self._unsent_bytes <= _UNSENT_BYTES),
        ):
            if waiter is not None and (due or not self.open) and not waiter.done():
                waiter.set_result(None)


class Channel(Lines, ABC):
    """Line channel over a socket. The owner adds `read` to the poller.

    `greeting`: the program's first byte, before its first line. `gift`: the descriptor that came with it, or
    -1; the kernel drops those that a program sends later.
    """

    def __init__(self, descriptor: int, greeting: bytes, poller: Poller) -> None:
        super().__init__()
        self.poller = poller
        self.descriptor = descriptor
        self.greeted = False
        self.gift = -1
        self.turns: TurnClock | None = None
        self._greeting = greeting
        # With the family and type, Python needs not ask the kernel for them.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, descriptor)
        self._socket.setblocking(False)
        self.late_transfers = 0  # the program may have waited for this side
        self._hung_up = False
        self._unsent: deque[tuple[memoryview, list[int]]] = deque()

    @abstractmethod
    def on_flood(self) -> None:
        """Handle a program with more output than the service will read."""

    def send(self, line: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send a line; data beyond the socket's buffer is queued.

        The channel takes ownership of `descriptors` and closes them after sending.
        """
        owned = list(descriptors)
        if self.turns is not None:
            self.turns.line_sent()
        if not self.open:
            while owned:
                os.close(owned.pop())
            return
        view = memoryview(line)
        if not self._unsent:
            view = view[self._write(view, owned) :]
        if view:
            if not self._unsent:
                self._loop.add_writer(self.descriptor, self._on_writable)
            self._unsent.append((view, owned))
            self._unsent_bytes += len(view)

    def hang_up(self) -> None:
        """Close the sending side; queued lines still arrive."""
        self._hung_up = True
        if self.turns is not None:
            self.turns.input_ended()
        if self.open and not self._unsent:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def read(self) -> bool:
        """Read a chunk; True if more may be readable at once."""
        try:
            data = self._socket.recv(_CHUNK) if self.greeted else self._receive_greeting()
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        there_may_be_more = bool(data)
        self.late_transfers += len(data) >= _MUCH_IN_A_SOCKET_BYTES
        if not self.greeted and data:
            self.greeted = data.startswith(self._greeting)
            data = data[len(self._greeting) :] if self.greeted else data
        if data and self.turns is not None:
            self.turns.data_received(data, behind=bool(self._unsent))
        if data and not self._split(data):
            self.on_flood()
            self._end()
        elif not there_may_be_more:
            self._end()
        self._wake()
        return there_may_be_more

    def _receive_greeting(self) -> bytes:
        data, descriptors, _, _ = socket.recv_fds(self._socket, _CHUNK, 1, socket.MSG_CMSG_CLOEXEC)
        if descriptors:
            self.gift = descriptors[0]
        return data

    def close(self) -> None:
        """Close the socket and the gift; idempotent."""
        self._end()
        self._socket.close()
        if self.gift >= 0:
            os.close(self.gift)
            self.gift = -1

    def _on_writable(self) -> None:
        while self._unsent:
            view, descriptors = self._unsent[0]
            count = self._write(view, descriptors)
            self.late_transfers += 1
            self._unsent_bytes -= count
            self._wake()
            if count < len(view):
                self._unsent[0] = view[count:], descriptors
                return
            self._unsent.popleft()
        self._loop.remove_writer(self.descriptor)
        if self._hung_up:
            self.hang_up()

    def _write(self, view: memoryview, descriptors: list[int]) -> int:
        """Return the number of bytes sent; `descriptors` goes with the first byte and is then emptied."""
        try:
            sent = (
                socket.send_fds(self._socket, [view], descriptors)
                if descriptors
                else self._socket.send(view)
            )
        except BlockingIOError:
            return 0
        except OSError:
            sent = len(view)  # the program closed its end; the ending will show the reason
        while descriptors:
            os.close(descriptors.pop())
        return sent

    def _end(self) -> None:
        """Stop reading and sending; received lines stay readable."""
        if self.open:
            self._close_lines()
            self.poller.remove(self.descriptor)
            if self._unsent:
                self._loop.remove_writer(self.descriptor)
            while self._unsent:
                for descriptor in self._unsent.popleft()[1]:
                    os.close(descriptor)


class Stream:
    """Output stream of a program: stores the first `room` bytes, and counts and drops the rest.

    `on_data` is called after each chunk, with the stored part. The owner adds `read` to the poller.
    """

    def __init__(self, descriptor: int, on_data: Callable[[bytes], None], poller: Poller) -> None:
        self.descriptor = descriptor
        self.stored = bytearray()
        self.room = 0
        self.total = 0
        self.late_transfers = 0  # the program may have waited for the read
        self.open = True
        self._on_data = on_data
        self._poller = poller
        os.set_blocking(descriptor, False)

    def read(self) -> bool:
        """Read a chunk; True if more may be readable at once."""
        try:
            data = os.read(self.descriptor, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
            return False
        stored_part = data[: self.room]
        self.stored += stored_part
        self.room -= len(stored_part)
        self.total += len(data)
        self.late_transfers += len(data) >= _MUCH_IN_A_PIPE_BYTES
        self._on_data(stored_part)
        return True

    def close(self) -> None:
        """Close the descriptor; idempotent."""
        if self.open:
            self.open = False
            self._poller.remove(self.descriptor)
            os.close(self.descriptor)
            # Its owner is freed by reference counts: the collector would stop everything for it.
            self._on_data = _ignore


def _ignore(_: bytes) -> None:
    """Ignore the output of a closed stream."""


# ---------------------------------------------------------------- ending

UNPREPARED = "what runs before the submission, its files or the tests' setup, took too much time"
SHORT_OF_MEMORY = "its surroundings ran out of memory before it reached its own limit"
SHORT_OF_OBJECTS = "its user ran out of kernel objects meanwhile, such as pipes"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts known once all processes of a sandbox are gone.

    `status`: as from wait(2). `stopped_for`: the service's reason for stopping the sandbox, or None.
    `out_of_memory_kills`: total over all processes of the sandbox. `cpu_exceeded`: their CPU time is
    above a limit. `at_memory_limit`: the sandbox reached its own memory limit. `is_foreign`: the signal
    of `status` came from outside the sandbox. `kills_around`: number of processes killed for memory
    around the sandbox meanwhile, where it lacks a counting cgroup of its own. `in_shortage`: the kernel
    meanwhile refused a resource shared by all sandboxes of the same user.
    """

    status: int
    stopped_for: Ending | None
    out_of_memory_kills: int
    cpu_exceeded: bool
    at_memory_limit: bool = True
    is_foreign: bool = False
    kills_around: int = 0
    in_shortage: bool = False


def outside_cause(evidence: Evidence) -> str | None:
    """Return the outside cause of the ending; None if caused by the program or the service."""
    if evidence.stopped_for in ("output_limit", "memory_limit"):
        return None
    if evidence.out_of_memory_kills and not evidence.at_memory_limit:
        return SHORT_OF_MEMORY
    status = evidence.status
    # A program may also wait for ever for a child that was killed.
    may_be_the_reason = evidence.stopped_for in (None, "wall_limit") and status != 0
    if evidence.kills_around and may_be_the_reason:
        return SHORT_OF_MEMORY
    its_own = evidence.out_of_memory_kills > 0 or evidence.stopped_for == "killed"
    if evidence.in_shortage and status != 0 and not its_own:
        return SHORT_OF_OBJECTS
    was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    explained = (
        evidence.stopped_for is not None
        or evidence.out_of_memory_kills > 0
        or evidence.cpu_exceeded
    )
    if was_killed and evidence.is_foreign and not explained:
        return "it was killed from outside"
    return None


def ended_by(
    evidence: Evidence,
    *,
    stdout: bytes,
    stderr: bytes,
    truncated: bool,
    usage: Usage,
) -> Ended:
    """Return the ending of a program by this evidence, with its output."""
    code = os.WEXITSTATUS(evidence.status) if os.WIFEXITED(evidence.status) else None
    number = os.WTERMSIG(evidence.status) if os.WIFSIGNALED(evidence.status) else None
    ending: Ending = "exited" if number is None else "signalled"
    if evidence.stopped_for in ("output_limit", "memory_limit"):
        ending = evidence.stopped_for
    elif evidence.out_of_memory_kills:
        ending = "memory_limit"
    elif evidence.cpu_exceeded or number == signal.SIGXCPU:
        ending = "cpu_limit"
    elif evidence.stopped_for is not None and not (
        evidence.stopped_for == "killed" and number != signal.SIGKILL
    ):
        ending = evidence.stopped_for
        code = None  # a shell whose child is killed first ends with a code of that
    # A program may survive the loss of a child, and fail by it later; its limits are its own.
    within_limits = ending in ("exited", "signalled", "killed")
    doubt = SHORT_OF_MEMORY if evidence.kills_around and within_limits else ""
    if evidence.in_shortage and ending not in ("output_limit", "memory_limit"):
        doubt = doubt or SHORT_OF_OBJECTS
    return Ended(ending, code, number, stdout, stderr, truncated, usage, doubt)


OVER = {
    "memory_limit": "the sandbox used up its memory and ended",
    "output_limit": "the sandbox ended: too much output",
    "killed": "the sandbox was stopped",
}
"""Error messages for calls to an ended sandbox, by ending."""
