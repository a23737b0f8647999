"""Programs that talk while they run: their standard input and output are pipes to the service.

A job with `interactive` runs its program in a child. This process relays between two pipes and the channel,
in pieces of at most 64 KB, as JSON lines:

    ["in", base64]           to the program's standard input; the end of the channel is the end of its input
    ["end"]                  the end of its input alone
    ["credit", bytes]        the program may print so much more; without credit nothing is read from its pipe
    ["again"]                look again whether the program waits
    ["alone"]                its peer waits, too: from now on its wait is its own
    ["out", taken, base64]   from its standard output; `taken`: bytes of input that it has been given
    ["waits", taken]         it waits for input
    ["blocked", taken]       it waits for credit
    ["busy", taken]          it does not, although it has spoken
    ["took", taken]          it has been given so much
    ["read", bytes]          it has ended, and had read so much of its input
    ["closed"]               it has closed its standard output
    ["report", base64]       lines of the program's interpreter, as on the channel of other jobs

A line `out`, `waits`, `blocked`, `busy` or `took` ends the program's turn (`time_limits.TurnClock`), so that
the wait for a peer is no idle time. Lines with `!` in front do not. A program that prints twice without new
input keeps its turn; one that has new input twice without printing is taken for waiting, until a look at it.

The program cannot reach the channel: its copies are closed, and no process of its user may look into this
one. It can kill this process, and so its own sandbox.
"""

from __future__ import annotations

import binascii
import fcntl
import os
import select
import signal
import struct
import termios
import time
from collections.abc import Callable
from typing import Any, NoReturn

from ..codec import values
from . import command, script, work_files
from .channel import BEGAN, Channel
from .pipe_waits import Waits
from .session.main import set_dumpable

CREDIT_BYTES = 1 << 17
"""Bytes of output before the first line with credit."""
PIECE_BYTES = 1 << 16
MAX_REPORT_BYTES = 1 << 16
_IN = b'["in","'
_REPORT_TAKEN_BYTES = CREDIT_BYTES // 4
_FIRST_LOOK_MS, _LONGEST_LOOK_MS = 1, 64
_COUNT = struct.Struct("i")


class _Reports(Channel):
    """Channel of the program's interpreter: a pipe to the relay."""

    def began(self, word: bytes = BEGAN) -> None:
        """Ignore the word: the relay has sent its own."""


def run_interactive(
    channel: Channel, job: dict[str, Any], run: Callable[[Channel, dict[str, Any]], object]
) -> NoReturn:
    """Run a job in a child with pipes, and relay until the child ends; end as the child."""
    work_files.write_files(job.pop("files", None) or {})
    command.place_binaries(channel, job)
    job.pop("binaries", None)
    ours, theirs = _pipes()
    wake, waker = os.pipe()
    for descriptor in (wake, waker, *ours):
        os.set_blocking(descriptor, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    set_dumpable(0)  # the program cannot take the channel out of this process
    channel.began()
    pid = os.fork()
    if not pid:
        _become_program(theirs, (*ours, wake, waker, channel.detach()), job, run)
    for descriptor in theirs:
        os.close(descriptor)
    status = _Relay(channel, pid, wake, *ours).serve()
    _end_as(status)


def _pipes() -> tuple[list[int], list[int]]:
    """Return the relay's and the program's ends: of its stdin, its stdout and its reports."""
    stdin, to_stdin = os.pipe()
    from_stdout, stdout = os.pipe()
    from_reports, reports = os.pipe()
    return [to_stdin, from_stdout, from_reports], [stdin, stdout, reports]


def _become_program(
    pipes: list[int],
    others: tuple[int, ...],
    job: dict[str, Any],
    run: Callable[[Channel, dict[str, Any]], object],
) -> NoReturn:
    """In the child: close all of the relay's descriptors, then run the job."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor in others:
        os.close(descriptor)
    stdin, stdout, reports = pipes
    for descriptor, target in ((stdin, 0), (stdout, 1)):
        os.dup2(descriptor, target)
        os.close(descriptor)
    set_dumpable(1)
    run(_Reports(reports), job)
    script.leave(0)


def _end_as(status: int) -> NoReturn:
    """End with the exit code, or by the signal, of a status of wait(2)."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        script.leave(128 + number)
    script.leave(os.WEXITSTATUS(status))


class _Relay:
    """The loop between the pipes and the channel."""

    def __init__(
        self, channel: Channel, pid: int, wake: int, stdin: int, stdout: int, reports: int
    ) -> None:
        self.channel, self.pid, self.wake = channel, pid, wake
        self.stdin, self.stdout, self.reports = stdin, stdout, reports
        self.descriptor = channel.detach()
        self.poll = select.poll()
        self.watched: dict[int, int] = {}
        self.waits = Waits(pid, stdin)
        self.unfed = bytearray()  # at most what the service gives ahead
        self.hung_up = self.input_ends = False
        self.taken = self.told_taken = 0
        self.read = 0  # of these, what is not in the pipe, as it is closed
        self.credit = CREDIT_BYTES
        self.report_bytes = 0
        self.has_input = True  # new, since the last output
        self.is_settled = False  # the service knows whether the program waits
        self.has_spoken = False  # and so ended its turn; else it has the turn
        self.look_ms = _FIRST_LOOK_MS
        self.look_at = 0.0

    def serve(self) -> int:
        """Relay until the program ends, and return its status."""
        self.watch(self.wake, select.POLLIN)
        self.watch(self.reports, select.POLLIN)
        self.expect()
        while True:
            self.watch_pipes()
            events = self.poll.poll(self.rest_ms())
            if not events:
                self.check_wait()
            for descriptor, _ in events:
                if descriptor == self.wake:
                    os.read(self.wake, PIECE_BYTES)
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                    if pid:
                        self.drain()
                        return status
                elif descriptor == self.stdout:
                    self.take_output(min(self.credit, PIECE_BYTES))
                elif descriptor == self.stdin:
                    self.feed()
                elif descriptor == self.reports:
                    self.take_report()
                else:
                    self.obey()

    def watch(self, descriptor: int, events: int) -> None:
        """Watch a descriptor; stop for no events: poll(2) would report a hang-up forever."""
        if self.watched.get(descriptor, 0) == events:
            return
        if events:
            self.poll.register(descriptor, events)
        else:
            self.poll.unregister(descriptor)
        self.watched[descriptor] = events

    def watch_pipes(self) -> None:
        self.watch(self.descriptor, 0 if self.hung_up else select.POLLIN)
        if self.stdin >= 0:
            self.watch(self.stdin, select.POLLOUT if self.unfed else 0)
        if self.stdout >= 0:
            self.watch(self.stdout, select.POLLIN if self.credit > 0 else 0)

    # ------------------------------------------------------------ turns

    def begin_turn(self) -> None:
        self.has_spoken = False
        self.expect()

    def expect(self) -> None:
        """Look soon whether the program waits."""
        self.is_settled, self.look_ms = False, _FIRST_LOOK_MS
        self.look_at = time.monotonic() + _FIRST_LOOK_MS / 1000

    def rest_ms(self) -> float | None:
        """Return the time until the next look; None without a next look."""
        if self.is_settled or self.hung_up:
            return None
        return max(0.0, self.look_at - time.monotonic()) * 1000

    def check_wait(self) -> None:
        """Tell the service if the program waits; else look later again."""
        if self.is_waiting():
            self.say(b'["waits",%d]\n' % self.taken)
            self.is_settled = self.has_spoken = True
        elif self.credit <= 0 and self.unread_output():
            self.tell_blocked()
        elif self.has_spoken:
            self.say(b'["busy",%d]\n' % self.taken)
            self.is_settled = True  # until `again`
        else:
            self.look_ms = min(2 * self.look_ms, _LONGEST_LOOK_MS)
            self.look_at = time.monotonic() + self.look_ms / 1000

    def tell_blocked(self) -> None:
        self.say(b'["blocked",%d]\n' % self.taken)
        self.is_settled = self.has_spoken = True

    def is_waiting(self) -> bool:
        """Return True if the program waits for input."""
        if self.unfed or self.unread_input() or not self.waits.are_all():
            return False
        # It may have printed, or closed its stdout, just before the wait.
        return self.stdout < 0 or not select.select([self.stdout], [], [], 0)[0]

    def unread_input(self) -> int:
        return _readable(self.stdin) if self.stdin >= 0 else 0

    def unread_output(self) -> int:
        return _readable(self.stdout) if self.stdout >= 0 else 0

    def say(self, line: bytes) -> None:
        self.channel.send(line)
        self.told_taken = self.taken

    # ------------------------------------------------------------ from the program

    def take_output(self, most_bytes: int) -> None:
        data = _read(self.stdout, most_bytes)
        if data is None:
            return
        if not data:
            self.close_stdout()
            self.channel.send(b'!["closed"]\n')
            return
        self.credit -= len(data)
        line = b'["out",%d,"%s"]\n' % (self.taken, binascii.b2a_base64(data, newline=False))
        if self.has_input:
            self.say(line)
            self.has_spoken, self.has_input = True, False
        else:
            self.say(b"!" + line)
            self.has_spoken = False
        self.expect()
        if self.credit <= 0:  # at once: the way to the peer may be slow
            self.tell_blocked()

    def close_stdout(self) -> None:
        self.watch(self.stdout, 0)
        os.close(self.stdout)
        self.stdout = -1

    def take_report(self) -> None:
        data = _read(self.reports, PIECE_BYTES)
        if data is None:
            return
        if not data:
            self.watch(self.reports, 0)
            return
        room = MAX_REPORT_BYTES - self.report_bytes
        self.report_bytes += len(data)
        if room > 0:
            encoded = binascii.b2a_base64(data[:room], newline=False)
            self.channel.send(b'!["report","%s"]\n' % encoded)

    def drain(self) -> None:
        """Send the contents of an ended program's pipes; its children may go on writing."""
        self.has_input = False
        self.close_stdin()
        self.channel.send(b'!["read",%d]\n' % self.read)
        while self.watched.get(self.reports) and _readable(self.reports):
            self.take_report()
        left = self.unread_output()
        while left > 0 and self.stdout >= 0:
            before = self.credit
            self.take_output(min(left, PIECE_BYTES))
            left -= max(1, before - self.credit)

    # ------------------------------------------------------------ to the program

    def obey(self) -> None:
        """Take the waiting lines of the service."""
        while True:
            line = self.channel.receive()
            if line is None:  # the program prints what it likes: the service reads all
                self.hung_up = self.input_ends = True
                self.credit = 1 << 62
                self.feed()
                return
            if line.startswith(_IN):
                self.unfed += binascii.a2b_base64(line[len(_IN) : -2])
                self.begin_turn()
                self.feed()
            else:
                self.order(*values.loads(line))
            if not self.channel.has_line:
                return

    def order(self, word: str, *numbers: int) -> None:
        if word == "credit":
            self.credit += numbers[0]
        elif word == "end":
            self.input_ends = True
            self.feed()
        if word != "alone":
            self.begin_turn()

    def feed(self) -> None:
        """Write input into the pipe, up to its free space, and at last its end."""
        if self.unfed:
            count = self.fed()
            if not count:
                return
            self.taken += count
            del self.unfed[:count]
            self.tell_taken()
            self.has_input = True
            self.expect()
        if self.input_ends and not self.unfed:
            self.close_stdin()

    def fed(self) -> int:
        """Return the bytes taken by the pipe now; a program without a stdin takes all."""
        if self.stdin >= 0:
            try:
                count = os.write(self.stdin, self.unfed)
                self.read += count
                return count
            except BlockingIOError:
                return 0
            except OSError:
                self.close_stdin()
        return len(self.unfed)

    def tell_taken(self) -> None:
        """End the turn of a program with new input again, without output in between."""
        self.has_spoken = self.has_input and not self.unfed
        if self.has_spoken:
            self.say(b'["took",%d]\n' % self.taken)
        elif self.taken - self.told_taken >= _REPORT_TAKEN_BYTES:
            self.say(b'!["took",%d]\n' % self.taken)

    def close_stdin(self) -> None:
        if self.stdin >= 0:
            self.read -= self.unread_input()
            self.watch(self.stdin, 0)
            os.close(self.stdin)
            self.stdin = -1


def _readable(descriptor: int) -> int:
    """Return the number of bytes in a pipe."""
    count = fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * _COUNT.size)
    return int(_COUNT.unpack(count)[0])


def _read(descriptor: int, most_bytes: int) -> bytes | None:
    """Return bytes of a pipe, empty at its end; None while the pipe has no bytes."""
    try:
        return os.read(descriptor, most_bytes)
    except BlockingIOError:
        return None
