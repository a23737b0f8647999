"""pass@k of a task: the chance of a passing submission among k."""

from __future__ import annotations

from math import comb

PASS_AT = (1, 2, 4, 8, 16, 32, 64)


def pass_chance(judged: int, passed: int, k: int) -> float:
    """Return the chance of at least one passing submission among `k` <= `judged` of a task.

    The chance is the unbiased estimate of pass@k (Chen et al., 2021, "Evaluating Large Language Models
    Trained on Code", equation 1).
    """
    return 1 - comb(judged - passed, k) / comb(judged, k)
