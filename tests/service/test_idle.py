"""Which wall time counts as idle: only sleep that the kernel's figures confirm."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from proctor_service.sandbox.local.idle import IdleClock, Sample, ThreadTimes
from proctor_service.sandbox.local.monitor import Absence

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


def test_sleep_counts() -> None:
    samples = [sample(second, (0.1, 0.0, "S")) for second in range(1, 11)]
    assert idle_seconds(samples) == 9.9


def test_a_wait_for_a_core_is_never_idle_however_long_it_lasts() -> None:
    waiting = [sample(second, (0.1, 0.0, "R")) for second in range(1, 1000)]
    over = [sample(1000, (0.2, 999.8, "S"))]
    assert idle_seconds(waiting + over) < 0.001


def test_short_turns_between_long_waits_are_never_idle() -> None:
    samples = [sample(second, (0.004 * second, 0.996 * second, "R")) for second in range(1, 1000)]
    assert idle_seconds(samples) < 0.001


def test_a_throttled_program_is_never_idle() -> None:
    samples = [sample(s, (s / 2, 0.0, "S"), throttled=s / 2) for s in range(1, 100)]
    assert idle_seconds(samples) < 0.001


def test_who_sleeps_is_idle_while_others_are_throttled() -> None:
    samples = [sample(s, (0.1, 0.0, "S"), throttled=s / 2) for s in range(1, 101)]
    assert idle_seconds(samples) > 98


def test_looking_runnable_at_every_look_takes_as_much_as_it_hides() -> None:
    samples = [sample(second, (0.02 * second, 0.0, "R")) for second in range(1, 101)]
    assert idle_seconds(samples) > 94


def test_one_thread_that_starves_keeps_what_others_slept_open() -> None:
    starving = [sample(s, (0.1, 0.0, "S"), (0.1, 0.0, "R")) for s in range(1, 51)]
    assert idle_seconds(starving) == 0.0


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


def test_waits_for_a_service_that_itself_waits_for_a_core_are_not_idle() -> None:
    samples = [
        replace(sample(s, (0.1, 0.0, "S")), exchanges=s, service_seconds=0.9 * s)
        for s in range(1, 101)
    ]
    assert idle_seconds(samples) == pytest.approx(9.9)


def test_a_service_that_waits_for_a_core_excuses_no_program_that_asks_it_for_nothing() -> None:
    samples = [
        replace(sample(s, (0.1, 0.0, "S")), exchanges=7, service_seconds=0.9 * s)
        for s in range(1, 101)
    ]
    assert idle_seconds(samples) > 98


def test_an_unreadable_figure_of_the_service_makes_no_program_idle() -> None:
    start = replace(Sample(0.0, 0.0, {}), service_seconds=500.0)
    clock = IdleClock(start, is_counted=True)
    found = clock.account(replace(sample(1, (0.1, 0.0, "S")), exchanges=1, service_seconds=0.0))
    assert found.idle_seconds <= 1.0
    assert found.unseen_seconds >= 0.0


def test_the_time_of_a_stopped_service_is_not_idle() -> None:
    stopped = replace(sample(60, (0.1, 0.0, "S")), away_seconds=58.0)
    after = replace(sample(61, (0.1, 0.0, "S")), away_seconds=58.0)
    assert idle_seconds([sample(1, (0.1, 0.0, "S")), stopped, after]) == pytest.approx(2.9)


def test_only_pauses_that_are_neither_work_nor_the_monitor_s_own_count_as_absence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    absence = Absence()
    for now, active_seconds in ((0.0, 0.0), (0.5, 0.01), (10.5, 10.0), (70.5, 10.1)):
        monkeypatch.setattr("time.monotonic", lambda now=now: now)
        absence.note_presence(active_seconds)
    assert absence.seconds == pytest.approx(58.9)


def test_an_unreadable_figure_of_the_service_is_no_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    absence = Absence()
    for now, active_seconds in ((0.0, 500.0), (0.1, None), (0.2, 500.1), (60.2, 500.2)):
        monkeypatch.setattr("time.monotonic", lambda now=now: now)
        absence.note_presence(active_seconds)
        assert absence.active_seconds >= 500.0
    assert absence.seconds == pytest.approx(58.9)  # the pause after the gap
