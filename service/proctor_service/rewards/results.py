"""Results of /reward as outcomes: the results judged by another replica."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

from proctor_client.wire import (
    CacheResult,
    ControlOutcome,
    Integrity,
    Level,
    RepositoryResult,
    Result,
    Scoring,
    Verdict,
)
from proctor_service.errors import InvalidTask, JudgeFailed
from proctor_service.http.responses import Line
from proctor_service.judge.submission import Judgement
from proctor_service.outcomes import Item, Outcome
from proctor_service.sandbox.interface import Usage


def recalled(item: Item, line: Line) -> tuple[Item, Outcome] | None:
    """Return an item with the other replica's id, and its outcome there; None for an unknown line."""
    try:
        result = Result.model_validate(json.loads(line.json))
    except ValueError:
        return None
    item = replace(item, evaluation_id=result.evaluation_id)
    cache: CacheResult = "hit" if result.cache == "hit" else "miss"
    seconds = result.usage.queue_seconds
    if result.error is not None:
        kind = InvalidTask if result.error.reason == InvalidTask.reason else JudgeFailed
        failure = kind(result.error.message)
        return item, Outcome(failure=failure, queue_seconds=seconds, cache=cache)
    judgement = judgement_of(result)
    if judgement is None:
        return None
    return item, Outcome(judgement, result.reward, None, seconds, cache)


def judgement_of(result: Result, scoring: Scoring = "all") -> Judgement | None:
    """Return the judgement in a result; None for an error, or for values of another version.

    `scoring`: of the submission, for the score of a repository.
    """
    has_verdict = result.verdict in get_args(Verdict)
    fits = result.integrity in get_args(Integrity) and result.level in (None, *get_args(Level))
    fits = fits and result.negative_control in (None, *get_args(ControlOutcome))
    if not (has_verdict and fits):
        return None
    tests, usage = result.tests, result.usage
    return Judgement(
        result.verdict,  # type: ignore[arg-type]
        tests.passed,
        tests.total,
        tuple(tests.failures),
        result.message,
        result.stdout,
        result.stderr,
        result.truncated,
        result.exit_code,
        result.integrity,  # type: ignore[arg-type]
        result.level,  # type: ignore[arg-type]
        tuple(result.hack_signals),
        result.negative_control,  # type: ignore[arg-type]
        Usage(
            usage.cpu_seconds,
            usage.wall_seconds,
            usage.peak_memory_mb,
            compile_seconds=usage.compile_seconds,
            control_seconds=usage.control_seconds,
        ),
        result.sandbox_id,
        score=_share_of(result.repository, result.verdict, scoring),
        repository=result.repository,
    )


def _share_of(
    repository: RepositoryResult | None, verdict: str | None, scoring: Scoring
) -> float | None:
    """Return the score of a repository by its numbers of tests; None elsewhere."""
    if repository is None or scoring != "fraction" or verdict == "passed":
        return None
    first, second = repository.fail_to_pass, repository.pass_to_pass
    if not first.total or second.failed or second.passed < second.total:
        return 0.0
    return 1 - (first.total - first.passed) / first.total
