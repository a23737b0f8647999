"""The scoring rule: the only place where a verdict becomes a number."""

from __future__ import annotations

from proctor_client.wire import Scoring
from proctor_service.judge.submission import Judgement


def reward(judgement: Judgement, scoring: Scoring) -> float:
    """Return the reward of a judgement, from 0.0 to 1.0.

    `all`: 1.0 when the verdict is `passed`, else 0.0. `fraction`: tests passed over all tests.
    A grader without countable tests (`exec`, `command`) counts as one test.
    """
    if judgement.verdict == "passed":
        return 1.0
    if scoring == "all" or judgement.total == 0:
        return 0.0
    # A verdict other than `passed` never earns the full reward, even if every test held before
    # the program caused this verdict.
    return min(judgement.passed, judgement.total - 1) / judgement.total
