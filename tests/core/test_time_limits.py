"""Limits of one test and of all tests: what they say of the times of a program, sample by sample."""

from __future__ import annotations

import pytest

from proctor_service.sandbox.linux.time_limits import TimeLimits

BEGIN = "begin"
Event = str | tuple[float, float] | tuple[float, float, float]


@pytest.mark.parametrize(
    ("events", "ending"),
    [
        ([(0.9, 0.9), (1.0, 2.0)], None),
        ([(0.9, 0.0), (1.1, 0.0)], "cpu_limit"),
        ([(0.0, 1.9), (0.0, 2.1)], "wall_limit"),
        # A second test has its own time, which counts from its first sample.
        ([(0.9, 1.9), BEGIN, (1.5, 3.0), (2.4, 4.9)], None),
        ([(0.9, 0.0), BEGIN, (1.5, 0.0), (2.6, 0.0)], "cpu_limit"),
        ([(0.0, 1.9), BEGIN, (0.0, 3.0), (0.0, 5.1)], "wall_limit"),
        # Several tests between two samples.
        ([(0.9, 0.0), BEGIN, BEGIN, BEGIN, (3.4, 0.0), (3.5, 0.0)], None),
        # All tests together, however many there are.
        ([(0.9, 0.0), BEGIN, (1.8, 0.0), BEGIN, (2.7, 0.0), BEGIN, (3.6, 0.0)], "cpu_limit"),
        ([BEGIN, (0.0, 2.9), BEGIN, (0.0, 5.8), BEGIN, (0.0, 6.1)], "wall_limit"),
        # Time that is nobody's, three times as much as both limits.
        ([(0.0, 0.0, 8.9)], None),
        ([(0.0, 0.0, 9.1)], "cpu_limit"),
        ([(0.0, 0.0, 8.9), BEGIN, (0.0, 0.0, 17.0), (0.0, 0.0, 25.9)], None),
        ([(0.0, 0.0, 8.9), BEGIN, (0.0, 0.0, 17.0), (0.0, 0.0, 26.1)], "cpu_limit"),
    ],
)
def test_each_test_has_its_own_time_within_that_of_all(
    events: list[Event], ending: str | None
) -> None:
    limits = TimeLimits(1.0, 2.0, 3.5, 6.0)
    found = []
    for event in events:
        if isinstance(event, str):
            limits.begin_test()
        else:
            found.append(limits.sample(*event))
    assert found == [*([None] * (len(found) - 1)), ending]


def test_an_end_between_two_samples_counts_what_is_known_of_the_last_test() -> None:
    limits = TimeLimits(1.0, 1.0, 3.0, 3.0)
    assert [limits.is_over(seconds) for seconds in (1.0, 1.1)] == [False, True]
    limits.begin_test()
    assert [limits.is_over(seconds) for seconds in (2.9, 3.1)] == [False, True]
    limits.sample(1.5, 0.0)
    assert [limits.is_over(seconds) for seconds in (2.4, 2.6)] == [False, True]
