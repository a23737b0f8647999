"""Run time of a program: CPU time, and time in which the program is idle by itself.

Runs in the remote sandbox, in the supervisor: standard library only. Time counts as idle when the
program neither ran nor waited for a core.
"""

from __future__ import annotations

import resource
from typing import Any

from ....sandbox.linux import procfs
from ....sandbox.linux.time_limits import TimeLimits, TurnClock


class Clock:
    """Measures CPU and idle time; with `turns`, the peer's turns do not count as idle time.

    `timeout_seconds`: bounds running and idle time together, in place of the limits.
    """

    def __init__(self) -> None:
        self.turns: TurnClock | None = None
        self.limits = TimeLimits(0.0, 0.0, 0.0, 0.0)
        self.program_limits: TimeLimits | None = None  # until it begins
        self.cpu_before = 0.0  # of our work before the program
        self.timeout_seconds: float | None = None
        self.looks = 0
        self.cpu_seconds = self.idle_seconds = self.used_seconds = 0.0
        self._scheduled: dict[int, float] = {}
        self._at = 0.0

    def start(self, now: float, limits: dict[str, Any], *, is_program: bool) -> None:
        """Start counting time: of a program, or of our work before the program (`is_program`: False)."""
        self._at = now
        self.timeout_seconds = limits["timeout_seconds"]
        self.limits = TimeLimits(
            limits["cpu_seconds"],
            limits["wall_seconds"],
            limits["all_cpu_seconds"],
            limits["all_wall_seconds"],
        )
        if not is_program:
            self.program_limits = self.limits
            self.limits = self.limits.of_preparation()

    def begin(self, cpu_seconds: float, at: float) -> None:
        """Begin the program after our work, which took `cpu_seconds`; `at`: monotonic clock."""
        if self.program_limits is not None:
            self.limits, self.program_limits = self.program_limits, None
            self.cpu_before, self._at = cpu_seconds, at
            self.cpu_seconds = self.idle_seconds = self.used_seconds = 0.0

    def sample(self, pids: list[int], now: float) -> None:
        """Add the time used by these processes and by all ended processes."""
        self.looks += 1
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            cpu = procfs.cpu_seconds(pids) + used.ru_utime + used.ru_stime - self.cpu_before
            threads = [thread for pid in pids for thread in procfs.threads(pid)]
            scheduled = {thread: procfs.scheduled_seconds(thread) for thread in threads}
            is_runnable = procfs.any_is_runnable(pids)
        except procfs.Unread:  # here the program can cause this: no reason to live on
            cpu, scheduled, is_runnable = self.cpu_seconds, self._scheduled, False
        # The counters of recently ended threads are gone; their CPU time is still in the total.
        ran = max(0.0, cpu - self.cpu_seconds)
        progress = max(ran, sum(s - self._scheduled.get(t, 0.0) for t, s in scheduled.items()))
        interval = now - self._at
        # The kernel adds a wait for a core only after the wait.
        idle = 0.0 if is_runnable else min(interval, max(0.0, interval - progress))
        if self.turns is not None:
            idle = max(0.0, idle - self.turns.take_idle_seconds())
        self.idle_seconds += idle
        self.used_seconds += min(interval, idle + ran)
        self.cpu_seconds = max(cpu, self.cpu_seconds)
        self._scheduled, self._at = scheduled, now

    def over(self) -> str | None:
        """Return the exceeded limit, or None."""
        if self.timeout_seconds is not None:
            return "wall_limit" if self.used_seconds > self.timeout_seconds else None
        return self.limits.sample(self.cpu_seconds, self.idle_seconds)
