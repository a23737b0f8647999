"""The weights of running sandboxes."""

from __future__ import annotations

from collections import Counter

import pytest

from proctor_service.sandbox.local.cgroups import AWAKE
from proctor_service.sandbox.local.core_shares import CoreShares, Owner

LONG: Owner = ("t", "long")
SHORT: Owner = ("t", "short")
OTHER: Owner = ("u", "other")
MANY_SWEEPS = 40


def parts(*sweeps: dict[Owner, int]) -> dict[Owner, float]:
    """The weight of each owner's program after these sweeps, as a part of the largest one."""
    shares = CoreShares()
    for running in sweeps:
        shares.update(running)
    return {owner: shares.weights.get(owner, AWAKE) / AWAKE for owner in sweeps[-1]}


@pytest.mark.parametrize(
    ("running", "expected"),
    [
        ({SHORT: 1}, {SHORT: 1.0}),
        ({SHORT: 100}, {SHORT: 1.0}),  # alone: nothing to change
        ({LONG: 8, SHORT: 4}, {LONG: 0.5, SHORT: 1.0}),  # half of the cores for each
        ({LONG: 3, SHORT: 3}, {LONG: 1.0, SHORT: 1.0}),
        ({LONG: 100, SHORT: 1}, {LONG: 0.25, SHORT: 1.0}),  # nothing below a quarter
        ({LONG: 2, SHORT: 2, OTHER: 2}, {LONG: 0.5, SHORT: 0.5, OTHER: 1.0}),  # halves by tenant
        ({LONG: 1, OTHER: 1}, {LONG: 1.0, OTHER: 1.0}),
    ],
)
def test_each_job_has_its_part_whatever_the_number_of_its_programs(
    running: dict[Owner, int], expected: dict[Owner, float]
) -> None:
    assert parts(running) == expected


def test_a_number_that_comes_and_goes_counts_as_its_average() -> None:
    steady = {LONG: 4}
    found = parts(*[{**steady, SHORT: 4}, {**steady, SHORT: 0}] * MANY_SWEEPS)
    assert found[SHORT] == 1.0
    assert found[LONG] in (0.375, 0.5)  # four beside two on average


def test_a_job_that_has_ended_has_no_part() -> None:
    shares = CoreShares()
    shares.update({LONG: 8, SHORT: 4})
    for _ in range(MANY_SWEEPS):
        shares.update(Counter({LONG: 8}))
    assert shares.weights.get(LONG, AWAKE) == AWAKE
