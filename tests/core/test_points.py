"""Points of subtasks, against the sum that their rules describe."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor_client.wire import Subtask
from proctor_service.judge.graders.points import Points

_CASES = 6
SCORES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=_CASES, max_size=_CASES)


@st.composite
def tasks(draw: st.DrawFn) -> list[Subtask]:
    """Subtasks, of which each may require earlier ones."""
    found = []
    for place in range(draw(st.integers(1, 4))):
        cases = draw(st.lists(st.integers(0, _CASES - 1), min_size=1, max_size=4))
        earlier = st.lists(st.integers(0, place - 1), max_size=2) if place else st.just([])
        points = draw(st.sampled_from([1.0, 3.5, 20.0]))
        found.append(Subtask(points=points, cases=cases, requires=draw(earlier)))
    return found


def by_rules(subtasks: Sequence[Subtask], scores: Sequence[float]) -> float:
    """The share of the points by the rules alone, of all cases."""
    parts: list[float] = []
    for each in subtasks:
        least = min(scores[case] for case in each.cases)
        parts.append(least if all(parts[earlier] == 1 for earlier in each.requires) else 0.0)
    earned = sum(part * each.points for part, each in zip(parts, subtasks, strict=True))
    return earned / sum(each.points for each in subtasks)


@given(tasks(), SCORES, st.permutations(range(_CASES)))
def test_cases_that_earn_nothing_change_nothing(
    subtasks: list[Subtask], scores: list[float], order: list[int]
) -> None:
    """In any order of the cases, without those that can earn nothing any more."""
    points = Points(subtasks, _CASES)
    for case in order:
        if points.may_earn(case):
            points.add(case, scores[case])
    assert points.score == pytest.approx(by_rules(subtasks, scores), abs=1e-12)
    assert (points.score == 1) == all(scores[case] == 1 for each in subtasks for case in each.cases)


def test_cases_that_have_not_run_earn_nothing() -> None:
    points = Points([Subtask(points=1, cases=[0, 1]), Subtask(points=3, cases=[2])], 3)
    points.add(0, 1.0)
    points.add(2, 1.0)
    assert points.score == 0.75


def test_a_score_below_all_points_is_below_one() -> None:
    points = Points([Subtask(points=1e12, cases=[0]), Subtask(points=1e-9, cases=[1])], 2)
    points.add(0, 1.0)
    points.add(1, 0.0)
    assert points.score < 1
