"""Evaluator: admit an item, lease a sandbox, judge the submission, compute verdict and reward.

A peer may have judged an item that waited (`features/replicas/spreading.py`); its outcome then comes with the
ticket.

Start reading here. The evaluator is independent of backends, routes and graders. The result is
either a judgement with its reward or the failure.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from proctor_client.wire import CacheResult, Extract, Integrity, Priority, Scoring
from proctor_service.errors import Failure, HandedBack, JudgeFailed
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import DEFAULT, PAYER, Backend, Sandboxes
from proctor_service.scheduling.queue import FairQueue, attempted
from proctor_service.scheduling.result_cache import Cache

log = logging.getLogger(__name__)
texts_log = logging.getLogger(f"{__name__}.texts")
"""Logger for the text and output of submissions.

The separate name lets a log collector drop these records.
"""

LONGEST_LOGGED_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True)
class NoCode:
    """Completion without code. `tests`: number of tests that the completion fails."""

    tests: int = 0
    message: str = "No code was found in the completion."
    environment: str = DEFAULT
    integrity: Integrity = "separated"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a submission comes from, for the journal.

    `completion`: the text that the submission was extracted from by the rule `extract`. `task`: the
    group of a submission, or the task of a rollout. `step`: the step of the training run. `prompt`: JSON
    of what the policy saw, or an empty text.
    """

    completion: str = ""
    extract: Extract = "none"
    submission_id: str | None = None
    task: str | None = None
    step: int | None = None
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """Submission in the evaluator, with its owner and deadline (monotonic clock).

    `cache_key`: hash of every input to the verdict; None turns the cache off. `begun`: the item
    belongs to begun work, which continues while the service drains. `rollout_id` and
    `graded_sandbox_id` are for the logs: the rollout of the item, and the sandbox with the judged
    state. `portable`: a peer may judge the item, which has come from no peer. `traceparent`: span of
    the item, for a peer. `origin`: None for an item of a peer, which has it in its journal.
    """

    evaluation_id: str
    submission: Submission | NoCode
    tenant: str
    job: str
    deadline: float
    cache_key: bytes | None = None
    tags: tuple[str, ...] = ()
    priority: Priority = "training"
    begun: bool = False
    rollout_id: str | None = None
    graded_sandbox_id: str | None = None
    portable: bool = False
    traceparent: str = ""
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Either a judgement with its reward, or the failure.

    `peer_degraded`: missing protections of the peer that judged the item; None without a peer.
    """

    judgement: Judgement | None = None
    reward: float | None = None
    failure: Failure | None = None
    queue_seconds: float = 0.0
    cache: CacheResult = "miss"
    peer_degraded: tuple[str, ...] | None = None


Judge = Callable[[Submission, Sandboxes], Awaitable[Judgement]]
Evaluate = Callable[[Item], Awaitable[Outcome]]


class Evaluator:
    """Evaluator of items: connects queue, cache and judge."""

    def __init__(
        self, judge: Judge, backend: Backend, queue: FairQueue, cache: Cache[Outcome]
    ) -> None:
        self._judge = judge
        self._backend = backend
        self._queue = queue
        self._cache = cache

    async def evaluate(self, item: Item) -> Outcome:
        """Return the judgement and reward of the item, or the failure.

        Only a cancellation raises.
        """
        submission = item.submission
        if isinstance(submission, NoCode):
            judgement = Judgement(
                "no_code",
                total=submission.tests,
                message=submission.message,
                integrity=submission.integrity,
            )
            outcome = Outcome(judgement, 0.0)
        else:
            work = partial(self._in_turn, item, submission)
            try:
                outcome, how = await self._cache.once(item.cache_key, item.deadline, work)
                if how != "miss":
                    outcome = replace(outcome, cache=how, queue_seconds=0.0)
            except Failure as failure:
                outcome = Outcome(failure=failure)
        if log.isEnabledFor(logging.DEBUG):  # up to thousands of lines per second
            _log_details(item, outcome)
        return outcome

    async def _in_turn(self, item: Item, submission: Submission) -> Outcome:
        """Wait for a ticket, judge the submission before the deadline, and compute the reward.

        A submission that its judge hands back waits for another ticket.
        """
        try:
            asked = self._queue.clock()
            timed = replace(submission, deadline=item.deadline, asked_at=asked)
            judge = partial(self._judge, timed, self._backend)
            whose = (item.tenant, item.job)
            PAYER.set(whose)
            work = item if item.portable and submission.state is None else None
            waited_seconds = 0.0
            while True:
                turn = self._queue.admit(*whose, item.deadline, item.priority, item.begun, work)
                try:
                    async with turn as ticket:
                        if isinstance(ticket.elsewhere, Outcome):
                            seconds = ticket.queue_seconds + ticket.elsewhere.queue_seconds
                            return replace(ticket.elsewhere, queue_seconds=waited_seconds + seconds)
                        judgement = await attempted(
                            judge, ticket, item.evaluation_id, item.deadline
                        )
                    break
                except HandedBack:
                    waited_seconds = self._queue.clock() - asked
            if judgement.unreported:
                log.warning(
                    "a program ended without a report: %s",
                    judgement.unreported,
                    extra={"evaluation_id": item.evaluation_id},
                )
            worth = reward(judgement, submission.scoring)
            queue_seconds = waited_seconds + ticket.queue_seconds
            return Outcome(judgement, worth, queue_seconds=queue_seconds)
        except Failure:
            raise
        except Exception as error:
            log.exception("the judge failed", extra={"evaluation_id": item.evaluation_id})
            message = f"a fault of the service; its log has it under {item.evaluation_id}"
            raise JudgeFailed(message) from error


def reward(judgement: Judgement, scoring: Scoring) -> float:
    """Return the reward of a judgement: the only place where a verdict becomes a number.

    `all`: 1.0 when the verdict is `passed`, else 0.0. `fraction`: tests passed over all tests.

    A grader without countable tests (`exec`, `command`) counts as one test. The verifier of a Harbor
    task gives the reward itself.
    """
    if judgement.verifier_reward is not None:
        return judgement.verifier_reward
    if judgement.verdict == "passed":
        return 1.0
    if scoring == "all" or judgement.total == 0:
        return 0.0
    # A verdict other than `passed` never earns the full reward, even if each test passed before
    # the program's failure.
    return min(judgement.passed, judgement.total - 1) / judgement.total


def _log_details(item: Item, outcome: Outcome) -> None:
    """Log the outcome without any text of the submission; log the texts in a separate record."""
    judgement = outcome.judgement or Judgement("failed")
    submission = None if isinstance(item.submission, NoCode) else item.submission
    usage = judgement.usage
    fields = {
        "evaluation_id": item.evaluation_id,
        "rollout_id": item.rollout_id,
        "graded_sandbox_id": item.graded_sandbox_id,
        "sandbox_id": judgement.sandbox_id,
        "tenant": item.tenant,
        "job": item.job,
        "tags": list(item.tags),
        "grader": None if submission is None else submission.grader.kind,
        "verdict": None if outcome.judgement is None else judgement.verdict,
        "error": None if outcome.failure is None else outcome.failure.reason,
        "reward": outcome.reward,
        "exit_code": judgement.exit_code,
        "stdout_bytes": len(judgement.stdout.encode("utf-8", "surrogatepass")),
        "stderr_bytes": len(judgement.stderr.encode("utf-8", "surrogatepass")),
        "cpu_seconds": round(usage.cpu_seconds, 6),
        "wall_seconds": round(usage.wall_seconds, 6),
        "queue_seconds": round(outcome.queue_seconds, 6),
        "cache": outcome.cache,
        "at_peer": None if outcome.peer_degraded is None else True,
    }
    log.debug("evaluated", extra={k: v for k, v in fields.items() if v is not None})
    said = {
        "source": "" if submission is None else submission.source,
        "outcome": judgement.message,
        "stdout": judgement.stdout,
        "stderr": judgement.stderr,
    }
    cut = {name: text[:LONGEST_LOGGED_CHARACTERS] for name, text in said.items() if text}
    texts_log.debug("texts", extra={"evaluation_id": item.evaluation_id, **cut})


def outcome_bytes(outcome: Outcome) -> int:
    """Return the approximate memory of an outcome in bytes, for the limit of the cache."""
    judgement = outcome.judgement
    if judgement is None:
        return 256
    texts = len(judgement.message) + len(judgement.stdout) + len(judgement.stderr)
    return 1024 + texts + sum(len(f.test) + len(f.message) + 128 for f in judgement.failures)
