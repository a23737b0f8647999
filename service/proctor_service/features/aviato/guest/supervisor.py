"""The supervisor: runs a program in a remote sandbox, limits the program, and reports its ending.

Each exec of the SDK starts a supervisor. The supervisor forks the program's process before reading
any input, so the program's memory holds neither the job nor the secret word which proves the
report. The supervisor belongs to another user and cannot be traced. Standard library only; this
file is copied into the remote sandbox.

From the service, a line each:
    c configuration   l a line for the program   b bytes for the program, base64
    h no more lines   k kill: no longer needed   f kill: too much output
    t the next test begins
To the service, a line each, with base64 data:
    + ready   - failed    l data of the program's channel
    o its stdout          e its stderr     . its ending
"""

from __future__ import annotations

import binascii
import json
import os
import resource
import select
import signal
import socket
import time
from collections import deque
from typing import Any, NoReturn

from ....sandbox.linux import kernel
from ....sandbox.linux.time_limits import FirstLine, TurnClock
from . import child, processes, workdir
from .clock import Clock

_CHUNK = 1 << 16
_LOOK_SECONDS = 0.05
_GOODBYE_SECONDS = 2.0  # the service hangs up after the report, which is not always signalled
_DISK_LOOKS = 10  # number of samples per check of the disk
_ROUNDS = 200
_FORKS = 50  # a child may be killed by other commands of the sandbox


def main(walls: dict[str, Any], uid: int, fresh: bool) -> NoReturn:
    """Run a supervisor; never returns.

    `fresh`: in an emptied workdir, with all the program's processes killed at the end.
    """
    try:
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        own_user = uid if processes.may_become(uid) else None
        if fresh:
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
            processes.end_strangers(own_user)
        box = workdir.prepare(own_user, fresh)
        supervisor = _Supervisor(own_user, box, fresh)
        supervisor.fork(walls)
    except BaseException as error:
        _say(b"-", f"{type(error).__name__}: {error}".encode())
        os._exit(1)
    try:
        supervisor.serve()
    except BaseException as error:
        _say(b"-", f"{type(error).__name__}: {error}".encode())
    os._exit(0)


class _Stream:
    """Output stream of the program: the first bytes go to the service, the rest is counted."""

    def __init__(self, kind: bytes, descriptor: int) -> None:
        self.kind = kind
        self.descriptor = descriptor
        self.room = 0
        self.total = 0
        self.open = True
        os.set_blocking(descriptor, False)


class _Supervisor:
    def __init__(self, uid: int | None, box: str, fresh: bool) -> None:
        self.uid, self.box, self.fresh = uid, box, fresh
        self.child = 0
        self.status: int | None = None
        self.stopped_for: str | None = None
        self.limits: dict[str, Any] = {}
        self.word = ""
        self.started = 0.0
        self.clock = Clock()
        self.first_line = FirstLine()
        self.received = b""
        self.unsent: deque[memoryview] = deque()
        self.hung_up = False
        self.stilled = False
        self.frames: list[bytes] = []
        self.poll = select.poll()
        self.oom_kills = processes.out_of_memory_kills()

    def fork(self, walls: dict[str, Any]) -> None:
        """Fork the program's process, and wait until its isolation is set up. Raises OSError.

        In a sandbox with a state, another command may exceed the memory or kill all processes of
        the user, the one that was just forked included: then another is forked.
        """
        for left in reversed(range(1 if self.fresh else _FORKS)):
            first = self._fork_once(walls)
            if first in (child.LOCKED, child.UNFILTERED):
                break
            os.waitpid(self.child, 0)
            if first or not left:
                raise OSError(f"the isolation was not set up: {first!r}")
        self.wake, wake = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        report = {"own_user": self.uid is not None, "seccomp": first == child.LOCKED}
        _say(b"+", json.dumps(report).encode())

    def _fork_once(self, walls: dict[str, Any]) -> bytes:
        """Return the child's report: empty after a kill."""
        ours, theirs = socket.socketpair()
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            ends = (theirs.fileno(), out_end, err_end)
            child.become(ends, self.uid, self.box, self.fresh, walls)
        theirs.close()
        os.close(out_end)
        os.close(err_end)
        first = ours.recv(_CHUNK)
        if first not in (child.LOCKED, child.UNFILTERED):
            ours.close()
            os.close(out)
            os.close(err)
            return first
        self.channel = ours
        self.streams = (
            _Stream(b"l", ours.fileno()),
            _Stream(b"o", out),
            _Stream(b"e", err),
        )
        return first

    def serve(self) -> None:
        """Serve from the configuration to the report; stop at once when the service disconnects."""
        for descriptor in (0, self.wake, *(stream.descriptor for stream in self.streams)):
            self.poll.register(descriptor, select.POLLIN)
        look_at = time.monotonic() + _LOOK_SECONDS
        while self.status is None or not self.word:  # the child may end before `configure`
            pause = max(0.0, look_at - time.monotonic()) if self.limits else None
            for descriptor, event in self.poll.poll(None if pause is None else pause * 1000):
                if descriptor == 0:
                    if not self.hear():
                        self.end_all()
                        return
                elif descriptor == self.wake:
                    os.read(self.wake, _CHUNK)
                elif event & ~select.POLLOUT:
                    self.relay(descriptor)
                else:
                    self.pass_on()
            self.reap()
            self.flush()
            if self.limits and time.monotonic() >= look_at:
                self.sample()
                look_at = time.monotonic() + _LOOK_SECONDS
        self.finish()

    # ------------------------------------------------------------ from the service

    def hear(self) -> bool:
        data = os.read(0, _CHUNK)
        *lines, self.received = (self.received + data).split(b"\n")
        for line in lines:
            self.obey(line[:1], line[1:])
        return bool(data)

    def obey(self, kind: bytes, rest: bytes) -> None:
        if kind == b"c":
            self.configure(json.loads(rest))
        elif kind == b"l":
            self.pass_on(rest + b"\n")
        elif kind == b"b":
            self.pass_on(binascii.a2b_base64(rest))
        elif kind == b"h":
            self.hung_up = True
            if self.clock.turns is not None:
                self.clock.turns.input_ended()
            self.pass_on()
        elif kind == b"t":
            self.clock.limits.begin_test()
        elif kind in (b"k", b"f"):
            self.stop("killed" if kind == b"k" else "output_limit")

    def configure(self, order: dict[str, Any]) -> None:
        self.word = order["word"]
        self.limits = order["limits"]
        _, out, err = self.streams
        out.room, err.room = order["keep_stdout_bytes"], self.limits["output_kb"] << 10
        self.streams[0].room = self.limits["flood_bytes"]
        self.started = time.monotonic()
        self.clock.turns = TurnClock() if order["takes_turns"] else None
        self.clock.start(self.started, self.limits, is_program=not self.fresh)
        if order["still"] and self.uid is not None:
            self.stilled = True
            processes.signal_user(self.uid, signal.SIGSTOP)
            os.kill(self.child, signal.SIGCONT)
        self.pass_on(child.limits_line(self.limits, self.fresh))

    def pass_on(self, data: bytes = b"") -> None:
        """Send queued data to the program, as much as its socket accepts."""
        if data:
            if self.clock.turns is not None:
                self.clock.turns.line_sent()
            self.unsent.append(memoryview(data))
        try:
            while self.unsent:
                sent = self.channel.send(self.unsent[0])
                self.unsent[0] = self.unsent[0][sent:]
                if not self.unsent[0]:
                    self.unsent.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self.unsent.clear()  # the program closed its end; the ending will show the reason
        if self.hung_up and not self.unsent:
            try:
                self.channel.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        if self.streams[0].open:
            more = select.POLLOUT if self.unsent else 0
            self.poll.modify(self.channel.fileno(), select.POLLIN | more)

    # ------------------------------------------------------------ from the program

    def relay(self, descriptor: int) -> bool:
        """Read a chunk; True if more may be readable at once."""
        stream = next(s for s in self.streams if s.descriptor == descriptor)
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            stream.open = False
            self.poll.unregister(descriptor)
            return False
        if stream.kind == b"l":
            self.hear_begin(data)
            if self.clock.turns is not None:
                self.clock.turns.data_received(data, behind=bool(self.unsent))
        stream.total += len(data)
        stored_part = data[: stream.room]
        stream.room -= len(stored_part)
        if stored_part:
            self.frames.append(stream.kind + binascii.b2a_base64(stored_part))
        if self.limits and stream.total > self.limits["flood_bytes"]:
            self.stop("output_limit")
        return True

    def hear_begin(self, data: bytes) -> None:
        start = self.first_line.add(data)
        if start is not None and self.clock.program_limits is not None:
            cpu_seconds, at = start
            self.started = max(self.started, min(at, time.monotonic()))
            self.clock.begin(cpu_seconds, self.started)

    def flush(self) -> None:
        data, self.frames = b"".join(self.frames), []
        _write(data)

    # ------------------------------------------------------------ limits and ending

    def pids(self) -> list[int]:
        """Return the program's processes."""
        return processes.below(os.getpid()) if self.fresh else processes.of_session(self.child)

    def sample(self) -> None:
        pids = self.pids()
        self.clock.sample(pids, time.monotonic())
        all_pids = pids if self.uid is None or self.fresh else processes.of_user(self.uid)
        reason = self.clock.over()
        if reason is None and processes.exceed_memory(all_pids, self.limits["memory_mb"], self.uid):
            reason = "memory_limit"
        if reason is None and self.clock.looks % _DISK_LOOKS == 0:
            full = workdir.exceeds(self.box, self.limits["disk_mb"])
            reason = "output_limit" if full else None
        if reason is not None:
            self.stop(reason)

    def stop(self, reason: str) -> None:
        self.stopped_for = self.stopped_for or reason
        if not self.fresh and reason == "memory_limit" and self.uid is not None:
            processes.signal_user(self.uid, signal.SIGKILL)
        self.end_all()

    def end_all(self) -> None:
        """Kill the program's processes until all are gone."""
        for _ in range(_ROUNDS):
            if self.fresh and self.uid is not None:
                processes.signal_user(self.uid, signal.SIGKILL)
            pids = self.pids()
            for pid in pids:
                processes.kill(pid)
            self.reap()
            if not pids:
                return

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.child:
                self.status = status

    def finish(self) -> None:
        now = time.monotonic()
        if self.fresh:
            self.end_all()
        if self.stilled and self.uid is not None:
            processes.signal_user(self.uid, signal.SIGCONT)
        for stream in self.streams:
            while stream.open and self.relay(stream.descriptor):
                pass
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        _, out, err = self.streams
        cpu_seconds = used.ru_utime + used.ru_stime - self.clock.cpu_before
        cpu_seconds = max(cpu_seconds, self.clock.cpu_seconds)
        report = {
            "word": self.word,
            "status": self.status,
            "stopped_for": self.stopped_for,
            "begun": self.clock.program_limits is None,
            "untaken": bool(self.unsent),
            "out_of_memory_kills": processes.out_of_memory_kills() - self.oom_kills,
            "cpu_seconds": cpu_seconds,
            "cpu_exceeded": self.clock.limits.is_over(cpu_seconds),
            "wall_seconds": now - self.started,
            "idle_seconds": self.clock.idle_seconds,
            "active_seconds": self.clock.used_seconds,
            "peak_memory_mb": used.ru_maxrss / 1024,
            "stdout_bytes": out.total,
            "stderr_bytes": err.total,
        }
        left = [stream.descriptor for stream in (out, err) if stream.open]
        if left:
            processes.drain_in_background(left)
        self.frames.append(b"." + binascii.b2a_base64(json.dumps(report).encode()))
        self.flush()
        goodbye = select.poll()
        goodbye.register(0, select.POLLIN)
        deadline = time.monotonic() + _GOODBYE_SECONDS
        while goodbye.poll(max(0.0, deadline - time.monotonic()) * 1000) and os.read(0, _CHUNK):
            pass


def _say(kind: bytes, data: bytes) -> None:
    _write(kind + binascii.b2a_base64(data))


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
