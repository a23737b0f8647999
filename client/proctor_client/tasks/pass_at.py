"""pass@k of a task: the chance that one of k submissions passes."""

from __future__ import annotations

from math import comb

PASS_AT = (1, 2, 4, 8, 16, 32, 64)


def pass_chance(judged: int, passed: int, k: int) -> float:
    """Return the chance that at least one of `k` <= `judged` submissions of a task passes.

    It is the unbiased estimate of pass@k (Chen et al., 2021, "Evaluating Large Language Models
    Trained on Code", equation 1).
    """
    return 1 - comb(judged - passed, k) / comb(judged, k)
