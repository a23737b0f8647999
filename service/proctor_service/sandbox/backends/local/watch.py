"""Who runs too long: CPU time, and wall time in which a program idles by itself.

A moment counts as idle when the sandbox neither ran nor waited for a core in it. Time on a busy
machine's run queue is therefore nobody's timeout. Where no cgroup counts, CPU time and memory are
summed over the sandbox's processes instead, each time it is looked at. What follows from a look is the
sandbox's own business.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from proctor_service.sandbox.backends.local import procfs

_ASLEEP_SHARE = 0.95  # idle for this share of an interval: it needs no core
_MOMENT_SECONDS = 0.04  # what ends within it is never looked at


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of a sandbox in an interval of wall time: since the look before.

    Of it `idle_seconds` in which nothing ran or waited for a core; `used_seconds` of CPU time, over all
    cores. `cpu_seconds` is CPU time since it was first watched.
    """

    interval_seconds: float
    idle_seconds: float
    used_seconds: float
    cpu_seconds: float
    pids: list[int]


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

    def on_look(self, look: Look) -> None:
        """Told what was seen, unless it rests."""


@dataclass(slots=True)
class _Seen:
    """What was known of a sandbox at the last look."""

    looked_at: float
    cpu_seconds: float = 0.0
    scheduled: dict[int, float] = field(default_factory=dict)
    asleep: bool = False


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

    def look(self, now: float) -> None:
        """One sweep over what has run for more than a moment."""
        for sandbox in list(self._running):
            if sandbox.resting or now - sandbox.started_at < _MOMENT_SECONDS:
                continue
            pid = sandbox.host_pid()
            if pid is None:
                continue
            seen = self._seen.get(sandbox)
            if seen is None:
                seen = self._seen[sandbox] = _Seen(sandbox.started_at)
            sandbox.on_look(_look_at(sandbox, pid, seen, now))


def _look_at(sandbox: Watched, pid: int, seen: _Seen, now: float) -> Look:
    pids = procfs.tree(pid)
    counted = sandbox.cpu_seconds()
    cpu = procfs.cpu_seconds(pids) if counted is None else counted
    scheduled = {t: procfs.scheduled_seconds(t) for p in pids for t in procfs.threads(p)}
    # Threads that ended since the last look took their times along; the CPU time did not go.
    used = cpu - seen.cpu_seconds
    ran = max(used, sum(s - seen.scheduled.get(t, 0.0) for t, s in scheduled.items()))
    interval = now - seen.looked_at
    idle = min(interval, max(0.0, interval - ran))
    seen.looked_at, seen.cpu_seconds, seen.scheduled = now, cpu, scheduled
    seen.asleep = idle > _ASLEEP_SHARE * interval
    return Look(interval, idle, used, cpu, pids)
