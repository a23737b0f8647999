"""Service side of a sandbox: a channel, two output streams, and the ending."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from proctor_service.errors import Failure, InvalidTask, SandboxLost
from proctor_service.sandbox.interface import (
    Ended,
    Ending,
    GuestMessage,
    Limits,
    Usage,
    charge_nobody,
)
from proctor_service.sandbox.linux import procfs
from proctor_service.sandbox.linux.channel import (
    UNPREPARED,
    Channel,
    Evidence,
    Poller,
    Stream,
    ended_by,
    outside_cause,
)
from proctor_service.sandbox.linux.socket_memory import MachineMemory, NetworkSockets
from proctor_service.sandbox.linux.time_limits import TimeLimits, TurnClock, began
from proctor_service.sandbox.local.absence import LONGEST_PAUSE_SECONDS, Absence
from proctor_service.sandbox.local.bundle import Launch
from proctor_service.sandbox.local.cgroups import Group
from proctor_service.sandbox.local.core_shares import Owner
from proctor_service.sandbox.local.fork_server import LOCKED, RLIMITS, THREAD_MB
from proctor_service.sandbox.local.idle import Measurement
from proctor_service.sandbox.local.memory import MemoryLimit, SocketLimit
from proctor_service.sandbox.local.shortages import Shortages
from proctor_service.sandbox.memory_room import is_machine_short

_INTERPRETER_MB = 64  # address space of a bare interpreter
_OWN_PROCESSES = 2  # the fork server and process 1 may count against the same user's limit
_DESCRIPTORS = 1024
_RLIMITS = struct.Struct(f"{2 * len(RLIMITS)}Q")
_DESCRIPTORS_UNCOUNTED = 256  # where no cgroup counts the kernel memory of descriptors
_UNKNOWN = (
    "the service was stopped meanwhile, and the program may have waited for longer than it may"
)


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of all processes of a sandbox.

    `status`: of its program, as from wait(2). `cpu_seconds`: of the sandbox, our work included.
    `is_foreign`: the signal of `status` came from outside the sandbox. `at`: monotonic clock at the end.
    """

    status: int
    cpu_seconds: float = 0.0
    peak_kb: int = 0
    is_foreign: bool = False
    at: float = math.inf


def descriptor_limit(launch: Launch) -> int:
    """Return the limit on open files of each process of a sandbox."""
    return _DESCRIPTORS if launch.memory_is_counted else _DESCRIPTORS_UNCOUNTED


@dataclass(frozen=True, slots=True)
class BackendParts:
    """Shared parts of the backend for all sandboxes. `shortages`: None with users of their own."""

    poller: Poller
    absence: Absence
    shortages: Shortages | None


class LocalSandbox(Channel):
    """Implements `sandbox.interface.Sandbox` over the descriptors from a fork server.

    The sandbox is the channel to its program, with two output streams and an ending.
    """

    def __init__(
        self,
        name: str,
        descriptors: list[int],
        group: Group,
        launch: Launch,
        fork_server: int,
        sockets: NetworkSockets | None,
        parts: BackendParts,
    ) -> None:
        channel, out, err, self._pidfd = descriptors
        poller = parts.poller
        super().__init__(channel, LOCKED, poller)
        self.id = name
        self.group = group
        self.launch = launch
        self._sockets = sockets
        self._machine_before: MachineMemory | None = None
        # Limit on open descriptors per process.
        self.descriptor_limit = descriptor_limit(launch)
        self.has_own_user = bool(launch.config["drops_user"])
        self._shortages = parts.shortages
        self._before_shortages = 0
        self._fork_server = fork_server
        self.owner: Owner = ("", "")
        self.charge: Callable[[float], None] = charge_nobody
        self._charged_seconds = 0.0
        self._host_pid: int | None = None
        self._beside: list[int] | None = None
        on_output = self._on_output
        self._streams = (Stream(out, on_output, poller), Stream(err, on_output, poller))
        self._limits: Limits | None = None
        self._time: TimeLimits | None = None
        self._program_limits: TimeLimits | None = None  # until it begins
        self._hear: Callable[[bytes], None] | None = None
        self._stopped_for: Ending | None = None
        self._failure: Failure | None = None
        self._ended: asyncio.Future[Ended] = self._loop.create_future()
        self.started_at = 0.0
        self.idle_seconds = 0.0
        self._kills_before: int | None = 0
        self._unseen_seconds = 0.0
        self._seen_cpu_seconds = 0.0
        self._cpu_before = 0.0  # of our work before the program
        self.absence = parts.absence
        self._away_seconds = 0.0  # idle meanwhile
        self._measured = (0.0, 0.0)  # time of the last measurement, and the absence until then

    # ------------------------------------------------------------ called by the judge

    def begin(self, message: GuestMessage, descriptors: int = 0, *, is_timed: bool = True) -> None:
        """Start the work before the program; see `Sandbox.begin`.

        `descriptors`: limit on open descriptors. `is_timed`: False for a program without limits of time.
        """
        limits = self._limits = message.limits
        rlimits = self._rlimits(limits, descriptors or self.descriptor_limit)
        self._kills_before = self.kills_around()
        self._before_shortages = self.mark_shortages()
        turns = TurnClock() if message.takes_turns else None
        self._time = TimeLimits(math.inf, math.inf, None, None)
        self._hear = message.on_line
        if is_timed:
            self._program_limits = TimeLimits(
                limits.cpu_seconds,
                limits.wall_seconds,
                limits.total_cpu_seconds,
                limits.total_wall_seconds,
            )
            self._time = self._program_limits.of_preparation()
        self.group.begin()
        out, err = self._streams
        out.room = max(limits.output_kb << 10, message.keep_stdout_bytes)
        err.room = limits.output_kb << 10
        self.started_at = time.monotonic()
        self._measured = self.started_at, self.absence.seconds
        self.on_line = self._on_first_line
        for each in (self, out, err):
            self.poller.add(each.descriptor, each.read)
        self.send(rlimits + message.line)
        self.turns = turns  # begin with the next line: the program has the first turn anyway

    def _rlimits(self, limits: Limits, descriptors: int) -> bytes:
        """Return the rlimits for the sandbox to set, besides or instead of the cgroup's limits."""
        (_, most_open), (_, most_stack), space, processes = self.launch.rlimits
        descriptors = min(descriptors, most_open)
        stack = min(max(8, min(64, limits.memory_mb // 4)) << 20, most_stack)
        if not self.launch.memory_is_counted:
            space_mb = limits.memory_mb + _INTERPRETER_MB + THREAD_MB * limits.processes
            space = (min(space_mb << 20, space[1]),) * 2
            ours = 1 if self.has_own_user else _OWN_PROCESSES
            processes = (min(limits.processes + ours, processes[1]),) * 2
        # The stack's hard limit is unchanged: contest programs raise their own.
        return _RLIMITS.pack(descriptors, descriptors, stack, most_stack, *space, *processes)

    def _on_first_line(self, line: bytes) -> None:
        """Begin the program if the first line says so; later lines may be the program's own."""
        self.on_line, self._hear = self._hear, None
        start = began(line)
        if start is not None and self._program_limits is not None and self._failure is None:
            self._cpu_before, at = start
            self.started_at = max(self.started_at, min(at, time.monotonic()))
            self._measured = self.started_at, self._measured[1]
            self._time, self._program_limits = self._program_limits, None
            self.idle_seconds = self._unseen_seconds = self._seen_cpu_seconds = 0.0
            self._away_seconds = 0.0
        if self.on_line is not None:
            self.on_line(line)

    def begin_test(self) -> None:
        """See `Sandbox.begin_test`."""
        if self._time is not None:
            self._time.begin_test()

    async def ended(self) -> Ended:
        """Return the ending once all processes are gone."""
        return await asyncio.shield(self._ended)

    def kill(self) -> None:
        """Stop the sandbox as no longer needed."""
        self.stop("killed")

    # ------------------------------------------------------------ called by slot and monitor

    def stop(self, reason: Ending) -> None:
        """Kill all processes; `reason` becomes the ending unless the kernel reports another cause.

        A sandbox already exiting keeps its own ending, even before the service is notified: load on
        the machine must not decide between two reasons.
        """
        if self._pidfd < 0:
            return  # already gone; the descriptor number may be in use for another file
        if self._stopped_for is None and not procfs.is_exiting(self._pidfd):
            self._stopped_for = reason
        self.group.wake()
        with contextlib.suppress(ProcessLookupError, OSError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def host_pid(self) -> int | None:
        """Return the first process's PID in the service's PID namespace; None while unreadable."""
        if self._host_pid is None and self._pidfd >= 0:
            with contextlib.suppress(procfs.Unread):
                self._host_pid = procfs.pid_of(self._pidfd)
        return self._host_pid

    def init_pid(self) -> int | None:
        """Return the PID of the init, which gets orphans; None of a session, which gets its own.

        Raises procfs.Unread.
        """
        if self._beside is None:
            pids = procfs.children(self._fork_server)
            self._beside = [pid for pid in pids if pid != self.host_pid()]
        return self._beside[0] if self._beside else None

    @property
    def mounts(self) -> int | None:
        """Descriptor of a session's mount namespace, as long as it lives; None without one."""
        return self.gift if self.gift >= 0 else None

    @property
    def is_over(self) -> bool:
        """True after the sandbox ended."""
        return self._ended.done()

    @property
    def is_idle(self) -> bool:
        """True before `begin`, while no time limit applies."""
        return self._limits is None

    def cpu_seconds(self, summed: float) -> float:
        """Return the program's CPU seconds so far; `summed` where no cgroup counts."""
        counted = self.group.cpu_seconds()
        return max(0.0, (summed if counted is None else counted) - self._cpu_before)

    @property
    def exchanges(self) -> int:
        """Number of transfers so far in which the program may have waited for the service."""
        return self.late_transfers + sum(stream.late_transfers for stream in self._streams)

    @property
    def is_counted(self) -> bool:
        """True if a cgroup counts the CPU time."""
        return self.group.counts_cpu

    @property
    def memory_limit(self) -> MemoryLimit | None:
        """Memory limit for the monitor to enforce; None where a cgroup enforces the limit."""
        if self.launch.memory_is_counted or self._limits is None:
            return None
        return MemoryLimit(self._limits.memory_mb, own_network=self.launch.contained)

    def note_machine(self, machine: MachineMemory) -> None:
        """Note the machine's memory; the first call counts."""
        self._machine_before = self._machine_before or machine

    @property
    def socket_limit(self) -> SocketLimit | None:
        """Memory limit including all memory of sockets; None where the kernel lacks the list of sockets."""
        if self._sockets is None or self._limits is None or self._machine_before is None:
            return None
        is_counted = self.launch.memory_is_counted
        return SocketLimit(
            self.group.limit_bytes if is_counted else self._limits.memory_mb << 20,
            self.group if is_counted else None,
            self._sockets,
            self._machine_before,
        )

    def set_weight(self, weight: float) -> None:
        """Set the sandbox's part of the cores."""
        if not self.is_over:
            self.group.set_weight(weight)

    def on_measurement(self, measurement: Measurement) -> None:
        """Stop the sandbox if a time limit is exceeded."""
        if self._time is None:
            return
        self.idle_seconds += measurement.idle_seconds
        self._unseen_seconds += measurement.unseen_seconds
        self._away_seconds += measurement.away_seconds
        self._seen_cpu_seconds = max(self._seen_cpu_seconds, measurement.cpu_seconds)
        self._measured = time.monotonic(), self.absence.seconds
        self._charge_up_to(self._seen_cpu_seconds)
        reason = self._time.sample(
            measurement.cpu_seconds, self.idle_seconds, self._unseen_seconds, self._away_seconds
        )
        if reason == "unknown":
            self._give_up(SandboxLost(_UNKNOWN))
        elif reason is not None and self._program_limits is not None:
            self._give_up_preparation()
        elif reason is not None:
            self.stop(reason)

    def _charge_up_to(self, cpu_seconds: float) -> None:
        """Charge the job with the program's CPU time so far, our work before the program, and its fork."""
        total = self.group.fork_seconds + self._cpu_before + cpu_seconds
        self.charge(max(0.0, total - self._charged_seconds))
        self._charged_seconds = max(total, self._charged_seconds)

    def _give_up_preparation(self) -> None:
        """Stop the sandbox of a program that has not begun in time: for a cause of ours, or by the tests."""
        is_ours = self._unsent_bytes > 0  # the job, or the files, not taken yet
        self._give_up((SandboxLost if is_ours else InvalidTask)(UNPREPARED))

    def _give_up(self, failure: Failure) -> None:
        """Stop the sandbox without a verdict about its program, unless another reason is known."""
        if self._stopped_for is None:
            self._failure = failure
        self.stop("killed")

    def on_memory_exceeded(self) -> None:
        """Stop the sandbox. Resources counted by user are the kernel's memory, too."""
        self.stop("memory_limit")

    def on_exit(self, exit: Exit) -> None:
        """Read the remaining output and set the ending, after all processes are gone."""
        if self._ended.done():
            return
        if self._limits is not None:
            for stream in self._streams:
                while stream.open and stream.read():
                    pass
            while self.open and self.read():
                pass
        self.close()
        if self._time is None:
            self._ended.set_result(Ended("killed", None, None, b"", b"", False, Usage()))
            return
        kills_around = self.kills_since(self._kills_before)
        if exit.status == signal.SIGKILL and is_machine_short():
            kills_around += 1
        kills = self.group.out_of_memory_kills()
        cpu = max(
            self.cpu_seconds(0.0), self._seen_cpu_seconds, exit.cpu_seconds - self._cpu_before
        )
        self._charge_up_to(cpu)
        is_over = self._time.is_over(cpu)
        if is_over and self._program_limits is not None:
            self._give_up_preparation()
        evidence = Evidence(
            exit.status,
            self._stopped_for,
            kills,
            is_over,
            at_memory_limit=kills > 0 and self.group.at_memory_limit(),
            is_foreign=exit.is_foreign,
            kills_around=kills_around,
        )
        usage = Usage(
            cpu_seconds=cpu,
            wall_seconds=min(exit.at, time.monotonic()) - self.started_at,
            peak_memory_mb=exit.peak_kb / 1024,
            idle_seconds=self.idle_seconds,
        )
        if self._shortages is None:
            self._finish(evidence, usage, exit.at)
        else:
            self._shortages.when_looked(partial(self._finish, evidence, usage, exit.at))

    def _finish(self, evidence: Evidence, usage: Usage, at: float) -> None:
        """Set the ending. `at`: see `Exit`."""
        if self._ended.done():
            return
        if self._shortages is not None:
            short = self._shortages.were_since(self._before_shortages, self.has_own_user)
            evidence = replace(evidence, in_shortage=short)
        why = outside_cause(evidence)
        if not self.greeted and self._stopped_for != "killed":
            why = f"its walls did not come up: {self._line[:300].decode('utf-8', 'replace')}"
        if why is None and self._failure is not None:
            self._fail(self._failure)
            return
        if why is None and self._stopped_for in (None, "killed"):
            why = self._unmeasured(usage.cpu_seconds, at)
        if why is not None:
            self._fail(SandboxLost(why))
            return
        out, err = self._streams
        self._ended.set_result(
            ended_by(
                evidence,
                stdout=bytes(out.stored),
                stderr=bytes(err.stored),
                truncated=out.total + err.total > len(out.stored) + len(err.stored),
                usage=usage,
            )
        )

    def _unmeasured(self, cpu_seconds: float, at: float) -> str | None:
        """Return the reason of an uncertain verdict, for a stop of the service since the last measurement."""
        measured_at, away_before = self._measured
        if time.monotonic() - measured_at < LONGEST_PAUSE_SECONDS:
            return None
        away = self.absence.seconds_now() - away_before
        if self._time is None or away <= 0:
            return None
        idle = min(at, time.monotonic()) - measured_at - (cpu_seconds - self._seen_cpu_seconds)
        away = self._away_seconds + max(0.0, min(away, idle))
        reason = self._time.sample(cpu_seconds, self.idle_seconds, self._unseen_seconds, away)
        return _UNKNOWN if reason == "unknown" else None

    def kills_around(self) -> int | None:
        """Return the number of kills for memory around the sandbox so far; None while unreadable.

        Where a cgroup counts the sandbox's own kills, 0.
        """
        if self.launch.memory_is_counted:
            return 0
        try:
            return procfs.out_of_memory_kills(self.launch.kills_path)
        except procfs.Unread:
            return None

    def kills_since(self, before: int | None) -> int:
        """Return the number of kills around the sandbox since the count `before`; 0 if unknown."""
        now = self.kills_around()
        return 0 if before is None or now is None else now - before

    def mark_shortages(self) -> int:
        """Return a mark for `were_shortages`."""
        return 0 if self._shortages is None else self._shortages.mark(self.has_own_user)

    async def were_shortages(self, mark: int) -> bool:
        """Return True if the kernel refused the sandbox's user something since the mark."""
        if self._shortages is None:
            return False
        await self._shortages.looked()
        return self._shortages.were_since(mark, self.has_own_user)

    def on_lost(self, why: str) -> None:
        """Handle the death of the fork server: an ending if out of memory, else SandboxLost."""
        if self._ended.done():
            return
        if self.group.out_of_memory_kills() > 0 and self.group.at_memory_limit():
            self._stopped_for = "memory_limit"
            self.on_exit(Exit(signal.SIGKILL))
            return
        self.stop("killed")
        self.close()
        self._fail(SandboxLost(why))

    def _fail(self, failure: Failure) -> None:
        self._ended.set_exception(failure)
        self._ended.exception()  # retrieved here, or asyncio would log a warning

    def close(self) -> None:
        """Close every descriptor; idempotent."""
        if self._pidfd >= 0:
            super().close()
            self._hear = None  # it refers to the sandbox, too
            for stream in self._streams:
                stream.close()
            os.close(self._pidfd)
            self._pidfd = -1

    # ------------------------------------------------------------ callbacks of channel and streams

    def on_flood(self) -> None:
        """Stop the sandbox."""
        self.stop("output_limit")

    def _on_output(self, _: bytes) -> None:
        if any(stream.total > self.launch.flood_bytes for stream in self._streams):
            self.stop("output_limit")
