"""Which long runners get the cores."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from proctor_service.sandbox.local.cgroups import LONG_RUNNING, SET_ASIDE
from proctor_service.sandbox.local.monitor import Monitor


class LongRunner:
    """A sandbox that has used so many seconds of CPU time."""

    def __init__(self, cpu_seconds: float) -> None:
        self.seen: Any = SimpleNamespace(
            is_long_runner=True, set_aside=False, cpu_seconds=cpu_seconds
        )
        self.weight = 0.0

    def set_weight(self, weight: float) -> None:
        """See `Monitored`."""
        self.weight = weight


@pytest.fixture
def monitor() -> Monitor:
    """A monitor that samples nothing."""
    return Monitor()


def weights(monitor: Monitor, runners: list[LongRunner]) -> list[float]:
    """The weight of each, on two cores."""
    monitor._seen = {runner: runner.seen for runner in runners}  # type: ignore[misc]
    assert monitor.set_long_runners_aside(2) == len(runners)
    assert [runner.seen.set_aside for runner in runners] == [
        runner.weight == SET_ASIDE for runner in runners
    ]
    return [runner.weight for runner in runners]


def test_of_programs_alike_the_oldest_come_first(monitor: Monitor) -> None:
    runners = [LongRunner(cpu) for cpu in (3.0, 1.0, 0.5, 9.0)]
    assert weights(monitor, runners) == [LONG_RUNNING, LONG_RUNNING, SET_ASIDE, SET_ASIDE]


def test_programs_that_ran_for_hours_hold_up_no_other_for_long(monitor: Monitor) -> None:
    runners = [LongRunner(cpu) for cpu in (4000.0, 5000.0, 0.5, 12.0)]
    assert weights(monitor, runners) == [SET_ASIDE, SET_ASIDE, LONG_RUNNING, LONG_RUNNING]
