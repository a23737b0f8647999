"""Who runs too long: CPU time, and wall time in which a program idles by itself.

A moment counts as idle when the sandbox neither ran nor waited for a core in it, nor was throttled by a
quota: time on a busy machine's run queue is nobody's timeout (see `idle.py`). A wait for the kernel
itself, in which an overloaded machine leaves everybody now and then, counts for a part: hostile code can
bring it about. Where two sandboxes take turns, each idles in its own turns alone, and the service's own
delays are nobody's. Where no cgroup counts, CPU time and memory are summed over the sandbox's processes
instead, each time it is looked at. What follows from a look is the sandbox's own business. Many processes
take long to look at: that is done in a thread, with rests, and there are fewer looks.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from proctor_service.sandbox.backends.local import procfs
from proctor_service.sandbox.backends.local.idle import IdleClock, Sample, ThreadTimes
from proctor_service.sandbox.backends.local.memory import MemoryLimit, exceeds, may_exceed
from proctor_service.sandbox.backends.local.quota import Throttling
from proctor_service.sandbox.backends.local.reads import Reads
from proctor_service.sandbox.backends.local.turns import Turns

_MOMENT_SECONDS = 0.04  # what ends within it is never looked at
_MOST_THREADS = 10_000
_FEW_THREADS = 32  # so many are looked at on the event loop: some 2 ms
_LATELY_SECONDS = 1.0
_CONTENDED_SHARE = 0.01
_SLICE_SECONDS = 0.004  # so long the loop is held up
_REST = 3  # times as long it is left alone after that
UNSEEN_TIMES = 3
"""So many times its limits of time may be spent in ways of which nobody can tell whose they were.

An honest program on a busy machine has such times too, so it is more than once.
"""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of a sandbox since the look before, and what is settled now of the time before.

    In that time it used `used_seconds` of CPU time, over all cores, and `cpu_seconds` since it was first
    watched. `contended`: something waited for a core lately. Of
    `settled_seconds`, which follow on those of earlier looks, all is known: in them it was idle for
    `idle_seconds` and active, running or idle, for `active_seconds`. `unseen_seconds` of them may be
    either: nobody can tell whose they were.
    """

    used_seconds: float
    contended: bool
    cpu_seconds: float
    settled_seconds: float = 0.0
    idle_seconds: float = 0.0
    active_seconds: float = 0.0
    unseen_seconds: float = 0.0


class Watched(Protocol):
    """A sandbox, as far as it is watched."""

    started_at: float

    @property
    def resting(self) -> bool:
        """Whether it does nothing of which its limits count the time."""

    def host_pid(self) -> int | None:
        """Its first process, in the service's pid namespace."""

    def cpu_seconds(self, summed: float) -> float:
        """CPU time since it is watched. `summed`: its processes' times, for where no cgroup counts it.

        Called from any thread.
        """

    @property
    def turns(self) -> Turns | None:
        """Whose turn it is, where it takes turns with somebody."""

    @property
    def is_counted(self) -> bool:
        """Whether a cgroup counts it."""

    @property
    def memory_limit(self) -> MemoryLimit | None:
        """What it may hold, where no cgroup sees to it."""

    def on_look(self, look: Look) -> None:
        """Told what was seen, unless it rests."""

    def on_memory_exceeded(self) -> None:
        """Told that it holds more than its limit."""


@dataclass(slots=True)
class _Seen:
    """What was known of a sandbox at the last look."""

    clock: IdleClock
    looked_at: float
    cpu_seconds: float = 0.0
    threads: Mapping[int, ThreadTimes] = field(default_factory=dict)
    waited_lately: float = 0.0
    asleep: bool = False
    ran: dict[int, float] = field(default_factory=dict)
    ran_seconds: float = 0.0

    def run_at_least(self, cpu_seconds: float, threads: Mapping[int, ThreadTimes]) -> float:
        """CPU time, where no cgroup counts it: what the processes' sum says, and never less than was seen.

        The sum forgets processes that nobody waited for. A thread that a look has missed is remembered,
        or all that it ever ran would count once more.
        """
        if not self.ran:
            self.ran_seconds = cpu_seconds  # what ran before it was watched is not in it
        else:
            for thread, times in threads.items():
                self.ran_seconds += max(0.0, times.ran - self.ran.get(thread, 0.0))
        if len(self.ran) > _MOST_THREADS:
            self.ran.clear()
        self.ran.update((thread, times.ran) for thread, times in threads.items())
        return max(cpu_seconds, self.ran_seconds, self.cpu_seconds)

    def is_contended(self, interval: float, threads: Mapping[int, ThreadTimes]) -> bool:
        """Whether its threads waited for a core lately. Those that are new waited in another time."""
        if self.threads:
            self.waited_lately *= max(0.0, 1.0 - interval / _LATELY_SECONDS)
            for thread, times in threads.items():
                old = self.threads.get(thread)
                self.waited_lately += times.waited - (old.waited if old else 0.0)
        return self.waited_lately > _CONTENDED_SHARE * _LATELY_SECONDS


class Pace:
    """Keeps work that is never urgent from holding up the loop."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def rest(self) -> None:
        """Between two pieces of the work: gives way when it is time."""
        spent_seconds = time.monotonic() - self._since
        if spent_seconds > _SLICE_SECONDS:
            await asyncio.sleep(spent_seconds * _REST)
            self._since = time.monotonic()


@dataclass(frozen=True, slots=True)
class _Reading:
    """What /proc and the cgroup said of a sandbox, by process and thread."""

    pids: list[int]
    sample: Sample


def _read(
    sandbox: Watched, pid: int, service: int, throttling: Throttling, most_threads: int | None
) -> _Reading | None:
    """Reads all in one go; None when it has more than `most_threads`. `service`: the loop's thread."""
    begun = time.monotonic()
    turns = sandbox.turns
    rested = 0.0 if turns is None else turns.rested_seconds()
    service_seconds = procfs.scheduled_seconds(service)
    processes = procfs.walk(pid, most_threads)
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
        turns=0 if turns is None else turns.ended,
    )
    return _Reading(list(processes), sample)


def _times(process: int, thread: int) -> ThreadTimes:
    """The state first: a thread that sleeps then, and waits after, waits after the look."""
    state = next(iter(procfs.states([(process, thread)])), b"")
    ran, waited = procfs.schedule(thread)
    return ThreadTimes(ran, waited, state == b"R", state == b"D")


class Watch:
    """Looks at running sandboxes, and tells them what it saw."""

    def __init__(self) -> None:
        self.reads = Reads()
        self._throttling = Throttling()
        self._seen: dict[Watched, _Seen] = {}
        self._running: dict[Watched, float] = {}  # and how long it was throttled before

    def add(self, sandbox: Watched) -> None:
        """Begins to look at a sandbox."""
        self._running[sandbox] = self._throttling.seconds()

    def remove(self, sandbox: Watched) -> None:
        """Forgets it."""
        self._running.pop(sandbox, None)
        self._seen.pop(sandbox, None)

    def rest(self) -> tuple[int, int]:
        """How many sandboxes used no core at the last look, and how many there are."""
        return sum(seen.asleep for seen in self._seen.values()), len(self._running)

    async def close(self) -> None:
        """Ends what is being read."""
        await self.reads.close()
        self._throttling.close()

    async def cpu_total(self, pid: int) -> float:
        """CPU time of a process and its descendants, and of children that they have reaped."""
        processes = procfs.walk(pid, _FEW_THREADS)
        if processes is not None:
            return procfs.cpu_seconds(list(processes))
        return await self.reads.run(lambda: procfs.cpu_seconds(procfs.tree(pid)))

    async def look(self) -> None:
        """One sweep over what has run for more than a moment."""
        pace = Pace()
        service = threading.get_native_id()
        for sandbox in list(self._running):
            await pace.rest()
            if sandbox not in self._running or sandbox.resting:
                continue
            if time.monotonic() - sandbox.started_at < _MOMENT_SECONDS:
                continue
            pid = sandbox.host_pid()
            if pid is None:
                continue
            if sandbox not in self._seen:
                self._seen[sandbox] = self._begin(sandbox, service)
            reading = _read(sandbox, pid, service, self._throttling, _FEW_THREADS)
            if reading is not None:
                self._tell(sandbox, self._seen[sandbox], reading)
            else:
                self.reads.start(
                    sandbox,
                    "look",
                    partial(_read, sandbox, pid, service, self._throttling, None),
                    partial(self._tell, sandbox, self._seen[sandbox]),
                )

    def _begin(self, sandbox: Watched, service: int) -> _Seen:
        at = sandbox.started_at
        seconds = procfs.scheduled_seconds(service)
        throttled = self._running[sandbox]
        start = Sample(at, at, {}, throttled_seconds=throttled, service_seconds=seconds)
        return _Seen(IdleClock(start, is_counted=sandbox.is_counted), at)

    def _tell(self, sandbox: Watched, seen: _Seen, reading: _Reading | None) -> None:
        """Tells a sandbox what was seen, unless it was forgotten meanwhile, or has been looked at."""
        if self._seen.get(sandbox) is not seen or sandbox.resting or reading is None:
            return
        if reading.sample.begun <= seen.looked_at:
            return
        sandbox.on_look(_look_at(sandbox, seen, reading.sample))
        limit = sandbox.memory_limit
        pids = reading.pids
        if limit is None or (len(pids) <= _FEW_THREADS and not may_exceed(pids, limit)):
            return
        self.reads.start(
            sandbox, "memory", partial(exceeds, pids, limit), partial(_tell_memory, sandbox)
        )


def _tell_memory(sandbox: Watched, exceeded: bool) -> None:
    if exceeded:
        sandbox.on_memory_exceeded()


def _look_at(sandbox: Watched, seen: _Seen, sample: Sample) -> Look:
    cpu = sample.cpu_seconds
    if not sandbox.is_counted:
        cpu = seen.run_at_least(cpu, sample.threads)
    rested = sample.rested_seconds
    if sandbox.turns is not None:  # a read in a thread takes a while
        rested = rested[0], sandbox.turns.rested_seconds()
    settled = seen.clock.settle(replace(sample, cpu_seconds=cpu, rested_seconds=rested))
    interval = sample.begun - seen.looked_at
    used = cpu - seen.cpu_seconds
    contended = seen.is_contended(interval, sample.threads)
    seen.asleep = settled.asleep
    seen.looked_at, seen.cpu_seconds, seen.threads = sample.begun, cpu, sample.threads
    return Look(
        used,
        contended,
        cpu,
        settled.seconds,
        settled.idle_seconds,
        min(settled.seconds, settled.used_seconds + settled.idle_seconds),
        settled.unseen_seconds,
    )
