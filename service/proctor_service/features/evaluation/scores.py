"""Figures of `proctor eval`: pass@k with its confidence, and the results of each task."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor_client.tasks.pass_at import PASS_AT, pass_chance

_Z = 1.959964  # 95 % of a normal distribution lie within so many standard deviations


@dataclass(slots=True)
class TaskScore:
    """Submissions of a task: `judged` with a verdict, `passed` of these, `errors` without one."""

    judged: int = 0
    passed: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class PassAt:
    """Estimate of pass@k as the mean of `tasks` tasks, with a confidence interval of 95 %."""

    k: int
    estimate: float
    low: float
    high: float
    tasks: int


@dataclass(slots=True)
class Scores:
    """Results by task and verdict, with unjudged items counted apart."""

    tasks: dict[str, TaskScore] = field(default_factory=dict)
    verdicts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    rewards: list[float] = field(default_factory=list)

    @property
    def passed(self) -> int:
        """Number of passed submissions."""
        return self.verdicts["passed"]

    @property
    def failed(self) -> int:
        """Number of submissions with another verdict."""
        return self.verdicts.total() - self.passed

    @property
    def judged(self) -> int:
        """Number of submissions with a verdict."""
        return self.verdicts.total()

    @property
    def errors(self) -> int:
        """Number of submissions without a verdict."""
        return self.reasons.total()

    @property
    def solved(self) -> int:
        """Number of tasks with a passed submission."""
        return sum(task.passed > 0 for task in self.tasks.values())

    @property
    def mean_reward(self) -> float | None:
        """Mean of the rewards; None without a reward."""
        return math.fsum(self.rewards) / len(self.rewards) if self.rewards else None

    def add(self, task: str, verdict: str | None, reward: float | None, reason: str | None) -> None:
        """Count a result; `reason`: of its error, or None."""
        score = self.tasks.setdefault(task, TaskScore())
        if reason is not None:
            self.reasons[reason] += 1
            score.errors += 1
            return
        self.verdicts[verdict or "?"] += 1
        self.rewards.append(reward or 0.0)
        score.judged += 1
        score.passed += verdict == "passed"

    def pass_at(self) -> list[PassAt]:
        """Return pass@k for each k up to the submissions of each judged task."""
        judged = [task for task in self.tasks.values() if task.judged]
        least = min((task.judged for task in judged), default=0)
        return [_pass_at(judged, k) for k in PASS_AT if k <= least]

    def report(self) -> dict[str, Any]:
        """Return all figures in JSON form."""
        return {
            "submissions": self.judged + self.errors,
            "judged": self.judged,
            "passed": self.passed,
            "pass_rate": self.passed / self.judged if self.judged else None,
            "mean_reward": self.mean_reward,
            "verdicts": dict(self.verdicts.most_common()),
            "errors": dict(self.reasons.most_common()),
            "tasks": len(self.tasks),
            "tasks_solved": self.solved,
            "pass_at": {
                str(each.k): {
                    "estimate": each.estimate,
                    "low": each.low,
                    "high": each.high,
                    "tasks": each.tasks,
                }
                for each in self.pass_at()
            },
            "by_task": _by_task(self.tasks),
        }


def _by_task(tasks: Mapping[str, TaskScore]) -> list[dict[str, Any]]:
    return [
        {"task_id": name, "judged": task.judged, "passed": task.passed, "errors": task.errors}
        for name, task in tasks.items()
    ]


def _pass_at(tasks: Sequence[TaskScore], k: int) -> PassAt:
    estimate = math.fsum(pass_chance(task.judged, task.passed, k) for task in tasks) / len(tasks)
    return PassAt(k, estimate, *wilson(estimate, len(tasks)), len(tasks))


def wilson(mean: float, count: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a mean of `count` values between 0 and 1.

    The score interval of Wilson (1927), made for values of 0 or 1. Values between these
    vary less, so the interval is rather too wide for them.
    """
    scale = 1 + _Z**2 / count
    middle = (mean + _Z**2 / (2 * count)) / scale
    half = _Z / scale * math.sqrt(mean * (1 - mean) / count + _Z**2 / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)
