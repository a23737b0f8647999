"""The corridor: admit, lease a sandbox, judge the submission in it, verdict, reward.

The first file to open. Nothing here knows a backend, a route or a grader. Out comes a judgement
with its reward, or the failure that prevented one, and never both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from proctor_client.wire import CacheResult
from proctor_service.admission.cache import Cache
from proctor_service.admission.queue import FairQueue
from proctor_service.errors import (
    DeadlinePassed,
    Failure,
    JudgeFailed,
    SandboxLost,
    SandboxUnavailable,
)
from proctor_service.judge.reward import reward
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Backend

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NoCode:
    """A completion in which no code was found, and how many tests it would have had to pass."""

    tests: int = 0


@dataclass(frozen=True, slots=True)
class Item:
    """One submission on its way: whose it is, and by when it must be judged (monotonic clock).

    `cache_key` names everything that decides the verdict; None: judge it whatever is known already.
    """

    evaluation_id: str
    submission: Submission | NoCode
    tenant: str
    job: str
    deadline: float
    cache_key: bytes | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Either a judgement with its reward, or the failure that prevented one."""

    judgement: Judgement | None = None
    reward: float | None = None
    failure: Failure | None = None
    queue_seconds: float = 0.0
    cache: CacheResult = "miss"


Judge = Callable[[Submission, Backend], Awaitable[Judgement]]
Evaluate = Callable[[Item], Awaitable[Outcome]]


class Corridor:
    """Joins the rooms: one item in, one outcome out."""

    def __init__(
        self, judge: Judge, backend: Backend, queue: FairQueue, cache: Cache[Outcome]
    ) -> None:
        self._judge = judge
        self._backend = backend
        self._queue = queue
        self._cache = cache

    async def evaluate(self, item: Item) -> Outcome:
        """What the item is worth, or why that could not be found out. Only cancelling it raises."""
        if isinstance(item.submission, NoCode):
            nothing = "No code was found in the completion."
            return Outcome(Judgement("no_code", total=item.submission.tests, message=nothing), 0.0)
        work = partial(self._in_turn, item, item.submission)
        try:
            outcome, how = await self._cache.once(item.cache_key, item.deadline, work)
        except Failure as failure:
            return Outcome(failure=failure)
        return outcome if how == "miss" else replace(outcome, cache=how, queue_seconds=0.0)

    async def _in_turn(self, item: Item, submission: Submission) -> Outcome:
        try:
            async with self._queue.admit(item.tenant, item.job, item.deadline) as ticket:
                judgement = await self._by_deadline(item, submission)
            worth = reward(judgement, submission.scoring)
            return Outcome(judgement, worth, queue_seconds=ticket.queue_seconds)
        except Failure:
            raise
        except Exception as error:
            log.exception("the judge failed", extra={"evaluation_id": item.evaluation_id})
            message = f"a fault of the service; its log has it under {item.evaluation_id}"
            raise JudgeFailed(message) from error

    async def _by_deadline(self, item: Item, submission: Submission) -> Judgement:
        try:
            async with asyncio.timeout_at(item.deadline) as limit:
                try:
                    return await self._judge(submission, self._backend)
                except (SandboxLost, SandboxUnavailable) as lost:
                    # Once more, in a fresh sandbox; nothing else is ever retried.
                    log.warning(
                        "judging once more: %s",
                        lost.reason,
                        extra={"evaluation_id": item.evaluation_id},
                    )
                    return await self._judge(submission, self._backend)
        except TimeoutError:
            if not limit.expired():
                raise
            raise DeadlinePassed("the deadline passed while it was judged") from None


def outcome_bytes(outcome: Outcome) -> int:
    """About how much memory an outcome holds, for the cache's bound."""
    judgement = outcome.judgement
    if judgement is None:
        return 256
    texts = len(judgement.message) + len(judgement.stdout) + len(judgement.stderr)
    return 1024 + texts + sum(len(f.test) + len(f.message) + 128 for f in judgement.failures)
