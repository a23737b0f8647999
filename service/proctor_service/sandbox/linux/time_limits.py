"""Time limits of a program, and the turns of a conversation, in which waiting is not idle time.

A sandbox first does work of ours: it takes the job, unpacks files, runs the tests' setup. Then the
sandbox reports on the channel the program's begin (`began`), with the CPU time until then. This time is
apart from the program's, with limits of its own (`of_preparation`). Only the first line counts, which our
code sends before a statement of the submission can run.

Samples of a program's times come now and then, and tests begin in between. The time between the last
sample of a test and the first sample of the next counts for both together only: no test fails for the
time of another.

A line from the program ends its turn, except for an out-of-band message. A line to the program begins its
next turn. A program with unread input cannot end its turn, and after the last input the program keeps the
turn. So at any time exactly one side of a conversation has the turn, regardless of writes and of unread
input, and the peer's turn never counts as idle time.

Standard library only; this file is also copied into remote sandboxes.
"""

from __future__ import annotations

import re
import time
from typing import Literal

from ...guest.channel import BEGAN, TIMED

ASIDE = b"!"
"""First byte of an out-of-band message, during which the turn goes on."""

TESTS = 10
"""Default limit of all tests together, as a multiple of a test's limit."""
UNSEEN_TIMES = 3
"""Multiple of the time limits allowed for time which cannot be attributed to a sandbox.

Greater than 1, because an honest program on a busy machine has unattributed time, too.
"""


PREPARATION_SECONDS = 60.0
"""CPU seconds, and idle seconds, of a sandbox before its program begins; more where its limits are."""
_BEGAN = re.compile(b"(?:%s|%s)([0-9]{1,18}) ([0-9]{1,18})" % (BEGAN, TIMED))  # `!began 1830 7748`
_MOST_BEGAN_BYTES = 64
_MICROSECOND = 1e-6


def began(first_line: bytes) -> tuple[float, float] | None:
    """Return a sandbox's report of its program's begin; None if the first line is another message.

    The values: CPU seconds of the sandbox until then, and its monotonic clock.
    """
    found = _BEGAN.fullmatch(first_line)
    return None if found is None else (int(found[1]) * _MICROSECOND, int(found[2]) * _MICROSECOND)


class FirstLine:
    """The first line on a program's channel, as its data arrive."""

    def __init__(self) -> None:
        self._data: bytes | None = b""

    def add(self, data: bytes) -> tuple[float, float] | None:
        """Return the values of `began` from the first line, once, with the data which complete the line."""
        if self._data is None:
            return None
        line, is_whole, _ = (self._data + data).partition(b"\n")
        self._data = None if is_whole or len(line) > _MOST_BEGAN_BYTES else line
        return began(line) if is_whole else None


class TimeLimits:
    """Compares a program's times with its limits; all in seconds.

    `cpu` and `wall` (idle time) of a test; `all_cpu` and `all_wall` of all tests together, or None for
    the default.
    """

    def __init__(
        self, cpu: float, wall: float, all_cpu: float | None, all_wall: float | None
    ) -> None:
        self._one = cpu, wall
        self._all = (
            TESTS * cpu if all_cpu is None else all_cpu,
            TESTS * wall if all_wall is None else all_wall,
        )
        self._before = (0.0, 0.0, 0.0, 0.0)  # used by earlier tests
        self._begins = False
        self._away = 0.0  # at the last sample

    def of_preparation(self) -> TimeLimits:
        """Return the limits of the work before a program with these limits."""
        cpu, wall = (max(each, PREPARATION_SECONDS) for each in self._one)
        return TimeLimits(cpu, wall, cpu, wall)

    def begin_test(self) -> None:
        """Begin the next test: its time counts from the next sample."""
        self._begins = True

    def sample(
        self, cpu: float, idle: float, unseen: float = 0.0, away: float = 0.0
    ) -> Literal["cpu_limit", "wall_limit", "unknown"] | None:
        """Return the ending `cpu_limit` or `wall_limit` for these times so far, or None.

        `unseen`: time which cannot be attributed. `away`: idle time in which the service was stopped.
        If this time decides, the ending is `unknown`.
        """
        (one_cpu, one_wall), (all_cpu, all_wall) = self._one, self._all
        # A test that began since may have begun before or after the stop.
        since_test = idle + away - self._before[1] - self._before[3]
        is_unknown = away > self._away and since_test > one_wall
        self._away = away
        if self._begins:
            self._before, self._begins = (cpu, idle, unseen, away), False
        _, before_idle, before_unseen, before_away = self._before
        if (
            self.is_over(cpu)
            or unseen - before_unseen > UNSEEN_TIMES * (one_cpu + one_wall)
            or unseen > UNSEEN_TIMES * (all_cpu + all_wall)
        ):
            return "cpu_limit"
        if idle - before_idle > one_wall or idle > all_wall:
            return "wall_limit"
        since_test = idle + away - before_idle - before_away
        return "unknown" if is_unknown or since_test > one_wall or idle + away > all_wall else None

    def is_over(self, cpu: float) -> bool:
        """Tell whether this CPU time so far is above a limit, for example at the program's end."""
        one_cpu, all_cpu = self._one[0], self._all[0]
        return cpu > all_cpu or (not self._begins and cpu - self._before[0] > one_cpu)


class TurnClock:
    """Turn clock of a program, which has the first turn."""

    def __init__(self) -> None:
        self.ended = 0
        self._rested_seconds = 0.0
        self._taken_seconds = 0.0
        self._since: float | None = None
        self._alone = False
        self._begun = b""  # first byte of the unfinished line

    def data_received(self, data: bytes, *, behind: bool) -> None:
        """Record data from the program; `behind`: the program has unread input."""
        stays = behind or self._alone
        *whole, rest = data.split(b"\n")
        for line in whole:
            if (self._begun or line[:1]) != ASIDE and self._since is None and not stays:
                self.ended += 1
                self._since = time.monotonic()
            self._begun = b""
        self._begun = self._begun or rest[:1]

    def line_sent(self) -> None:
        """Record a line sent to the program."""
        if self._since is not None:
            self._rested_seconds += time.monotonic() - self._since
        self._since = None

    def input_ended(self) -> None:
        """Record the end of input: from now on the program waits for no peer."""
        self.line_sent()
        self._alone = True

    def rested_seconds(self) -> float:
        """Return total seconds of the peer's turns so far. Callable from any thread."""
        since = self._since
        return self._rested_seconds + (0.0 if since is None else time.monotonic() - since)

    def take_idle_seconds(self) -> float:
        """Return seconds of the peer's turns since the previous call."""
        rested = self.rested_seconds() - self._taken_seconds
        self._taken_seconds += rested
        return rested
