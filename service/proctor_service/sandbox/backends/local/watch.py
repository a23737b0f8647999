"""Who runs too long: CPU time, and wall time in which a program idles by itself.

A moment counts as idle when the sandbox neither ran nor waited for a core in it. Time on a busy
machine's run queue is therefore nobody's timeout. The kernel tells of a wait when it is over: what was
taken for idle until then is taken back. A wait for the kernel itself, in which an overloaded machine
leaves everybody now and then, counts for a part: hostile code can bring it about. Where two sandboxes
take turns, each idles in its own turns alone, and the service's own delays are nobody's. Where no cgroup
counts, CPU time and memory are summed over the sandbox's processes instead, each time it is looked at.
What follows from a look is the sandbox's own business. Many processes take long to look at: then there
are fewer looks, and never more than the service can spare.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from proctor_service.sandbox.backends.local import procfs
from proctor_service.sandbox.backends.local.turns import Turns

_ASLEEP_SHARE = 0.95  # idle for this share of an interval: it needs no core
_MOMENT_SECONDS = 0.04  # what ends within it is never looked at
_MOST_THREADS = 10_000
_REMEMBERED = 64  # intervals; longer waits for a core are rare
_LATELY_SECONDS = 1.0
_CONTENDED_SHARE = 0.01
_NOTHING_SECONDS = 0.001
_BLOCKED_PART = 1 / 3
_SLICE_SECONDS = 0.004  # so long the loop is held up
_REST = 3  # times as long it is left alone after that
UNSEEN_TIMES = 3
"""So many times its limits of time may be spent in ways of which nobody can tell whose they were.

An honest program on a busy machine has such times too, so it is more than once.
"""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of a sandbox in an interval of wall time: since the look before.

    Of it `idle_seconds` in which nothing ran or waited for a core, less what was told as such before and
    was none; `used_seconds` of CPU time, over all cores. `contended`: something waited for a core lately.
    `cpu_seconds` is CPU time since it was first watched. `unseen_seconds`: nobody can tell whose they
    were. Processes that took their times along ran or waited in them, where no cgroup counts; or what
    was said may have waited for the service.
    """

    interval_seconds: float
    idle_seconds: float
    used_seconds: float
    contended: bool
    cpu_seconds: float
    pids: list[int]
    unseen_seconds: float = 0.0

    @property
    def starves(self) -> bool:
        """Whether it waits for a core and gets none: how long, the kernel has not told yet."""
        return self.used_seconds < _NOTHING_SECONDS and procfs.any_is_runnable(self.pids)


class Watched(Protocol):
    """A sandbox, as far as it is watched."""

    started_at: float

    @property
    def resting(self) -> bool:
        """Whether it does nothing of which its limits count the time."""

    def host_pid(self) -> int | None:
        """Its first process, in the service's pid namespace."""

    def cpu_seconds(self) -> float | None:
        """CPU time since it is watched, where that is counted; else its processes' times are summed."""

    @property
    def turns(self) -> Turns | None:
        """Whose turn it is, where it takes turns with somebody."""

    @property
    def is_counted(self) -> bool:
        """Whether a cgroup counts it."""

    def on_look(self, look: Look) -> None:
        """Told what was seen, unless it rests."""


@dataclass(slots=True)
class _Seen:
    """What was known of a sandbox at the last look."""

    looked_at: float
    cpu_seconds: float = 0.0
    scheduled: dict[int, tuple[float, float]] = field(default_factory=dict)
    idle: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    waited_lately: float = 0.0
    asleep: bool = False
    ran: dict[int, float] = field(default_factory=dict)
    ran_seconds: float = 0.0
    turns: int = 0
    service_seconds: float = 0.0

    def run_at_least(self, cpu_seconds: float, scheduled: dict[int, tuple[float, float]]) -> float:
        """CPU time, where no cgroup counts it: what the processes' sum says, and never less than was seen.

        The sum forgets processes that nobody waited for. A thread that a look has missed is remembered,
        or all that it ever ran would count once more.
        """
        if not self.ran:
            self.ran_seconds = cpu_seconds  # what ran before it was watched is not in it
        else:
            for thread, (ran, _) in scheduled.items():
                self.ran_seconds += max(0.0, ran - self.ran.get(thread, 0.0))
        if len(self.ran) > _MOST_THREADS:
            self.ran.clear()
        self.ran.update((thread, ran) for thread, (ran, _) in scheduled.items())
        return max(cpu_seconds, self.ran_seconds, self.cpu_seconds)

    def in_its_turns(
        self, turns: Turns, idle_seconds: float, service_seconds: float
    ) -> tuple[float, float]:
        """Of a sandbox's idle time what was its own, and what may have been the service's delay.

        Nobody can tell when a line was said: it is heard when the service, which may be waiting for a
        core itself, comes to it.
        """
        idle = max(0.0, idle_seconds - turns.take_rested_seconds())
        told = turns.ended > self.turns
        late = min(idle, service_seconds - self.service_seconds) if told else 0.0
        self.turns, self.service_seconds = turns.ended, service_seconds
        return idle - late, late

    def take_back(self, seconds: float) -> float:
        """How much of the last seconds was taken for idle; from now on it is not any more."""
        taken = 0.0
        for index in range(len(self.idle) - 1, -1, -1):
            if seconds <= 0:
                break
            interval, idle = self.idle[index]
            part = min(idle, seconds)
            self.idle[index] = interval, idle - part
            taken += part
            seconds -= interval
        return taken


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


class Watch:
    """Looks at running sandboxes, and tells them what it saw."""

    def __init__(self) -> None:
        self._seen: dict[Watched, _Seen] = {}
        self._running: set[Watched] = set()

    def add(self, sandbox: Watched) -> None:
        """Begins to look at a sandbox."""
        self._running.add(sandbox)

    def remove(self, sandbox: Watched) -> None:
        """Forgets it."""
        self._running.discard(sandbox)
        self._seen.pop(sandbox, None)

    def rest(self) -> tuple[int, int]:
        """How many sandboxes used no core at the last look, and how many there are."""
        return sum(seen.asleep for seen in self._seen.values()), len(self._running)

    async def look(self) -> None:
        """One sweep over what has run for more than a moment."""
        pace = Pace()
        service_seconds = procfs.scheduled_seconds(threading.get_native_id())
        for sandbox in list(self._running):
            await pace.rest()
            now = time.monotonic()
            if sandbox not in self._running or sandbox.resting:
                continue
            if now - sandbox.started_at < _MOMENT_SECONDS:
                continue
            pid = sandbox.host_pid()
            if pid is None:
                continue
            seen = self._seen.get(sandbox)
            if seen is None:
                seen = _Seen(sandbox.started_at, service_seconds=service_seconds)
                self._seen[sandbox] = seen
            sandbox.on_look(_look_at(sandbox, pid, seen, now, service_seconds))


def _look_at(sandbox: Watched, pid: int, seen: _Seen, now: float, service_seconds: float) -> Look:
    pids = procfs.tree(pid)
    counted = sandbox.cpu_seconds()
    cpu = procfs.cpu_seconds(pids) if counted is None else counted
    scheduled = {t: procfs.schedule(t) for p in pids for t in procfs.threads(p)}
    if not sandbox.is_counted:
        cpu = seen.run_at_least(cpu, scheduled)
    waited = active = longest = lasting = 0.0
    for thread, (ran_until_now, waited_until_now) in scheduled.items():
        ran_before, waited_before = seen.scheduled.get(thread, (0.0, 0.0))
        waited += waited_until_now - waited_before
        its_own = ran_until_now - ran_before + waited_until_now - waited_before
        active += its_own
        lasting += its_own if thread in seen.scheduled else 0.0
        longest = max(longest, its_own)
    # Threads that ended since the last look took their times along; the CPU time did not go.
    used = cpu - seen.cpu_seconds
    interval = now - seen.looked_at
    idle = min(interval, max(0.0, interval - max(used, active)))
    mistaken = unseen = 0.0
    if not sandbox.is_counted:
        unseen = max(0.0, interval - idle - max(used, lasting, longest))
    if seen.scheduled:  # else those times are from before
        mistaken = seen.take_back(longest - interval)
        seen.waited_lately *= max(0.0, 1.0 - interval / _LATELY_SECONDS)
        seen.waited_lately += waited
    seen.asleep = idle > _ASLEEP_SHARE * interval
    if sandbox.turns is not None:
        idle, late = seen.in_its_turns(sandbox.turns, idle, service_seconds)
        unseen += late
    if idle > _BLOCKED_PART * interval and procfs.any_is_blocked(pids):
        idle *= _BLOCKED_PART
    seen.idle.append((interval, idle))
    seen.looked_at, seen.cpu_seconds, seen.scheduled = now, cpu, scheduled
    contended = seen.waited_lately > _CONTENDED_SHARE * _LATELY_SECONDS
    return Look(interval, idle - mistaken, used, contended, cpu, pids, unseen)
