"""Query and responses of the journal about jobs: their list, series and figures."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import ConfigDict, Field, JsonValue

from proctor_client.wire.base import Request, Response

_JOB: dict[str, JsonValue] = {
    "job": "run-17",
    "evaluations": 4096,
    "judged": 4090,
    "mean_reward": 0.41,
    "last_step": 120,
    "last_at": "2026-03-14T09:26:53.589793+00:00",
}
_POINT: dict[str, JsonValue] = {
    "step": 120,
    "last_step": 120,
    "count": 64,
    "judged": 63,
    "mean_reward": 0.5,
    "spread": 0.5,
    "verdicts": {"passed": 31, "failed": 32, "error": 1},
}


_FIGURES: dict[str, JsonValue] = {
    "evaluations": 64,
    "judged": 63,
    "mean_reward": 0.5,
    "spread": 0.5,
    "null_share": 0.0156,
    "no_code_share": 0.0,
    "verdicts": {"failed": 32, "passed": 31, "error": 1},
    "tasks": {
        "count": 8,
        "solved_by_nobody": 1,
        "solved_by_everybody": 0,
        "nobody": ["p7"],
        "everybody": [],
    },
    "groups": {"count": 8, "without_spread": 1},
    "pass_at": {"1": 0.49, "2": 0.71, "4": 0.83},
    "signals": {"early_exit": 2},
    "lengths": [
        {"from_characters": 210, "to_characters": 480, "count": 32, "mean_reward": 0.6},
        {"from_characters": 481, "to_characters": 2950, "count": 31, "mean_reward": 0.4},
    ],
    "latest": {"sampled": 64, "in_process_share": 0.0, "flaky_programs": 0, "seconds_p95": 0.4},
    "warnings": ["evaluations with signals of a hack: 2"],
}


class JobSummary(Response):
    """Counts of a job. `mean_reward` is over judged evaluations, or null."""

    job: str
    evaluations: int
    judged: int
    mean_reward: float | None = None
    last_step: int | None = None
    last_at: datetime


class JobList(Response):
    """Answer of GET /jobs: up to 200 jobs, by newest evaluation."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"jobs": [_JOB]}]})

    jobs: list[JobSummary]


class JobQuery(Request):
    """Query of GET /jobs/{job}."""

    by: Literal["step", "time"] = Field(
        "step", description="What a point of the series stands for."
    )


class JobPoint(Response):
    """The evaluations of a step, or of a stretch of time from `at` on.

    A series by step has at most 500 points, each of several steps if there are more; null stands for
    evaluations without a step. `spread`: standard deviation of the rewards. `verdicts`: counts by
    verdict, and `error`.
    """

    step: int | None = Field(None, description="The first step; null by time.")
    last_step: int | None = None
    at: datetime | None = Field(None, description="The beginning; null by step.")
    count: int
    judged: int
    mean_reward: float | None = None
    spread: float | None = None
    verdicts: dict[str, int] = Field({})


class TaskFigures(Response):
    """Tasks with a judged evaluation. `nobody`, `everybody`: up to 20 of their names."""

    count: int = 0
    solved_by_nobody: int = 0
    solved_by_everybody: int = 0
    nobody: list[str] = Field([])
    everybody: list[str] = Field([])


class GroupFigures(Response):
    """Evaluations of a task in a step with at least two judged evaluations."""

    count: int = 0
    without_spread: int = Field(0, description="All of the group got the same reward.")


class LengthFigures(Response):
    """Judged completions with a length in characters from `from_characters` to `to_characters`."""

    from_characters: int
    to_characters: int
    count: int
    mean_reward: float


class LatestFigures(Response):
    """Figures of the newest evaluations, `sampled` in number."""

    sampled: int = 0
    in_process_share: float | None = None
    flaky_programs: int = Field(0, description="Programs with two verdicts from the same tests.")
    length_correlation: float | None = Field(None, description="Of length and reward.")
    queue_seconds_p95: float | None = None
    seconds_p95: float | None = None
    cpu_seconds_p95: float | None = None


class JobFigures(Response):
    """Figures of a job for training.

    Counts, shares, `mean_reward` and `spread` (the standard deviation) are of all its evaluations;
    the rest covers the newest, `latest.sampled` in number. `pass_at`: the share of tasks with a
    passed completion among k, by k. `lengths`: tenths of the completions by their length.
    """

    evaluations: int
    judged: int
    mean_reward: float | None = None
    spread: float | None = None
    null_share: float = Field(0.0, description="Without a reward: the service failed them.")
    no_code_share: float = 0.0
    verdicts: dict[str, int] = Field({})
    tasks: TaskFigures = TaskFigures()
    groups: GroupFigures = GroupFigures()
    pass_at: dict[str, float] = Field({})
    signals: dict[str, int] = Field({})
    lengths: list[LengthFigures] = Field([])
    latest: LatestFigures = LatestFigures()
    warnings: list[str] = Field([])


class JobSeries(Response):
    """Answer of GET /jobs/{job}: a point for each step or time, in their order, and figures."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"job": "run-17", "by": "step", "series": [_POINT], "figures": _FIGURES},
            ]
        }
    )

    job: str
    by: Literal["step", "time"] = "step"
    width_seconds: int | None = Field(None, description="From a time to the next; null by step.")
    series: list[JobPoint]
    figures: JobFigures | None = None
