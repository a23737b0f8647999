"""Evaluator: admit an item, lease a sandbox, judge the submission, compute verdict and reward.

Start reading here. The evaluator is independent of backends, routes and graders. The result is
either a judgement with its reward or the failure. A peer may have judged an item that waited
(`Handover` of `scheduling/queue.py`); its outcome then comes with the ticket. Observers are told of each item
and of each attempt of the judge (`observe/observer.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

from proctor_client.wire import Scoring, VerifierGrader
from proctor_service.errors import DeadlinePassed, Failure, HandedBack, JudgeFailed
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.observe.observer import NO_OBSERVERS, ObservedSandboxes, Observer, Observers
from proctor_service.outcomes import Item, NoCode, Outcome
from proctor_service.sandbox.interface import (
    CHARGE,
    DEFAULT,
    PAYER,
    Backend,
    HoldEnvironment,
    Sandboxes,
    hold_nothing,
)
from proctor_service.scheduling.queue import FairQueue, attempted
from proctor_service.scheduling.result_cache import Cache

log = logging.getLogger(__name__)
texts_log = logging.getLogger(f"{__name__}.texts")
"""Logger for the text and output of submissions.

The separate name lets a log collector drop these records.
"""

LONGEST_LOGGED_CHARACTERS = 20_000


Judge = Callable[[Submission, Sandboxes], Awaitable[Judgement]]
Evaluate = Callable[[Item], Awaitable[Outcome]]


Elsewhere = Callable[[Item], Awaitable[Outcome | None]]
"""Returns the outcome from another replica which has the item's image, if one judges it."""


async def nowhere_else(_: Item) -> Outcome | None:
    """Return None: this replica judges all items."""
    return None


class Evaluator:
    """Evaluator of items: connects queue, cache, judge and observers."""

    def __init__(
        self,
        judge: Judge,
        backend: Backend,
        queue: FairQueue,
        cache: Cache[Outcome],
        observers: Observers = NO_OBSERVERS,
        hold: HoldEnvironment = hold_nothing,
        elsewhere: Elsewhere = nowhere_else,
    ) -> None:
        self._elsewhere = elsewhere
        self._hold = hold
        self._judge = judge
        self._backend = backend
        self._queue = queue
        self._cache = cache
        self._observers = observers

    async def evaluate(self, item: Item) -> Outcome:
        """Return the judgement and reward of the item, or the failure.

        Only a cancellation raises.
        """
        observers, begun = self._observers, time.perf_counter()
        if observers.follow_work:
            observers.notify(Observer.item_begun, item)
            if item.portable:
                item = replace(item, traceparent=observers.traceparent())
        submission = item.submission
        try:
            if isinstance(submission, NoCode):
                outcome = _without_code(submission)
            else:
                work = partial(self._in_turn, item, submission)
                if item.cache_key is None:
                    outcome = await work()
                else:
                    outcome, how = await self._cache.once(item.cache_key, item.deadline, work)
                    if how != "miss":
                        outcome = replace(outcome, cache=how, queue_seconds=0.0)
        except Failure as failure:
            outcome = Outcome(failure=failure)
        except BaseException as error:
            observers.notify(Observer.item_interrupted, item, error)
            raise
        if log.isEnabledFor(logging.DEBUG):  # up to thousands of lines per second
            _log_details(item, outcome)
        observers.notify(Observer.item_ended, item, outcome, time.perf_counter() - begun)
        return outcome

    async def _in_turn(self, item: Item, submission: Submission) -> Outcome:
        """Wait for its environment, and then in the queue; judge it, and compute the reward.

        Waiting for an image takes no slot. The deadline counts for all of it. In a fleet, a replica with the
        image judges.
        """
        if submission.environment == DEFAULT:
            return await self._with_environment(item, submission)
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(item.deadline):
                    if item.goes_to_owners and (outcome := await self._elsewhere(item)) is not None:
                        return outcome
                    await stack.enter_async_context(self._hold(submission.environment))
            except TimeoutError:
                message = "the deadline passed before its image was fetched"
                raise DeadlinePassed(message) from None
            return await self._with_environment(item, submission)

    async def _with_environment(self, item: Item, submission: Submission) -> Outcome:
        """Wait for a ticket, judge the submission before the deadline, and compute the reward.

        A submission that its judge hands back waits for another ticket.
        """
        try:
            enqueued_at = self._queue.clock()
            timed = replace(submission, deadline=item.deadline, asked_at=enqueued_at)
            attempt = partial(self._attempt, timed)
            owner = (item.tenant, item.job)
            PAYER.set(owner)
            work = item if item.portable and submission.state is None else None
            waited_seconds = 0.0
            while True:
                turn = self._queue.admit(*owner, item.deadline, item.priority, item.begun, work)
                try:
                    async with turn as ticket:
                        if isinstance(ticket.elsewhere, Outcome):
                            seconds = ticket.queue_seconds + ticket.elsewhere.queue_seconds
                            return replace(ticket.elsewhere, queue_seconds=waited_seconds + seconds)
                        CHARGE.set(ticket.charge)
                        judgement = await attempted(
                            attempt, ticket, item.evaluation_id, item.deadline
                        )
                    break
                except HandedBack:
                    waited_seconds = self._queue.clock() - enqueued_at
            if judgement.unreported:
                log.warning(
                    "a program ended without a report: %s",
                    judgement.unreported,
                    extra={"evaluation_id": item.evaluation_id},
                )
            worth = reward(judgement, submission)
            queue_seconds = waited_seconds + ticket.queue_seconds
            return Outcome(judgement, worth, queue_seconds=queue_seconds)
        except Failure:
            raise
        except Exception as error:
            log.exception("the judge failed", extra={"evaluation_id": item.evaluation_id})
            message = f"a fault of the service; its log has it under {item.evaluation_id}"
            raise JudgeFailed(message) from error

    async def _attempt(self, submission: Submission) -> Judgement:
        """Return the judgement of one attempt. Raises the judge's errors."""
        observers, begun = self._observers, time.perf_counter()
        sandboxes: Sandboxes = self._backend
        if observers.follow_work:
            observers.notify(Observer.attempt_begun, submission)
            sandboxes = ObservedSandboxes(sandboxes, observers.leased)
        try:
            judgement = await self._judge(submission, sandboxes)
        except BaseException as error:
            observers.notify(Observer.attempt_failed, submission, error)
            raise
        seconds = time.perf_counter() - begun
        observers.notify(Observer.attempt_judged, submission, judgement, seconds)
        return judgement


def _without_code(submission: NoCode) -> Outcome:
    """Return the outcome of a completion without code: every test fails."""
    judgement = Judgement(
        "no_code",
        total=submission.tests,
        message=submission.message,
        integrity=submission.integrity,
    )
    return Outcome(judgement, 0.0)


def reward(judgement: Judgement, submission: Submission) -> float:
    """Return the reward of a judgement: the only place where a verdict becomes a number.

    `all`: 1.0 when the verdict is `passed`, else 0.0. `fraction`: tests passed over all tests. `points`:
    the share of the points. A grader without countable tests (`exec`, `command`) counts as one test. The
    verifier of a task gives a score from 0.0 to 1.0, which lies between the `min` and `max` of its grader.
    """
    share, grader = _share(judgement, submission.scoring), submission.grader
    if isinstance(grader, VerifierGrader):
        return grader.max if share == 1 else grader.min + share * (grader.max - grader.min)
    return share


def _share(judgement: Judgement, scoring: Scoring) -> float:
    """Return what a judgement is worth, from 0 to 1."""
    if judgement.score is not None:
        return judgement.score
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
    texts = {
        "source": "" if submission is None else submission.source,
        "outcome": judgement.message,
        "stdout": judgement.stdout,
        "stderr": judgement.stderr,
    }
    cut = {name: text[:LONGEST_LOGGED_CHARACTERS] for name, text in texts.items() if text}
    texts_log.debug("texts", extra={"evaluation_id": item.evaluation_id, **cut})
