"""Time limits of a program: of one test, and of all its tests together.

Samples of a program's times come now and then, and tests begin in between. The time between the last
sample of a test and the first sample of the next one counts for both together only: no test fails for
the time of another. Standard library only; this file is also copied into remote sandboxes.
"""

from __future__ import annotations

from typing import Literal

TESTS = 10
"""Without a limit of all tests together, they have that of so many tests."""
UNSEEN_TIMES = 3
"""Multiple of the time limits allowed for time which cannot be attributed to a sandbox.

Greater than 1, because an honest program on a busy machine has unattributed time, too.
"""


class TimeLimits:
    """Compares a program's times with its limits; all in seconds.

    `cpu` and `wall` (idle time) of one test, `all_cpu` and `all_wall` of all tests together.
    """

    def __init__(self, cpu: float, wall: float, all_cpu: float, all_wall: float) -> None:
        self._one = cpu, wall
        self._all = all_cpu, all_wall
        self._before = (0.0, 0.0, 0.0)  # used by earlier tests
        self._begins = False

    def begin_test(self) -> None:
        """Begin the next test: its time counts from the next sample."""
        self._begins = True

    def sample(
        self, cpu: float, idle: float, unseen: float = 0.0
    ) -> Literal["cpu_limit", "wall_limit"] | None:
        """Return the ending `cpu_limit` or `wall_limit` for these times so far, or None.

        `unseen`: time which cannot be attributed.
        """
        if self._begins:
            self._before, self._begins = (cpu, idle, unseen), False
        _, before_idle, before_unseen = self._before
        (one_cpu, one_wall), (all_cpu, all_wall) = self._one, self._all
        if (
            self.is_over(cpu)
            or unseen - before_unseen > UNSEEN_TIMES * (one_cpu + one_wall)
            or unseen > UNSEEN_TIMES * (all_cpu + all_wall)
        ):
            return "cpu_limit"
        if idle - before_idle > one_wall or idle > all_wall:
            return "wall_limit"
        return None

    def is_over(self, cpu: float) -> bool:
        """Tell whether this CPU time so far is above a limit, for example at the program's end."""
        one_cpu, all_cpu = self._one[0], self._all[0]
        return cpu > all_cpu or (not self._begins and cpu - self._before[0] > one_cpu)
