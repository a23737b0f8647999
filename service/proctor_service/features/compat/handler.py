"""Common base of the compatible routes: their forms, and a handler that holds each request.

Each service's clients retry after their own kind of answer, and treat most other answers as a
reward of 0.0. So the service first retries its own failures itself, and waits while the queue is
full. If the client's wait ends first, the work continues, and the client's retry gets the result.

Unknown fields are ignored, because the clients send more fields than the service uses. Limits above
the server's ceilings are lowered to the ceilings: these clients have no way to learn the ceilings.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from proctor_client import wire
from proctor_client.wire.base import Bounded
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
from proctor_service.evaluate import Evaluate
from proctor_service.features.compat.program_runner import Asker, Program, Ran, Runner
from proctor_service.http.body import name_any_request, parse_body, read_body
from proctor_service.http.json import encode
from proctor_service.http.openapi import Answers, body_of, problems
from proctor_service.http.responses import (
    CLIENT_GONE,
    RequestTask,
    Value,
    task_of,
    value_of,
    while_connected,
)
from proctor_service.http.task_store import TaskStore
from proctor_service.judge.submission import Judgement
from proctor_service.outcomes import Item
from proctor_service.rewards.machine import Machine
from proctor_service.rewards.routes import Translation
from proctor_service.scheduling.queue import AT_ONCE, FairQueue, stopping
from proctor_service.settings import Settings
from proctor_service.settings.environments import DEFAULT
from proctor_service.settings.languages import language_named

PREFIX = "/compat"  # in each router, so the metrics include the prefix in the route
MOST_TESTS = 4096


class Form(Bounded):
    """Base of the compatible requests; a null means a missing field."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: each for name, each in value.items() if each is not None}


def limits(
    settings: Settings,
    seconds: float,
    *,
    memory_mb: int | None = None,
    output_kb: int | None = None,
) -> wire.Limits:
    """Return limits of `seconds` CPU time and `seconds` idle time, within the server's ceilings.

    `None`: the server's default.
    """
    if memory_mb is not None:
        memory_mb = min(memory_mb, settings.max_memory_mb)
    if output_kb is not None:
        output_kb = min(output_kb, settings.max_output_kb)
    return wire.Limits(
        cpu_seconds=min(seconds, settings.max_cpu_seconds),
        wall_seconds=min(seconds, settings.max_wall_seconds),
        memory_mb=memory_mb,
        output_kb=output_kb,
    )


def documented(
    model: type[BaseModel], request: Mapping[str, Any], answer: Any, *statuses: int
) -> dict[str, Any]:
    """Return a route's OpenAPI entries: examples of request and answer, and error responses."""
    found = answered(answer, 413, 422, *statuses)
    return {"responses": found, "openapi_extra": body_of(model, request)}


def answered(answer: Any, *statuses: int) -> Answers:
    """Return the OpenAPI entries of a route's 200, with an example, and of its error responses."""
    return {200: {"content": {"application/json": {"example": answer}}}, **problems(401, *statuses)}


log = logging.getLogger(__name__)

A = TypeVar("A")
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

PATIENCE_SECONDS = 900.0
"""Time limit of the work, even if its client still retries."""
LONGEST_HOLD_SECONDS = 3600.0
KEPT_SECONDS = 60.0
"""Clients retry within half a minute; after this time the work is abandoned and cancelled."""
ENTRY_BYTES = 10_000
"""Memory of work to be continued, besides the body of its request."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 5.0


@dataclass(frozen=True, slots=True)
class ClientProfile(Generic[A]):
    """Behaviour of a service's clients, and the answers for them.

    `wait_seconds`: the clients' wait for an answer, minus a margin. `come_back`: the answer after
    which the clients retry. `insist_seconds`: time in which the service first retries its own
    failures. `patience_seconds`: time limit of the work, even if its client still retries.
    """

    job: str
    wait_seconds: Callable[[A], float]
    come_back: Callable[[Request, A, Failure | Refusal], Awaitable[Response]]
    insist_seconds: float = 3.0
    patience_seconds: float = PATIENCE_SECONDS


@dataclass(frozen=True, slots=True)
class Judged:
    """A judgement and its reward."""

    judgement: Judgement
    reward: float


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Context of a request: its owner, the time for retries, and the time of the answer.

    `insist_seconds`: time in which the service retries its own failures. `answer_by`: latest time
    of the answer (monotonic clock).
    """

    asker: Asker
    insist_seconds: float
    answer_by: float
    environment: str = DEFAULT


class CompatHandler:
    """Handler of the compatible requests. `running`: unfinished requests."""

    def __init__(
        self,
        machine: Machine,
        evaluate: Evaluate,
        runner: Runner,
        queue: FairQueue,
        running: set[RequestTask[Any]],
    ) -> None:
        self.machine = machine
        self._evaluate = evaluate
        self._runner = runner
        self._queue = queue
        self._pending: TaskStore[Value[Any]] = TaskStore(KEPT_SECONDS)
        self.running = running

    @property
    def queued(self) -> int:
        """Number of accepted items that wait."""
        return self._queue.queued

    @property
    def slots(self) -> int:
        """Number of evaluations at once."""
        return self._queue.slots

    async def serve(
        self,
        request: Request,
        model: type[M],
        do: Callable[[M, RequestContext], Coroutine[Any, Any, Any]],
        profile: ClientProfile[M],
    ) -> Response:
        """Answer a request with the JSON value returned by `do`. Raises Refusal and Failure."""
        return await self.serve_parsed(request, partial(parse_body, model), do, profile)

    async def serve_parsed(
        self,
        request: Request,
        parse: Callable[[bytearray], Awaitable[A]],
        do: Callable[[A, RequestContext], Coroutine[Any, Any, Any]],
        profile: ClientProfile[A],
        bodies: int = 1,
    ) -> Response:
        """Answer as `serve`, with an own parser of bodies, which may keep the bytes.

        `bodies`: the body may have so many times the bytes of any other. A Response that `do`
        returns is the answer itself.
        """
        clock = self._queue.clock
        begun, hold_seconds = clock(), _hold_seconds(request)
        body = await read_body(request, bodies * self.machine.settings.max_body_mb)
        payload = await parse(body)
        tenant: str = request.state.tenant
        environment = self._environment(request)
        name = await name_any_request(tenant, f"{request.url.path} {environment}", body)
        if hold_seconds is None:
            hold_seconds = min(profile.wait_seconds(payload), LONGEST_HOLD_SECONDS)
        deadline = begun + max(profile.patience_seconds, hold_seconds)
        job = request.query_params.get("job", profile.job)[:200]
        asker = Asker(tenant, job or profile.job, deadline)
        context = RequestContext(asker, profile.insist_seconds, begun + hold_seconds, environment)
        work = self._pending.pop(name)
        if work is None:
            call = _refused if self._queue.draining else partial(do, payload, context)
            work = task_of(call, self.running, len(body), KEPT_SECONDS)
        del body
        try:
            with work.reading():
                waiting = work.wait(begun + hold_seconds - clock())
                done = await while_connected(waiting, request.receive)
            if not done:
                self._pending.put(name, work, ENTRY_BYTES)
                return await profile.come_back(request, payload, Overloaded("it is not done yet"))
            value = value_of(work)
            if isinstance(value, Response):
                return value
            return Response(encode(value), media_type="application/json")
        except (ClientDisconnect, asyncio.CancelledError):
            work.cancel(CLIENT_GONE)
            raise
        except (Failure, Refusal) as error:
            if not error.retryable:
                raise
            return await profile.come_back(request, payload, error)
        except Exception:
            log.exception("a compatible request failed", extra={"path": request.url.path})
            failed = JudgeFailed("the service failed; its log says how")
            return await profile.come_back(request, payload, failed)

    async def judge(
        self,
        rewards: wire.RewardRequest,
        context: RequestContext,
        is_last: Callable[[Judged | InvalidTask], bool] | None = None,
    ) -> list[Judged | InvalidTask]:
        """Judge all submissions at the same time; the result of broken tests is an InvalidTask.

        The list ends at the first result for which `is_last` is true. Raises the first other
        Failure, and InvalidRequest.
        """
        asker = context.asker
        rewards = rewards.model_copy(update={"job": asker.job, "environment": context.environment})
        translation = Translation(self.machine, rewards, asker.tenant, asker.deadline)
        entries = await translation.items()
        return await all_of((self._judge_one(entry.item, context) for entry in entries), is_last)

    async def run(self, program: Program, context: RequestContext) -> Ran:
        """Run a program and return its result. Raises Refusal and Failure."""
        program = replace(program, environment=context.environment)
        return await self._insist(lambda: self._runner.run(program, context.asker), context)

    def _environment(self, request: Request) -> str:
        """Return the environment of the query, or else of the route. Raises InvalidRequest."""
        name = request.query_params.get("environment")
        if name is None:
            paths = self.machine.settings.compat_environments
            fitting = [path for path in paths if request.url.path.startswith(path)]
            name = paths[max(fitting, key=len)] if fitting else None
        return self.machine.environment(name, "environment")

    def language(self, name: str, environment: str) -> str:
        """Return the name of a language of an environment, for a name or an alias.

        Raises InvalidRequest if the environment lacks the language.
        """
        here = self.machine.languages(environment)
        language = language_named(name, self.machine.settings.languages)
        if language not in here:
            raise InvalidRequest(f"language: no {name[:100]!r} here, only: {', '.join(here)}")
        return language

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
        """Run `work`, with retries after the service's own failures and while the queue is full."""
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


async def _refused() -> Any:
    raise stopping()


async def all_of(
    works: Iterable[Coroutine[Any, Any, T]], is_last: Callable[[T], bool] | None = None
) -> list[T]:
    """Run all coroutines at the same time and return their results in order.

    The list ends at the first result for which `is_last` is true; the rest is cancelled. Raises the
    error of the first failed coroutine, in order.
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
    """Return `hold_seconds` of the query, for clients with a different wait; None without.

    Raises InvalidRequest for an invalid number.
    """
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
