"""Who runs too long: CPU time, and wall time in which a program idles by itself.

A moment counts as idle when the sandbox neither ran nor waited for a core in it. Time on a busy
machine's run queue is therefore nobody's timeout. Where no cgroup counts, CPU time and memory are
summed over the sandbox's processes instead, each time it is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proctor_service.sandbox.backends.local import procfs
from proctor_service.sandbox.backends.local.sandbox import LocalSandbox

_ASLEEP_SHARE = 0.95  # idle for this share of an interval: it needs no core
_MOMENT_SECONDS = 0.04  # what ends within it is never looked at


@dataclass(slots=True)
class _Seen:
    """What was known of a sandbox at the last look."""

    looked_at: float
    cpu_seconds: float = 0.0
    scheduled: dict[int, float] = field(default_factory=dict)
    idle_seconds: float = 0.0
    asleep: bool = False


class Watch:
    """Looks at running sandboxes; stops those over a limit."""

    def __init__(self, memory_is_counted: bool) -> None:
        self._memory_is_counted = memory_is_counted
        self._seen: dict[LocalSandbox, _Seen] = {}
        self._running: set[LocalSandbox] = set()

    def add(self, sandbox: LocalSandbox) -> None:
        """Begins to look at a sandbox."""
        self._running.add(sandbox)

    def remove(self, sandbox: LocalSandbox) -> None:
        """Forgets it."""
        self._running.discard(sandbox)
        self._seen.pop(sandbox, None)

    def rest(self) -> tuple[int, int]:
        """How many sandboxes used no core at the last look, and how many there are."""
        return sum(seen.asleep for seen in self._seen.values()), len(self._running)

    def look(self, now: float) -> None:
        """One sweep over what has run for more than a moment."""
        for sandbox in self._running:
            if sandbox.limits is None or now - sandbox.started_at < _MOMENT_SECONDS:
                continue
            seen = self._seen.get(sandbox)
            if seen is None:
                seen = self._seen[sandbox] = _Seen(sandbox.started_at)
            self._look_at(sandbox, seen, now)

    def _look_at(self, sandbox: LocalSandbox, seen: _Seen, now: float) -> None:
        limits, pid = sandbox.limits, sandbox.host_pid()
        if pid is None or limits is None:
            return
        pids = procfs.tree(pid)
        counted = sandbox.cpu_seconds()
        cpu = procfs.cpu_seconds(pids) if counted is None else counted
        scheduled = {t: procfs.scheduled_seconds(t) for p in pids for t in procfs.threads(p)}
        # Threads that ended since the last look took their times along; the CPU time did not go.
        progress = max(
            cpu - seen.cpu_seconds,
            sum(seconds - seen.scheduled.get(t, 0.0) for t, seconds in scheduled.items()),
        )
        interval = now - seen.looked_at
        idle = min(interval, max(0.0, interval - progress))
        seen.looked_at, seen.cpu_seconds, seen.scheduled = now, cpu, scheduled
        seen.asleep = idle > _ASLEEP_SHARE * interval
        seen.idle_seconds += idle
        sandbox.idle_seconds = seen.idle_seconds
        if cpu > limits.cpu_seconds:
            sandbox.stop("cpu_limit")
        elif seen.idle_seconds > limits.wall_seconds:
            sandbox.stop("wall_limit")
        elif not self._memory_is_counted and procfs.exceeds_memory(pids, limits.memory_mb):
            sandbox.stop("memory_limit")
