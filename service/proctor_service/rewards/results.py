"""Results of /reward: outcomes as lines of an answer, and lines of another replica as outcomes."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from typing import Any, get_args

from proctor_client.wire import (
    MAX_FAILURES,
    CacheResult,
    ControlOutcome,
    Integrity,
    Level,
    RepositoryResult,
    Result,
    Scoring,
    Verdict,
)
from proctor_service.errors import Cancelled, Failure, InvalidTask, JudgeFailed
from proctor_service.http.json import encode
from proctor_service.http.responses import Line
from proctor_service.judge.submission import Judgement, Submission, integrity_of
from proctor_service.outcomes import Item, NoCode, Outcome
from proctor_service.sandbox.interface import Usage

log = logging.getLogger(__name__)

OUTPUT_CHARACTERS = 32 << 20
"""Output in all results of a request: a policy that prints much must not fill the service's memory."""


@dataclass(frozen=True, slots=True)
class RequestItem:
    """Submission of a request: the fields to echo, and the item for the evaluator."""

    index: int
    id: str | None
    group: str | None
    item: Item


@dataclass(slots=True)
class Lines:
    """Lines of a batch. `characters_left`: room for the output of further results."""

    degraded: tuple[str, ...]
    characters_left: int = OUTPUT_CHARACTERS

    def line(self, item: RequestItem, outcome: Outcome | BaseException) -> Line:
        """Return the result of an item, without its output if this is too much."""
        if isinstance(outcome, Cancelled):
            outcome = Outcome(failure=outcome)
        elif isinstance(outcome, BaseException):
            evaluation_id = item.item.evaluation_id
            log.error("an item failed", exc_info=outcome, extra={"evaluation_id": evaluation_id})
            message = f"a fault of the service; its log has it under {evaluation_id}"
            outcome = Outcome(failure=JudgeFailed(message))
        judgement = outcome.judgement
        if judgement is not None:
            size = len(judgement.stdout) + len(judgement.stderr)
            if size <= self.characters_left:
                self.characters_left -= size
            else:
                judgement = replace(judgement, stdout="", stderr="", truncated=True)
                outcome = replace(outcome, judgement=judgement)
        return line(item, outcome, self.degraded)


def line(item: RequestItem, outcome: Outcome, degraded: tuple[str, ...]) -> Line:
    """Return the result of a submission as a plain dict, encoded once.

    A pydantic model for each of a thousand results would cost more than judging some of them. A test
    checks the dicts against the wire's models.
    """
    judgement, failure = outcome.judgement, outcome.failure
    if outcome.peer_degraded is not None:
        degraded = outcome.peer_degraded
    if failure is None and (judgement is None or outcome.reward is None):
        failure = JudgeFailed("the judge said nothing")
    if failure is not None or judgement is None:
        failure = failure or JudgeFailed("no judgement")
        judgement, reward, verdict = _nothing(item.item.submission), None, None
    else:
        reward, verdict = outcome.reward, judgement.verdict
    usage, repository = judgement.usage, judgement.repository
    failures = judgement.failures[:MAX_FAILURES]
    body = {
        "index": item.index,
        "id": item.id,
        "group": item.group,
        "evaluation_id": item.item.evaluation_id,
        "reward": reward,
        "verdict": verdict,
        "error": None if failure is None else error_body(failure),
        "tests": {
            "passed": judgement.passed,
            "total": judgement.total,
            "failures": [
                {"index": each.index, "test": each.test, "message": each.message}
                for each in failures
            ],
        },
        "message": judgement.message,
        "stdout": judgement.stdout,
        "stderr": judgement.stderr,
        "truncated": judgement.truncated,
        "exit_code": judgement.exit_code,
        "integrity": judgement.integrity,
        "level": judgement.level,
        "hack_signals": list(judgement.hack_signals),
        "negative_control": judgement.negative_control,
        "usage": {
            "cpu_seconds": round(usage.cpu_seconds, 6),
            "wall_seconds": round(usage.wall_seconds, 6),
            "queue_seconds": round(outcome.queue_seconds, 6),
            "peak_memory_mb": round(usage.peak_memory_mb, 3),
            "compile_seconds": round(usage.compile_seconds, 6),
            "control_seconds": round(usage.control_seconds, 6),
        },
        "cache": outcome.cache,
        "sandbox_id": judgement.sandbox_id,
        "environment": item.item.submission.environment,
        "degraded": degraded,
        "repository": None if failure or not repository else repository.model_dump(),
    }
    return Line(encode(body), reward, verdict, failure is not None and failure.retryable)


def _nothing(submission: Submission | NoCode) -> Judgement:
    """Return the fields of an item without a verdict."""
    if isinstance(submission, NoCode):
        return Judgement("failed", integrity=submission.integrity)
    return Judgement("failed", integrity=integrity_of(submission.grader))


def error_body(failure: Failure) -> dict[str, Any]:
    """Return the error of an item in its wire form."""
    return {
        "reason": failure.reason,
        "message": failure.message,
        "retryable": failure.retryable,
    }


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
