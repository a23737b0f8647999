"""What the compatible routes share: a request is held for as long as its client waits.

Each service's clients have their own way of being told to try again, and take most other things for a
reward of 0.0. So nothing of ours is told while there is time to mend it. What is not done when the
client must have an answer goes on, and the client that comes back takes it up (`shelf.py`).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from proctor_client import wire
from proctor_service.api.body import parse_body, read_body
from proctor_service.api.compat.pending import NotYet, PendingWork, Work
from proctor_service.api.connection import while_connected
from proctor_service.api.rewards.idempotency import name_any_request
from proctor_service.api.rewards.items import Machine, Translation
from proctor_service.api.rewards.results import encode
from proctor_service.api.rewards.slices import Pacer
from proctor_service.errors import (
    Busy,
    Cancelled,
    Draining,
    Failure,
    InvalidRequest,
    InvalidTask,
    JudgeFailed,
    Overloaded,
    Refusal,
)
from proctor_service.evaluate import Evaluate, Item
from proctor_service.judge.submission import Judgement
from proctor_service.scheduling.deadlines import AT_ONCE
from proctor_service.scheduling.program_runner import Asker, Program, Ran, Runner
from proctor_service.scheduling.queue import FairQueue, stopping

log = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

PATIENCE_SECONDS = 900.0
"""By then work ends, though its client still comes back."""
LONGEST_HOLD_SECONDS = 3600.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 5.0


@dataclass(frozen=True, slots=True)
class ClientProfile(Generic[M]):
    """How the clients of one service are treated.

    `wait_seconds`: how long they wait for an answer, and a little less. `come_back`: the answer that
    makes them try again. `insist_seconds`: for so long a failure of ours is tried again here first.
    """

    job: str
    wait_seconds: Callable[[M], float]
    come_back: Callable[[Request, M, Failure | Refusal], Awaitable[Response]]
    insist_seconds: float = 3.0


@dataclass(frozen=True, slots=True)
class Judged:
    """A judgement, and the reward that it is worth."""

    judgement: Judgement
    reward: float


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Who asks, for how long a failure is tried again, and when the client must have an answer.

    `answer_by`: on the monotonic clock.
    """

    asker: Asker
    insist_seconds: float
    answer_by: float


class CompatHandler:
    """Takes the compatible requests in, and knows what is at work."""

    def __init__(
        self, machine: Machine, evaluate: Evaluate, runner: Runner, queue: FairQueue
    ) -> None:
        self.machine = machine
        self._evaluate = evaluate
        self._runner = runner
        self._queue = queue
        self._pending = PendingWork(machine.settings.idempotency_mb << 20)
        self._running: set[Work] = set()

    @property
    def running(self) -> frozenset[Work]:
        """The work that is not done."""
        return frozenset(self._running)

    async def serve(
        self,
        request: Request,
        model: type[M],
        do: Callable[[M, RequestContext], Coroutine[Any, Any, Any]],
        profile: ClientProfile[M],
    ) -> Response:
        """Answers one request with the JSON value that `do` gives. Raises Refusal and Failure."""
        clock = self._queue.clock
        begun, hold_seconds = clock(), _hold_seconds(request)
        body = await read_body(request, self.machine.settings.max_body_mb)
        asked = await parse_body(model, body)
        tenant: str = request.state.tenant
        name = await name_any_request(tenant, request.url.path, body)
        assert name is not None, "a path is a key"
        if hold_seconds is None:
            hold_seconds = min(profile.wait_seconds(asked), LONGEST_HOLD_SECONDS)
        deadline = begun + max(PATIENCE_SECONDS, hold_seconds)
        job = request.query_params.get("job", profile.job)[:200]
        asker = Asker(tenant, job or profile.job, deadline)
        context = RequestContext(asker, profile.insist_seconds, begun + hold_seconds)
        work = self._pending.pop(name) or self._begin(do(asked, context), len(body))
        del body
        try:
            waiting = work.value(begun + hold_seconds - clock())
            value = await while_connected(waiting, request.receive)
            return Response(encode(value), media_type="application/json")
        except (ClientDisconnect, asyncio.CancelledError):
            work.cancel("the client went away")
            raise
        except NotYet:
            self._pending.put(name, work)
            return await profile.come_back(request, asked, Overloaded("it is not done yet"))
        except (Failure, Refusal) as error:
            if not error.retryable:
                raise
            return await profile.come_back(request, asked, error)
        except Exception:
            log.exception("a compatible request failed", extra={"path": request.url.path})
            failed = JudgeFailed("the service failed; its log says how")
            return await profile.come_back(request, asked, failed)

    async def judge(
        self,
        asked: wire.RewardRequest,
        context: RequestContext,
        is_last: Callable[[Judged | InvalidTask], bool] | None = None,
    ) -> list[Judged | InvalidTask]:
        """What each submission is worth, or that its tests are broken by themselves.

        They are judged at the same time, all or up to the first that `is_last`. Raises the first
        other Failure, and InvalidRequest.
        """
        asker = context.asker
        asked = asked.model_copy(update={"job": asker.job})
        translation = Translation(self.machine, asked, asker.tenant, asker.deadline)
        items, pacer = [], Pacer()
        for index, submission in enumerate(asked.submissions):
            items.append(translation.entry(index, submission).item)
            await pacer.pause()
        return await all_of((self._judge_one(item, context) for item in items), is_last)

    async def run(self, program: Program, context: RequestContext) -> Ran:
        """What came of a program. Raises Refusal and Failure."""
        return await self._insist(lambda: self._runner.run(program, context.asker), context)

    def check_language(self, language: str) -> None:
        """Raises InvalidRequest for one that is not installed here."""
        here = self.machine.traits.languages
        if language not in here:
            raise InvalidRequest(f"language: no {language[:100]!r} here, only: {', '.join(here)}")

    async def _judge_one(self, item: Item, context: RequestContext) -> Judged | InvalidTask:
        async def once() -> Judged:
            places = self._queue.reserve(1, (item.tenant, item.job))
            try:
                outcome = await self._evaluate(item)
            finally:
                places.close()
            if outcome.judgement is None or outcome.reward is None:
                raise outcome.failure or JudgeFailed("the judge said nothing")
            return Judged(outcome.judgement, outcome.reward)

        try:
            return await self._insist(once, context)
        except InvalidTask as broken:
            return broken

    async def _insist(self, work: Callable[[], Awaitable[T]], context: RequestContext) -> T:
        """Tries again what failed through no fault of the request; while the queue is full, waits."""
        clock = self._queue.clock
        deadline = context.asker.deadline
        give_up: float | None = None
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return await work()
            except (Draining, Cancelled):
                raise  # the service stops
            except Busy:
                if clock() + pause >= deadline:
                    raise
            except Failure as failure:
                give_up = give_up or clock() + context.insist_seconds
                if not failure.retryable or clock() + pause >= min(give_up, deadline):
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _begin(self, do: Coroutine[Any, Any, Any], size_bytes: int) -> Work:
        work = Work(_refused(do) if self._queue.draining else do, size_bytes)
        self._running.add(work)
        work.when_done(lambda: self._running.discard(work))
        return work


async def _refused(do: Coroutine[Any, Any, Any]) -> Any:
    do.close()
    raise stopping()


async def all_of(
    works: Iterable[Coroutine[Any, Any, T]], is_last: Callable[[T], bool] | None = None
) -> list[T]:
    """What all of them give, in order, or up to the first that `is_last`; then the others are ended.

    They run at the same time. Raises what the first of them raises.
    """
    tasks: list[asyncio.Task[T]] = []
    values: list[T] = []
    try:
        for number, work in enumerate(works, 1):
            tasks.append(asyncio.create_task(work))
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
        for task in tasks:
            values.append(await task)
            if is_last is not None and is_last(values[-1]):
                break
        return values
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _hold_seconds(request: Request) -> float | None:
    """What the query says, for clients that wait longer than this service knows."""
    text = request.query_params.get("hold_seconds")
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= LONGEST_HOLD_SECONDS:
        raise InvalidRequest(f"hold_seconds: not a number up to {LONGEST_HOLD_SECONDS:g}")
    return seconds
