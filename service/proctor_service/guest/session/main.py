"""Session: the first process of a stateful sandbox, which starts commands and outlives them.

Orders arrive on the channel, each a line of JSON:

    ["run", N, kind, what]   with five descriptors: the command's stdin, stdout and stderr, and the
                             other ends of the last two
    ["settled", N]           the service has stopped reading the output of run N
    ["kill", N]              kill the processes of run N
    ["defaults", directory, variables]   of later runs
    ["clear"]                kill every process except the session

The session sends `["ready"]` once, then `["exited", N, status, cpu seconds, peak kilobytes]` for each
run, with the word "not started" if the process could not be started. While a command runs, its output
goes directly to the service. Background processes of a command may write output later: the session reads
and discards this output, since a closed pipe would kill them with SIGPIPE.

Other processes of the sandbox run as the same user and are hostile. They cannot read or trace the
session (not dumpable) or signal it (the first process of its pid namespace). Other attacks on the session
damage only their own sandbox.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
from typing import Any, NoReturn

from .. import work_files
from ..channel import Channel
from . import file_operations, layer, snippet

_SET_DUMPABLE = 4
_PER_RUN = 5
_MOST_LEFT_BEHIND = 256  # output pipes with possible background writers
_MOST_REAPED = 256  # per call, so that a fork bomb cannot delay orders
_FORK_TRIES = 30
_DYING_SECONDS = 0.01
_CHUNK = 1 << 16
_MOST_CHANGES_BYTES = 1 << 16


def run_session(channel: Channel, job: dict[str, Any]) -> NoReturn:
    """Serve orders until the service closes the channel; then the whole sandbox ends."""
    descriptor = channel.detach()
    os.environ.update(job.get("environment") or {})
    set_dumpable(0)
    _Session(descriptor, job["descriptors"]).serve()
    os._exit(0)


def set_dumpable(value: int) -> None:
    """Allow (1) or refuse (0) other processes of the same user to read and trace this process."""
    ctypes.PyDLL(None).prctl(_SET_DUMPABLE, ctypes.c_ulong(value), 0, 0, 0)


class _Run:
    def __init__(self, number: int, outputs: list[int], changes: int, stopped_all: bool) -> None:
        self.number = number
        self.outputs = outputs
        self.changes = changes  # pipe on which Python code reports changes of its environment
        self.stopped_all = stopped_all


class _Session:
    def __init__(self, descriptor: int, descriptors_of_each: int) -> None:
        self.channel = socket.socket(fileno=descriptor)
        self.home = os.getcwd()
        self.descriptors_of_each = descriptors_of_each
        self.is_image = layer.is_present()
        self.received = bytearray()
        self.descriptors: list[int] = []
        self.runs: dict[int, _Run] = {}  # by pid
        self.settling: dict[int, list[int]] = {}  # outputs by number
        self.left_behind: list[int] = []
        self.poll = select.poll()
        self.wake, self.waker = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self.waker, False)
        # The kernel drops signals without a handler for a first process. Python has a SIGINT
        # handler.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self.waker, warn_on_full_buffer=False)
        self.poll.register(self.wake, select.POLLIN)
        self.poll.register(self.channel, select.POLLIN)

    def serve(self) -> None:
        self.send(["ready"])
        while True:
            for descriptor, _ in self.poll.poll():
                if descriptor == self.wake:
                    os.read(self.wake, _CHUNK)
                    self.reap()
                elif descriptor != self.channel.fileno():
                    self.throw_away(descriptor)
                elif not self.take_orders():
                    return

    def send(self, message: list[Any]) -> None:
        self.channel.sendall(json.dumps(message).encode() + b"\n")

    def take_orders(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(
            self.channel, _CHUNK, _PER_RUN, socket.MSG_CMSG_CLOEXEC
        )
        self.descriptors += descriptors
        self.received += data
        if b"\n" in data:
            *lines, self.received = self.received.split(b"\n")
            for line in lines:
                self.obey(*json.loads(line))
        return bool(data)

    def obey(self, order: str, *words: Any) -> None:
        if order == "run":
            ends, self.descriptors = self.descriptors[:_PER_RUN], self.descriptors[_PER_RUN:]
            self.run(words[0], words[1], words[2], ends[:3], ends[3:])
            for descriptor in ends[:3]:
                os.close(descriptor)
        elif order == "settled":
            for descriptor in self.settling.pop(words[0], []):
                self.adopt(descriptor)
        elif order == "kill":
            for pid, run in self.runs.items():
                if run.number == words[0]:
                    _kill_all_of(pid)
        elif order == "defaults":
            self.home = words[0]
            os.environ.update(words[1])
        elif order == "clear":
            _signal_all(signal.SIGKILL)

    # ------------------------------------------------------------ runs

    def run(self, number: int, kind: str, what: Any, ends: list[int], outputs: list[int]) -> None:
        freezes = kind in file_operations.FREEZING
        if freezes:
            _signal_all(signal.SIGSTOP)  # freeze all processes while the files are read
        changes, theirs = os.pipe()
        try:
            pid = self.fork()
        except OSError as error:
            os.write(ends[2], f"no process can be started: {error.strerror}\n".encode())
            for descriptor in (changes, theirs):
                os.close(descriptor)
            if freezes:
                self.let_go_on()
            self.settling[number] = outputs
            self.send(["not started", number, snippet.CANNOT_START << 8, 0.0, 0])
            return
        if pid == 0:
            self.become(kind, what, ends, theirs)
        os.close(theirs)
        os.set_blocking(changes, False)
        self.runs[pid] = _Run(number, outputs, changes, freezes)

    def fork(self) -> int:
        """Fork; without a running command, if the process limit is used up, kill the background processes.

        Running commands are spared; after some retries, raises OSError.
        """
        for _ in range(_FORK_TRIES):
            try:
                return os.fork()
            except OSError:
                if not self.runs:
                    _signal_all(signal.SIGKILL)
                select.select([], [], [], _DYING_SECONDS)
                self.reap()
        return os.fork()

    def become(self, kind: str, what: Any, ends: list[int], changes: int) -> NoReturn:
        """In the child: start a session, close the parent's descriptors, then run the command."""
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for target, end in enumerate(ends):
                os.dup2(end, target)
            os.dup2(changes, 3)
            last = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            os.closerange(4, layer.DESCRIPTOR)
            has_layer = kind == "save" or kind in file_operations.UNTRACED
            os.closerange(layer.LOWER + 1 if has_layer else layer.DESCRIPTOR, last)
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.descriptors_of_each,) * 2)
            os.set_inheritable(3, False)
            if kind not in file_operations.UNTRACED:
                set_dumpable(1)
            os.chdir(self.home)
            if kind in file_operations.KINDS:
                file_operations.KINDS[kind](*what)
                os._exit(0)
            seconds, work = what
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            if kind == "code" and self.is_image:
                work = ["python3", "-c", work]
            elif kind == "code":
                snippet.run(work, 3)
            snippet.become_program(work)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "replace"))
            if kind in file_operations.KINDS and work_files.is_of_the_machine(error):
                os._exit(file_operations.OF_THE_MACHINE)
        os._exit(snippet.CANNOT_START)

    def reap(self) -> None:
        for _ in range(_MOST_REAPED):
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            run = self.runs.pop(pid, None)
            if run is None:
                continue  # an orphan, adopted by the first process
            if run.stopped_all:
                self.let_go_on()
            self.apply_changes(run.changes)
            self.settling[run.number] = run.outputs
            cpu_seconds = used.ru_utime + used.ru_stime
            self.send(["exited", run.number, status, cpu_seconds, used.ru_maxrss])
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes the poll as well
            os.write(self.waker, b"!")  # more children may have exited

    def let_go_on(self) -> None:
        """Resume the processes stopped by a save, unless another save is running."""
        savers = [pid for pid, run in self.runs.items() if run.stopped_all]
        for pid in savers:
            os.kill(pid, signal.SIGCONT)
        if not savers:
            _signal_all(signal.SIGCONT)

    def apply_changes(self, descriptor: int) -> None:
        """Apply the environment changes of Python code to all later commands."""
        try:
            changes = json.loads(os.read(descriptor, _MOST_CHANGES_BYTES) or b"{}")
            for name, value in changes.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
        except Exception:
            pass  # only the sandbox's own programs write to this pipe, so errors are theirs
        os.close(descriptor)

    # ------------------------------------------------------------ output of background processes

    def adopt(self, descriptor: int) -> None:
        if len(self.left_behind) >= _MOST_LEFT_BEHIND:
            self.drop(self.left_behind[0])
        os.set_blocking(descriptor, False)
        self.left_behind.append(descriptor)
        self.poll.register(descriptor, select.POLLIN)

    def throw_away(self, descriptor: int) -> None:
        try:
            if os.read(descriptor, _CHUNK):
                return
        except BlockingIOError:
            return
        self.drop(descriptor)

    def drop(self, descriptor: int) -> None:
        self.poll.unregister(descriptor)
        self.left_behind.remove(descriptor)
        os.close(descriptor)


def _signal_all(number: int) -> None:
    """Send a signal to every other process of the sandbox."""
    try:
        os.kill(-1, number)
    except ProcessLookupError:
        pass


def _kill_all_of(leader: int) -> None:
    """Kill a command's processes: its session and all descendants.

    A process with its own session and an exited parent is a background process and survives. All
    processes are stopped during the search, so forks cannot escape.
    """
    _signal_all(signal.SIGSTOP)
    parents, doomed = {}, {leader}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        parents[int(name)] = int(fields[1])
        if int(fields[3]) == leader:
            doomed.add(int(name))
    while more := {pid for pid, parent in parents.items() if parent in doomed} - doomed:
        doomed |= more
    for pid in doomed:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    _signal_all(signal.SIGCONT)
