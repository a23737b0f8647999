"""Monitor of running sandboxes: CPU time, and wall time of a program idle by itself.

Time counts as idle if the sandbox neither runs, nor waits for a core, nor is throttled by a CPU quota:
the run queue of a busy machine causes no timeout (see `idle.py`). Of a wait inside the kernel (state D) a
part counts: an overloaded machine causes these waits, but hostile code can cause them, too. In a
conversation of two sandboxes, each is idle only in its own turns. Delays of the service are left out, in
a conversation, and for a program with output read late. Idle time in which the service itself was stopped
is a figure of its own (`absence.py`). Without cgroups, each sample sums CPU time and memory over the
sandbox's processes. The monitor only reports; the sandbox enforces its limits. Sampling many processes
takes long, so a thread samples them, with pauses and less often.

A program with more than 0.25 s of CPU time is a long runner: its place among the programs that begin is
free again. The cores are shared by job (`core_shares.py`), for a program of any age.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from proctor_service.sandbox.linux import procfs
from proctor_service.sandbox.linux.socket_memory import MachineFiles, MachineMemory
from proctor_service.sandbox.linux.time_limits import TurnClock
from proctor_service.sandbox.local.absence import Absence
from proctor_service.sandbox.local.cgroups import AWAKE
from proctor_service.sandbox.local.core_shares import EQUAL, CoreShares, Owner
from proctor_service.sandbox.local.idle import IdleClock, Measurement, Sample, Seen, ThreadTimes
from proctor_service.sandbox.local.memory import MemoryLimit, SocketLimit, exceeds, may_exceed
from proctor_service.sandbox.local.reads import Reads
from proctor_service.settings.cgroups_above import files_above

_MOMENT_SECONDS = 0.04  # a sandbox ending sooner is never sampled
_FEW_THREADS = 32  # limit for sampling on the event loop, which takes about 2 ms
_SLICE_SECONDS = 0.004  # time on the event loop after which a pause is due
_REST = 3  # length of the pause, as a multiple of the work before,
_LONGEST_REST_SECONDS = 0.5  # and at most
_THROTTLED_UNITS = {b"throttled_usec": 1e-6, b"throttled_time": 1e-9}  # v2, v1
_MOST_BYTES = 4096


class Monitored(Protocol):
    """Interface of a sandbox for the monitor."""

    started_at: float
    """Another value restarts the monitoring: all before was the work of the service."""

    @property
    def owner(self) -> Owner:
        """Tenant and job of the sandbox."""

    @property
    def is_idle(self) -> bool:
        """True while time limits are off."""

    def host_pid(self) -> int | None:
        """Return the first process's PID in the service's PID namespace."""

    def init_pid(self) -> int | None:
        """Return the PID of another process that gets orphans. Raises procfs.Unread."""

    def cpu_seconds(self, summed: float) -> float:
        """Return CPU seconds since monitoring began.

        `summed`: sum over the processes, used where no cgroup counts CPU time. Called from any
        thread.
        """

    @property
    def turns(self) -> TurnClock | None:
        """Turn clock of a sandbox with a peer, else None."""

    @property
    def exchanges(self) -> int:
        """Number of transfers so far in which the program may have waited for the service.

        Read from any thread.
        """

    @property
    def is_counted(self) -> bool:
        """True if a cgroup counts the CPU time."""

    @property
    def memory_limit(self) -> MemoryLimit | None:
        """Memory limit for the monitor to enforce; None where a cgroup enforces the limit."""

    def note_machine(self, machine: MachineMemory) -> None:
        """Note the machine's memory; the first call counts."""

    @property
    def socket_limit(self) -> SocketLimit | None:
        """Memory limit including all memory of sockets; None where the kernel lacks the list of sockets."""

    def on_measurement(self, measure: Measurement) -> None:
        """Handle a new sample of a sandbox in use."""

    def on_memory_exceeded(self) -> None:
        """Handle memory use above the limit."""

    def set_weight(self, weight: float) -> None:
        """Set the sandbox's part of the cores: a weight of `core_shares.py`."""


class Pace:
    """Limits the share of event loop time spent on background work."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def rest(self) -> bool:
        """Sleep if the work since the last pause took long; call between two pieces of work.

        Return True after a sleep.
        """
        spent_seconds = time.monotonic() - self._since
        if spent_seconds <= _SLICE_SECONDS:
            return False
        await asyncio.sleep(min(spent_seconds * _REST, _LONGEST_REST_SECONDS))
        self._since = time.monotonic()
        return True


class Throttling:
    """Throttled time of this process' cgroup, and of its ancestors, under a CPU quota.

    The kernel reports a throttled thread as runnable (state R), but leaves this time out of the threads'
    run-queue waits. Only the cgroups of the service and its sandboxes count the time, each for itself.
    """

    def __init__(self) -> None:
        has_quota = files_above("cpu", ("cpu.cfs_quota_us", "cpu.max"))
        paths = files_above("cpu", ("cpu.stat",)) if has_quota else []
        self._files = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths]

    def seconds(self) -> float:
        """Return the throttled seconds so far.

        The kernel sums over cores, so the value may grow faster than wall time.
        """
        seconds = 0.0
        for descriptor in self._files:
            with contextlib.suppress(OSError):  # the group is gone
                for line in os.pread(descriptor, _MOST_BYTES, 0).splitlines():
                    name, _, number = line.partition(b" ")
                    if name in _THROTTLED_UNITS:
                        seconds += int(number) * _THROTTLED_UNITS[name]
        return seconds

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._files:
            os.close(descriptor)
        self._files = []


@dataclass(frozen=True, slots=True)
class _Reading:
    """Values of a sandbox from /proc and the cgroup."""

    pids: list[int]
    sample: Sample


def _read(
    sandbox: Monitored,
    pid: int,
    service: int,
    throttling: Throttling,
    away_seconds: float,
    most_threads: int | None,
) -> _Reading | None:
    """Take a sample; None with more than `most_threads`. `service`: the event loop's thread.

    Raises procfs.Unread: a sample without an existing thread would be idle time.
    """
    begun = time.monotonic()
    turns = sandbox.turns
    rested = 0.0 if turns is None else turns.rested_seconds()
    service_seconds = procfs.scheduled_seconds(service)
    processes = procfs.walk(pid, most_threads, sandbox.init_pid())
    if processes is None:
        return None
    summed = 0.0 if sandbox.is_counted else procfs.cpu_seconds(list(processes))
    threads = {t: _times(p, t) for p, its_threads in processes.items() for t in its_threads}
    sample = Sample(
        begun=begun,
        done=time.monotonic(),
        threads=threads,
        cpu_seconds=sandbox.cpu_seconds(summed),
        throttled_seconds=throttling.seconds(),
        service_seconds=service_seconds,
        rested_seconds=(rested, rested),
        exchanges=sandbox.exchanges + (0 if turns is None else turns.ended),
        away_seconds=away_seconds,
    )
    return _Reading(list(processes), sample)


def _times(process: int, thread: int) -> ThreadTimes:
    """Return a thread's times.

    The state is read first: a thread asleep then, and waiting later, began its wait after the
    sample.
    """
    state = next(iter(procfs.states([(process, thread)])), b"")
    ran, waited = procfs.schedule(thread)
    return ThreadTimes(ran, waited, state == b"R", state == b"D")


class Monitor:
    """Samples running sandboxes and reports to them."""

    def __init__(self, tenant_weights: Mapping[str, float] = EQUAL) -> None:
        """`tenant_weights`: parts of the cores by tenant, see `CoreShares`."""
        self.reads = Reads()
        self._machine_files = MachineFiles()
        self._machine = self._machine_files.read()  # as last measured
        self._throttling = Throttling()
        self._seen: dict[Monitored, Seen] = {}
        self._running: dict[Monitored, Sample] = {}  # with the totals at the start
        self.absence = Absence()
        self._shares = CoreShares(tenant_weights)

    def add(self, sandbox: Monitored) -> None:
        """Start monitoring a sandbox, with its job's weight."""
        sandbox.set_weight(self._shares.weights.get(sandbox.owner, AWAKE))
        sandbox.note_machine(self._machine)
        self._running[sandbox] = Sample(
            begun=0.0,  # the program begins later
            done=0.0,
            threads={},
            throttled_seconds=self._throttling.seconds(),
            service_seconds=self.absence.active_seconds,
            exchanges=sandbox.exchanges,
            away_seconds=self.absence.seconds,
        )

    def remove(self, sandbox: Monitored) -> None:
        """Stop monitoring a sandbox."""
        self._running.pop(sandbox, None)
        self._seen.pop(sandbox, None)

    def rest(self) -> tuple[int, int]:
        """Return (sandboxes using no core at the last sample, all monitored sandboxes)."""
        return sum(seen.asleep for seen in self._seen.values()), len(self._running)

    def share_cores(self) -> Counter[Owner]:
        """Set the weight of every sandbox; return the number of long runners by tenant and job."""
        asleep = {sandbox for sandbox, seen in self._seen.items() if seen.asleep}
        self._shares.update(Counter(each.owner for each in self._running.keys() - asleep))
        for sandbox in self._running:
            sandbox.set_weight(self._shares.weights.get(sandbox.owner, AWAKE))
        return Counter(each.owner for each, seen in self._seen.items() if seen.is_long_runner)

    async def close(self) -> None:
        """Stop the reads in progress."""
        await self.reads.close()
        self._throttling.close()
        self.absence.close()
        self._machine_files.close()

    async def cpu_total(self, pid: int) -> float:
        """Return CPU seconds of a process, its descendants, and all their reaped children.

        Raises procfs.Unread.
        """
        processes = procfs.walk(pid, _FEW_THREADS)
        if processes is not None:
            return procfs.cpu_seconds(list(processes))
        return await self.reads.run(lambda: procfs.cpu_seconds(procfs.tree(pid)))

    async def measure(self) -> None:
        """Sample every sandbox older than `_MOMENT_SECONDS` once."""
        pace = Pace()
        service = threading.get_native_id()
        self.absence.note_presence()
        self._machine = self._machine_files.read()
        for sandbox in list(self._running):
            if time.monotonic() - sandbox.started_at < _MOMENT_SECONDS:
                continue
            if await pace.rest():
                self.absence.note_presence()
            if sandbox not in self._running or sandbox.is_idle:
                continue
            pid = sandbox.host_pid()
            if pid is None:
                continue
            at = sandbox.started_at
            if sandbox not in self._seen or self._seen[sandbox].started_at != at:
                start = replace(self._running[sandbox], begun=at, done=at)
                self._seen[sandbox] = Seen(IdleClock(start, is_counted=sandbox.is_counted), at, at)
            with contextlib.suppress(procfs.Unread):  # the next sample covers this time, too
                self._sample(sandbox, pid, service)

    def _sample(self, sandbox: Monitored, pid: int, service: int) -> None:
        seen, away_seconds = self._seen[sandbox], self.absence.seconds
        reading = _read(sandbox, pid, service, self._throttling, away_seconds, _FEW_THREADS)
        if reading is not None:
            self._report(sandbox, seen, reading)
        else:
            self.reads.start(
                sandbox,
                "look",
                partial(_read, sandbox, pid, service, self._throttling, away_seconds, None),
                partial(self._report_late, sandbox, seen),
            )

    def _report_late(self, sandbox: Monitored, seen: Seen, reading: _Reading | None) -> None:
        """Report a thread's reading, unless the service was stopped since the reading began."""
        self.absence.note_presence()
        if reading is not None and reading.sample.away_seconds == self.absence.seconds:
            self._report(sandbox, seen, reading)

    def _report(self, sandbox: Monitored, seen: Seen, reading: _Reading | None) -> None:
        """Report a reading to its sandbox, unless monitoring stopped or a later sample exists."""
        if self._seen.get(sandbox) is not seen or sandbox.is_idle or reading is None:
            return
        if reading.sample.begun <= seen.looked_at or seen.started_at != sandbox.started_at:
            return
        if not reading.sample.threads:  # the sandbox has ended, at a time that another tells
            return
        sandbox.on_measurement(
            seen.measure(reading.sample, sandbox.turns, is_counted=sandbox.is_counted)
        )
        self.look_at_sockets(sandbox)
        limit = sandbox.memory_limit
        pids = reading.pids
        if limit is None or (len(pids) <= _FEW_THREADS and not may_exceed(pids, limit)):
            return
        self.reads.start(
            sandbox, "memory", partial(exceeds, pids, limit), partial(_tell_memory, sandbox)
        )

    def look_at_sockets(self, sandbox: Monitored) -> None:
        """Tell a sandbox if its memory, including the memory of its sockets, exceeds its limit."""
        limit, machine, pid = sandbox.socket_limit, self._machine, sandbox.host_pid()
        if limit is not None and pid is not None and limit.may_exceed(machine):
            read = partial(limit.exceeds, pid, machine)
            self.reads.start(sandbox, "sockets", read, partial(_tell_memory, sandbox))


def _tell_memory(sandbox: Monitored, exceeded: bool) -> None:
    if exceeded:
        sandbox.on_memory_exceeded()
