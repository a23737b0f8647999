"""Limits of one test and of all tests: what they say of the times of a program, sample by sample."""

from __future__ import annotations

from typing import Any

import pytest

from proctor_service.sandbox.linux.time_limits import PREPARATION_SECONDS, FirstLine, TimeLimits

BEGIN = "begin"
Event = str | tuple[float, ...]


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
        # Idle time while the service was stopped decides nothing, if it makes a difference.
        ([(0.0, 1.0, 0.0, 0.9)], None),
        ([(0.0, 1.0, 0.0, 1.1)], "unknown"),
        ([(0.0, 2.1, 0.0, 60.0)], "wall_limit"),
        ([(1.1, 0.0, 0.0, 60.0)], "cpu_limit"),
        ([(0.0, 1.0, 0.0, 0.9), BEGIN, (0.0, 1.0, 0.0, 1.0), (0.0, 1.9, 0.0, 2.0)], None),
        ([(0.0, 1.0, 0.0, 0.9), BEGIN, (0.0, 1.0, 0.0, 1.0), (0.0, 2.1, 0.0, 2.0)], "unknown"),
        ([(0.0, 1.0, 0.0, 0.9), BEGIN, (0.0, 1.0, 0.0, 1.1)], "unknown"),
        ([(0.0, 1.0, 0.0, 0.9), BEGIN, BEGIN, (0.0, 2.9, 0.0, 0.9)], None),
        ([(0.0, 1.0, 0.0, 0.9), BEGIN, (0.0, 1.0, 0.0, 5.1)], "unknown"),
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


def test_the_work_before_a_program_has_a_limit_of_its_own() -> None:
    of_preparation = TimeLimits(1.0, 2.0, 3.5, 6.0).of_preparation()
    assert of_preparation.sample(PREPARATION_SECONDS, PREPARATION_SECONDS) is None
    assert of_preparation.sample(PREPARATION_SECONDS + 0.1, 0.0) == "cpu_limit"
    assert of_preparation.sample(0.0, PREPARATION_SECONDS + 0.1) == "wall_limit"
    longer = TimeLimits(2 * PREPARATION_SECONDS, 2.0, None, None).of_preparation()
    assert longer.sample(2 * PREPARATION_SECONDS, 0.0) is None


SAID = b"!began 1830000 77482910466\n"
BEGAN = pytest.approx((1.83, 77482.910466))


@pytest.mark.parametrize(
    ("pieces", "found"),
    [
        ([SAID], [BEGAN]),
        ([SAID + SAID], [BEGAN]),
        ([SAID, SAID, b"x\n"], [BEGAN, None, None]),
        ([SAID[:9], SAID[9:-1], SAID[-1:]], [None, None, BEGAN]),
        # Once another line was the first, none can move the beginning.
        ([b'["unfit","x"]\n', SAID], [None, None]),
        ([b"\n" + SAID], [None]),
        ([b"x" * 100, SAID], [None, None]),
        *(
            [[line], [None]]
            for line in (b"!began\n", b"!began 1\n", b"!began -1 2\n", b"!began 1 2 \n")
        ),
    ],
)
def test_a_program_begins_with_the_first_line_alone(pieces: list[bytes], found: list[Any]) -> None:
    first_line = FirstLine()
    assert [first_line.add(each) for each in pieces] == found


def test_an_end_between_two_samples_counts_what_is_known_of_the_last_test() -> None:
    limits = TimeLimits(1.0, 1.0, 3.0, 3.0)
    assert [limits.is_over(seconds) for seconds in (1.0, 1.1)] == [False, True]
    limits.begin_test()
    assert [limits.is_over(seconds) for seconds in (2.9, 3.1)] == [False, True]
    limits.sample(1.5, 0.0)
    assert [limits.is_over(seconds) for seconds in (2.4, 2.6)] == [False, True]
