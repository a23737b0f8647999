"""Figures of `proctor eval`: pass@k is the share of draws with a pass, and has an interval."""

from __future__ import annotations

from itertools import combinations

import pytest

from proctor_client.tasks.pass_at import pass_chance
from proctor_service.features.evaluation.scores import Scores, wilson


@pytest.mark.parametrize(("judged", "passed"), [(1, 0), (1, 1), (5, 0), (5, 2), (6, 5), (7, 7)])
def test_the_chance_is_the_share_of_draws_with_a_pass(judged: int, passed: int) -> None:
    outcomes = [True] * passed + [False] * (judged - passed)
    for k in range(1, judged + 1):
        draws = list(combinations(outcomes, k))
        assert pass_chance(judged, passed, k) == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.parametrize(
    ("mean", "count", "low", "high"),
    [
        (0.0, 10, 0.0, 0.2775),
        (1.0, 10, 0.7225, 1.0),
        (0.5, 100, 0.4038, 0.5962),
        (1.0, 1, 0.2065, 1.0),
    ],
)
def test_the_interval_is_the_one_of_wilson(
    mean: float, count: int, low: float, high: float
) -> None:
    assert wilson(mean, count) == pytest.approx((low, high), abs=1e-4)


def test_pass_at_k_needs_k_verdicts_of_each_task_and_counts_no_error() -> None:
    scores = Scores()
    for _ in range(4):
        scores.add("solved", "passed", 1.0, None)
    for verdict in ("passed", "failed", "timeout"):
        scores.add("sometimes", verdict, float(verdict == "passed"), None)
    scores.add("sometimes", None, None, "sandbox_lost")
    scores.add("never judged", None, None, "sandbox_lost")
    assert [(each.k, each.tasks) for each in scores.pass_at()] == [(1, 2), (2, 2)]
    first, second = (each.estimate for each in scores.pass_at())
    assert first == pytest.approx(2 / 3)
    assert second == pytest.approx(5 / 6)
    found = scores.report()
    assert (found["submissions"], found["judged"], found["passed"]) == (9, 7, 5)
    assert (found["tasks"], found["tasks_solved"]) == (3, 2)
    assert found["errors"] == {"sandbox_lost": 2}
    assert found["mean_reward"] == pytest.approx(5 / 7)


def test_without_a_verdict_there_is_no_figure() -> None:
    scores = Scores()
    scores.add("a", None, None, "sandbox_lost")
    found = scores.report()
    assert (found["pass_rate"], found["mean_reward"], found["pass_at"]) == (None, None, {})
