"""Which wall time counts as idle: only sleep that the kernel's figures confirm."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from proctor_service.sandbox.local.absence import Absence
from proctor_service.sandbox.local.idle import IdleClock, Sample, ThreadTimes

Times = tuple[float, float, str]
"""Seconds run, seconds waited for a core, and the state."""


def sample(at: float, *threads: Times, throttled: float = 0.0) -> Sample:
    """What a look finds at that second. Threads are numbered from 1."""
    found = {
        number: ThreadTimes(ran, waited, state == "R", state == "D")
        for number, (ran, waited, state) in enumerate(threads, 1)
    }
    cpu = sum(ran for ran, _, _ in threads)
    return Sample(at, at, found, cpu, throttled)


def idle_seconds(samples: Iterable[Sample]) -> float:
    """How much of the time is settled as idle."""
    clock = IdleClock(Sample(0.0, 0.0, {}), is_counted=True)
    return sum(clock.account(each).idle_seconds for each in samples)


def slept(second: int, exchanges: int) -> Sample:
    """A second of sleep, while the service waits for a core for most of it."""
    asleep = sample(second, (0.1, 0.0, "S"))
    return replace(asleep, exchanges=exchanges, service_seconds=0.9 * second)


HUNDRED = range(1, 101)
# what a program does → the looks at it, and the least and the most that is settled as idle, in seconds
PROGRAMS: dict[str, tuple[list[Sample], float, float]] = {
    "sleeps": ([sample(s, (0.1, 0.0, "S")) for s in range(1, 11)], 9.9, 9.9),
    "waits for a core, however long": (
        [*(sample(s, (0.1, 0.0, "R")) for s in range(1, 1000)), sample(1000, (0.2, 999.8, "S"))], 0.0, 0.001),
    "short turns between long waits": (
        [sample(s, (0.004 * s, 0.996 * s, "R")) for s in range(1, 1000)], 0.0, 0.001),
    "throttled": ([sample(s, (s / 2, 0.0, "S"), throttled=s / 2) for s in range(1, 100)], 0.0, 0.001),
    "sleeps while others are throttled": (
        [sample(s, (0.1, 0.0, "S"), throttled=s / 2) for s in HUNDRED], 98.0, 100.0),
    "looks runnable at every look, which takes as much as it hides": (
        [sample(s, (0.02 * s, 0.0, "R")) for s in HUNDRED], 94.0, 100.0),
    "one thread starves, and keeps what others slept open": (
        [sample(s, (0.1, 0.0, "S"), (0.1, 0.0, "R")) for s in range(1, 51)], 0.0, 0.0),
    "waits for a service that itself waits for a core": ([slept(s, s) for s in HUNDRED], 9.9, 9.9),
    "sleeps while a service that it asks for nothing waits": ([slept(s, 7) for s in HUNDRED], 98.0, 100.0),
}  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_only_sleep_is_idle(program: str) -> None:
    samples, least, most = PROGRAMS[program]
    assert least - 1e-6 <= idle_seconds(samples) <= most + 1e-6


def test_a_crowd_of_threads_is_settled_though_some_wait_at_every_look() -> None:
    crowd = [
        sample(s, *[((s + n) // 64 * 0.5, (s + n) // 64 * 60.0, "R") for n in range(64)])
        for s in range(1, 640)
    ]
    clock = IdleClock(Sample(0.0, 0.0, {}), is_counted=True)
    assert sum(clock.account(each).seconds for each in crowd) > 500


def test_a_thread_that_ended_while_it_waited_leaves_time_that_nobody_can_tell() -> None:
    clock = IdleClock(Sample(0.0, 0.0, {}), is_counted=True)
    parts = [
        clock.account(sample(1, (0.0, 0.0, "S"))),
        clock.account(sample(2, (0.0, 0.0, "S"), (0.0, 0.0, "R"))),
        clock.account(sample(3, (0.0, 0.0, "S"))),
    ]
    assert sum(part.idle_seconds for part in parts) == 1.0
    assert sum(part.unseen_seconds for part in parts) == 2.0


def test_an_unreadable_figure_of_the_service_makes_no_program_idle() -> None:
    start = replace(Sample(0.0, 0.0, {}), service_seconds=500.0)
    clock = IdleClock(start, is_counted=True)
    found = clock.account(replace(sample(1, (0.1, 0.0, "S")), exchanges=1, service_seconds=0.0))
    assert found.idle_seconds <= 1.0
    assert found.unseen_seconds >= 0.0


def test_sleep_in_which_the_service_was_stopped_is_told_apart() -> None:
    stopped = replace(sample(60, (0.1, 0.0, "S")), away_seconds=58.0)
    after = replace(sample(61, (0.1, 0.0, "S")), away_seconds=58.0)
    clock = IdleClock(Sample(0.0, 0.0, {}), is_counted=True)
    parts = [clock.account(each) for each in (sample(1, (0.1, 0.0, "S")), stopped, after)]
    assert sum(part.idle_seconds for part in parts) == pytest.approx(2.9)
    assert sum(part.away_seconds for part in parts) == pytest.approx(58.0)


def test_only_pauses_that_are_neither_work_nor_the_monitor_s_own_count_as_absence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    absence = Absence()
    for now, active_seconds in ((0.0, 0.0), (0.5, 0.01), (10.5, 10.0), (70.5, 10.1)):
        monkeypatch.setattr("time.monotonic", lambda now=now: now)
        monkeypatch.setattr(absence, "_read", lambda found=active_seconds: found)
        absence.note_presence()
    assert absence.seconds == pytest.approx(59.9)
    assert absence.seconds_now() == pytest.approx(59.9)
    monkeypatch.setattr("time.monotonic", lambda: 72.5)
    assert absence.seconds_now() == pytest.approx(61.9)


def test_an_unreadable_figure_of_the_service_is_no_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    absence = Absence()
    for now, active_seconds in ((0.0, 500.0), (0.1, None), (0.2, 500.1), (60.2, 500.2)):
        monkeypatch.setattr("time.monotonic", lambda now=now: now)
        monkeypatch.setattr(absence, "_read", lambda found=active_seconds: found)
        absence.note_presence()
        assert absence.active_seconds >= 500.0
    assert absence.seconds == pytest.approx(59.9)  # the pause after the gap
