"""A fake service for tests, without server, sandbox and waiting.

    proctor = FakeProctor(lambda submission: 1.0 if "return" in submission.completion else 0.0)
    proctor.fail_next(2)
    with proctor.client() as client:
        assert client.reward(["def f(): return 1"]).results[0].reward == 1.0
    assert len(proctor.requests) == 3

Sandboxes keep their files in memory, and the test defines the results of their commands:

    proctor = FakeProctor(execute=lambda sandbox, request: "hello" if request.code else 1)
    with proctor.client() as client, client.sandbox() as sandbox:
        assert sandbox.exec(code="print('hello')").stdout == "hello"
    assert [each.status for each in proctor.sandboxes] == ["stopped"]

The fake service follows the contract as far as a client can observe. It validates requests with the
wire's models and streams NDJSON. A repeated Idempotency-Key gets the first answer without new
judging, except for items with a retryable error, which are judged again. Its journal has the judged items:

    assert client.evaluations(job="run-17").evaluations[0].verdict == "passed"
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, Unpack

import httpx
from pydantic import ValidationError

from proctor_client import wire
from proctor_client._answers import summary_of
from proctor_client._connections import ClientOptions
from proctor_client._fake_answers import (
    Judged,
    Lines,
    Order,
    Plain,
    as_json,
    as_line,
    deliver,
    judged_fields,
    problem,
    stands,
)
from proctor_client._fake_journal import ROUTES, FakeJournal, Origin
from proctor_client._fake_sandboxes import Execute, Executed, FakeSandbox, FakeSandboxes
from proctor_client._flow import REQUEST_ID, WIRE
from proctor_client._runtime import Clock
from proctor_client.async_client import AsyncClient
from proctor_client.client import Client
from proctor_client.errors import from_validation
from proctor_client.wire import long_integers

__all__ = ["URL", "Executed", "FakeClock", "FakeProctor", "FakeSandbox", "Judged", "Received"]

URL = "http://proctor.test"

RolledOut: TypeAlias = float | str | wire.ItemError | wire.Trajectory
"""Result of an episode: a reward, a verdict, an error, or a whole trajectory."""


class FakeClock(Clock):
    """Clock whose sleeps take no time; `sleeps` records them, in seconds.

    Every random draw returns `fixed_chance`. With 0, the wait after the first failure is exactly
    the wait requested by the service.
    """

    def __init__(self, fixed_chance: float = 0.0) -> None:
        self.fixed_chance = fixed_chance
        self.now = 0.0
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        """Return `now`, which grows only by sleeps, unless a test sets its value."""
        return self.now

    def chance(self) -> float:
        """Return `fixed_chance`."""
        return self.fixed_chance

    def sleep(self, seconds: float) -> None:
        """Record the sleep and advance `now`."""
        self.sleeps.append(seconds)
        self.now += seconds

    async def sleep_async(self, seconds: float) -> None:
        """Record the sleep, advance `now`, and let other tasks run."""
        self.sleep(seconds)
        await asyncio.sleep(0)


@dataclass(frozen=True)
class Received:
    """A received request. `reward` and `rollout` are the parsed bodies of valid requests."""

    method: str
    path: str
    headers: httpx.Headers
    content: bytes
    reward: wire.RewardRequest | None = None
    rollout: wire.RolloutRequest | None = None

    @property
    def idempotency_key(self) -> str | None:
        """Value of the Idempotency-Key header."""
        key: str | None = self.headers.get("idempotency-key")
        return key


class FakeProctor(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """The fake service: an httpx transport for both clients.

    `judge` maps a submission to a reward, a verdict or a wire.ItemError; by default every
    submission passes. `execute` maps a command in a sandbox to a wire.ExecResult, its stdout, its
    exit code or a wire.ItemError; by default every command exits with code 0. `roll_out` maps a
    task and its number to a trajectory, or to a judge's answer. With `token`, the service rejects
    other tokens. `requests` holds all received requests, including the failed requests.
    """

    def __init__(
        self,
        judge: Callable[[wire.Submission], Judged] | None = None,
        *,
        execute: Execute | None = None,
        roll_out: Callable[[wire.RolloutTask, int], RolledOut] | None = None,
        token: str | None = None,
    ) -> None:
        self.requests: list[Received] = []
        self.clock = FakeClock()
        self.capacity = wire.Capacity(
            slots=8,
            busy=0,
            queued=0,
            max_queued=4096,
            draining=False,
            recent_rewards_per_second=0.0,
        )
        default = wire.Environment(name="default", python=None, languages=["python"])
        self.environments = wire.EnvironmentList(environments=[default])
        self.verifiers = wire.VerifierList(verifiers=[])
        self._journal = FakeJournal(judge or (lambda submission: "passed"), self.clock)
        self._sandboxes = FakeSandboxes(execute or (lambda *_: 0), self._journal, self.clock)
        self._roll_out = roll_out or (lambda *_: "passed")
        self._token = token
        self._orders: deque[Order] = deque()
        self._answers: dict[str, wire.RewardResponse] = {}
        self._lock = threading.RLock()

    @property
    def sandboxes(self) -> list[FakeSandbox]:
        """Every sandbox in order of creation, including stopped sandboxes, at time `clock.now`."""
        return self._sandboxes.all()

    def client(self, **options: Unpack[ClientOptions]) -> Client:
        """Return a client of this service with its token; the client's waits take no time."""
        options = {"transport": self, "clock": self.clock, **options}
        return Client(URL, token=self._token, **options)

    def async_client(self, **options: Unpack[ClientOptions]) -> AsyncClient:
        """Return an async client of this service with its token, without real waits."""
        options = {"transport": self, "clock": self.clock, **options}
        return AsyncClient(URL, token=self._token, **options)

    def fail_next(
        self,
        count: int = 1,
        *,
        status: int = 503,
        reason: str = "draining",
        message: str = "as ordered",
        retryable: bool = True,
        retry_after_seconds: float | None = None,
    ) -> None:
        """Answer the next `count` requests with this error response."""
        problem = wire.Problem(
            reason=reason,
            message=message,
            retryable=retryable,
            retry_after_seconds=retry_after_seconds,
        )
        headers = {} if retry_after_seconds is None else {"Retry-After": f"{retry_after_seconds:g}"}
        response = as_json(wire.ProblemBody(error=problem), status, headers)
        self._orders.extend(Order(response=response) for _ in range(count))

    def answer_next(
        self,
        content: bytes,
        *,
        status: int = 200,
        headers: dict[str, str] | None = None,
        count: int = 1,
    ) -> None:
        """Answer the next `count` requests with this raw response, such as a proxy's page."""
        response = Plain(status, headers or {}, content)
        self._orders.extend(Order(response=response) for _ in range(count))

    def drop_next(self, count: int = 1, *, after_results: int | None = None) -> None:
        """Break the next `count` connections.

        The break comes before any answer, or in a stream after `after_results` results. As with the
        real service, the work continues, and a retry finds its result.
        """
        self._orders.extend(Order(after_results=after_results) for _ in range(count))

    def forget_orders(self) -> None:
        """Cancel all ordered error responses, raw responses and broken connections."""
        self._orders.clear()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Handle a request of an httpx.Client."""
        request.read()
        return self._respond(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Handle a request of an httpx.AsyncClient."""
        await request.aread()
        return self._respond(request)

    def _respond(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            received, refusal = _receive(request)
            self.requests.append(received)
            order = self._orders.popleft() if self._orders else None
        if order is not None and order.response is not None:
            built = order.response.build()
            if built.is_success and REQUEST_ID in request.headers:  # as the service, of any version
                built.headers[REQUEST_ID] = request.headers[REQUEST_ID]
            return built
        refusal = self._unauthorized(received) or refusal
        answer = deliver(refusal or self._work(request, received), None if refusal else order)
        answer.headers[WIRE] = str(wire.WIRE_VERSION)
        if REQUEST_ID in request.headers:
            answer.headers[REQUEST_ID] = request.headers[REQUEST_ID]
        return answer

    def _work(self, request: httpx.Request, received: Received) -> Plain | Lines:
        """Do the work of a request, before any ordered break of the connection."""
        streams = "application/x-ndjson" in received.headers.get("accept", "")
        if received.path == "/sandboxes" or received.path.startswith("/sandboxes/"):
            return self._sandboxes.handle(request)
        if received.path.split("/")[1] in ROUTES:
            return self._journal.handle(request)
        if received.reward is not None:
            answer = self._judged(received.reward, received.idempotency_key)
            if not streams:
                return as_json(answer)
            summary = as_line(wire.SummaryLine(summary=answer.summary))
            return Lines([as_line(result) for result in answer.results], [summary])
        if received.rollout is not None:
            rolled = self._rolled_out(received.rollout)
            if not streams:
                return as_json(rolled)
            lines = [as_line(trajectory) for trajectory in rolled.trajectories]
            return Lines(lines, [as_line({"summary": rolled.summary})])
        return self._around(received)

    def _unauthorized(self, received: Received) -> Plain | None:
        authorization = received.headers.get("authorization")
        if (
            self._token is None
            or received.path == "/healthz"
            or authorization == f"Bearer {self._token}"
        ):
            return None
        return problem(401, "unauthorized", "the token is missing or unknown")

    def _around(self, received: Received) -> Plain:
        match received.method, received.path:
            case "GET", "/healthz":
                return as_json(wire.Health(status="ok"))
            case "GET", "/capacity":
                return as_json(self.capacity)
            case "GET", "/environments":
                return as_json(self.environments)
            case "GET", "/verifiers":
                return as_json(self.verifiers)
            case "POST", "/tasks":
                return _named_tasks(received.content)
            case _:
                return problem(404, "not_found", f"no {received.method} {received.path}")

    def _judged(self, request: wire.RewardRequest, key: str | None) -> wire.RewardResponse:
        with self._lock:  # two concurrent requests with the same key are judged once
            answer = self._answers.get(key or "")
            results = [] if answer is None else answer.results
            return self._judge_all(request, key, {r.index: r for r in results if stands(r)})

    def _judge_all(
        self, request: wire.RewardRequest, key: str | None, earlier: dict[int, wire.Result]
    ) -> wire.RewardResponse:
        results = [
            earlier.get(index) or self._journal.judge(index, each, Origin.of(request))
            for index, each in enumerate(request.submissions)
        ]
        answer = wire.RewardResponse(results=results, summary=summary_of(results))
        if key is not None:
            self._answers[key] = answer
        return answer

    def _rolled_out(self, request: wire.RolloutRequest) -> wire.RolloutResponse:
        made = [
            _trajectory(task, index, self._roll_out(task, index), self._journal.new_rollout_id())
            for task in request.tasks
            for index in range(request.trajectories_per_task)
        ]
        for each in made:
            self._journal.rolled_out(request, each)
        rewards = [each.reward for each in made if each.reward is not None]
        summary = wire.RolloutSummary(
            count=len(made),
            judged=len(rewards),
            passed=sum(each.verdict == "passed" for each in made),
            errors=sum(each.error is not None for each in made),
            mean_reward=sum(rewards) / len(rewards) if rewards else None,
        )
        return wire.RolloutResponse(trajectories=made, summary=summary)


def _named_tasks(content: bytes) -> Plain:
    """Return the names of tasks; a submission's task is in the request that the judge gets."""
    tasks = wire.TasksRequest.model_validate(long_integers.loads(content)).tasks
    texts = (json.dumps(wire.dump(each), sort_keys=True).encode() for each in tasks)
    names = [f"sha256:{hashlib.sha256(text).hexdigest()}" for text in texts]
    return as_json(wire.TasksResponse(tasks=names))


def _receive(request: httpx.Request) -> tuple[Received, Plain | None]:
    """Return the parsed request, and an error response if the wire's models reject the request."""
    reward, rollout, refusal = None, None, None
    try:
        match request.method, request.url.path:
            case "POST", "/reward":
                reward = wire.RewardRequest.model_validate(long_integers.loads(request.content))
            case "POST", "/rollout":
                rollout = wire.RolloutRequest.model_validate(long_integers.loads(request.content))
    except ValidationError as error:
        refusal = problem(422, "invalid_request", from_validation(error).message)
    except ValueError as error:
        refusal = problem(422, "invalid_request", f"no JSON: {error}")
    path, headers = request.url.path, request.headers
    return Received(request.method, path, headers, request.content, reward, rollout), refusal


def _trajectory(
    task: wire.RolloutTask, index: int, rolled: RolledOut, rollout_id: str
) -> wire.Trajectory:
    if isinstance(rolled, wire.Trajectory):  # which has an id of its own
        return rolled.model_copy(update={"task_id": task.id, "index": index})
    blank = wire.Trajectory(
        task_id=task.id, index=index, metadata=task.metadata, rollout_id=rollout_id
    )
    return blank.model_copy(update=judged_fields(rolled))
