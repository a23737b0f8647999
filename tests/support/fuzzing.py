"""How much is fuzzed, and the count of it.

`make test` tries a tenth of the cases, the same ones each time. With PROCTOR_FUZZ=20, as `make fuzz` has it,
there are twenty times as many cases, and others each time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import HealthCheck, Phase, settings

SLOWEST_SECONDS = 60.0
_PART_OF_EACH_RUN = 0.1


def cases(count: int) -> settings:
    """Return settings for a part or a multiple of so many cases."""
    chosen = os.environ.get("PROCTOR_FUZZ")
    times = float(chosen) if chosen else _PART_OF_EACH_RUN
    return settings(
        max_examples=max(1, round(count * times)),
        derandomize=not chosen,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


class ReplayCounts:
    """Counts cases, and remembers the one that took longest."""

    def __init__(self) -> None:
        self.count = 0
        self._slowest = (0.0, "")

    def __str__(self) -> str:
        seconds, what = self._slowest
        return f"fuzzing: {self.count:,} cases; the slowest took {seconds:.2f} s: {what[:200]}"

    @contextmanager
    def case(self, what: object) -> Iterator[None]:
        """Around one case."""
        self.count += 1
        begun = time.perf_counter()
        yield
        seconds = time.perf_counter() - begun
        if seconds > self._slowest[0]:
            self._slowest = seconds, repr(what)

    def check(self) -> None:
        """Asserts that no case took for ever."""
        assert self._slowest[0] < SLOWEST_SECONDS, str(self)
