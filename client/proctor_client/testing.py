"""A fake service for tests: no server, no sandbox, no waiting.

    proctor = FakeProctor(lambda submission: 1.0 if "return" in submission.completion else 0.0)
    proctor.fail_next(2)
    with proctor.client() as client:
        assert client.reward(["def f(): return 1"]).results[0].reward == 1.0
    assert len(proctor.requests) == 3

It keeps to the contract where a client can tell: it checks requests with the wire's models, streams
NDJSON, and answers a repeated Idempotency-Key with the first answer, judging once.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, Unpack, get_args

import httpx
from pydantic import BaseModel, ValidationError

from proctor_client import wire
from proctor_client._clock import Clock
from proctor_client._connection import ClientOptions
from proctor_client.client import AsyncClient, Client
from proctor_client.errors import from_validation

URL = "http://proctor.test"

Judged: TypeAlias = float | str | wire.ItemError | wire.Result
"""What a judge says: a reward, a verdict, why there is none, or a whole result but its index."""


class FakeClock(Clock):
    """A clock whose sleeps take no time but are noted in `sleeps`, in seconds.

    `fixed_chance` is what every draw of chance comes to; with 0, a wait after the first failure is
    just what the service asked for.
    """

    def __init__(self, fixed_chance: float = 0.0) -> None:
        self.fixed_chance = fixed_chance
        self.now = 0.0
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        """Grows by the sleeps alone, unless a test sets `now`."""
        return self.now

    def chance(self) -> float:
        """Always `fixed_chance`."""
        return self.fixed_chance

    def sleep(self, seconds: float) -> None:
        """Note the sleep and move on."""
        self.sleeps.append(seconds)
        self.now += seconds

    async def sleep_async(self, seconds: float) -> None:
        """As `sleep`; other tasks get their turn."""
        self.sleep(seconds)
        await asyncio.sleep(0)


@dataclass(frozen=True)
class Received:
    """A request as it came. `reward` is the body of a sound POST /reward, else None."""

    method: str
    path: str
    headers: httpx.Headers
    content: bytes
    reward: wire.RewardRequest | None

    @property
    def idempotency_key(self) -> str | None:
        """The header of that name."""
        key: str | None = self.headers.get("idempotency-key")
        return key


class FakeProctor(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """The service's stand-in, an httpx transport for both clients.

    `judge` makes of a submission a reward, a verdict or a wire.ItemError; without one everything
    passes. With `token`, other tokens are refused. `requests` holds what came, failures included.
    """

    def __init__(
        self, judge: Callable[[wire.Submission], Judged] | None = None, *, token: str | None = None
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
        self._judge = judge or (lambda submission: "passed")
        self._token = token
        self._orders: deque[_Order] = deque()
        self._answers: dict[str, wire.RewardResponse] = {}
        self._lock = threading.RLock()

    def client(self, **options: Unpack[ClientOptions]) -> Client:
        """A client of this service, with its token, whose waits take no time."""
        options = {"transport": self, "clock": self.clock, **options}
        return Client(URL, token=self._token, **options)

    def async_client(self, **options: Unpack[ClientOptions]) -> AsyncClient:
        """As `client`, for event loops."""
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
        """The next `count` requests get this refusal."""
        problem = wire.Problem(
            reason=reason,
            message=message,
            retryable=retryable,
            retry_after_seconds=retry_after_seconds,
        )
        asked = {} if retry_after_seconds is None else {"Retry-After": f"{retry_after_seconds:g}"}
        response = _json(wire.ProblemBody(error=problem), status, asked)
        self._orders.extend(_Order(response=response) for _ in range(count))

    def answer_next(
        self,
        content: bytes,
        *,
        status: int = 200,
        headers: dict[str, str] | None = None,
        count: int = 1,
    ) -> None:
        """The next `count` requests get this answer as it is, a proxy's page for instance."""
        response = _Plain(status, headers or {}, content)
        self._orders.extend(_Order(response=response) for _ in range(count))

    def drop_next(self, count: int = 1, *, after_results: int | None = None) -> None:
        """The next `count` connections break.

        Before any answer, or in a stream after so many of its results. The work goes on, as with
        the service, and the retry finds it.
        """
        self._orders.extend(_Order(after_results=after_results) for _ in range(count))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """For httpx.Client."""
        request.read()
        return self._respond(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """For httpx.AsyncClient."""
        await request.aread()
        return self._respond(request)

    def _respond(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            received, refusal = _receive(request)
            self.requests.append(received)
            order = self._orders.popleft() if self._orders else None
            if order is not None and order.response is not None:
                return order.response.build()
            refusal = self._unauthorized(received) or refusal
            if refusal is not None:
                return refusal.build()
            if received.reward is not None:
                answer = self._judged(received.reward, received.idempotency_key)
                return _answer(received, answer, order)
            if order is not None:
                raise httpx.ReadError("the connection was dropped, as ordered")
            return self._around(received).build()

    def _unauthorized(self, received: Received) -> _Plain | None:
        told = received.headers.get("authorization")
        if self._token is None or received.path == "/healthz" or told == f"Bearer {self._token}":
            return None
        return _problem(401, "unauthorized", "the token is missing or unknown")

    def _around(self, received: Received) -> _Plain:
        match received.method, received.path:
            case "GET", "/healthz":
                return _json(wire.Health(status="ok"))
            case "GET", "/capacity":
                return _json(self.capacity)
            case _:
                return _problem(404, "not_found", f"no {received.method} {received.path}")

    def _judged(self, request: wire.RewardRequest, key: str | None) -> wire.RewardResponse:
        if key is not None and key in self._answers:
            return self._answers[key]
        results = [
            _result(index, each, self._judge(each))
            for index, each in enumerate(request.submissions)
        ]
        answer = wire.RewardResponse(results=results, summary=_summary(results))
        if key is not None:
            self._answers[key] = answer
        return answer


@dataclass(frozen=True)
class _Plain:
    """An answer that may be given several times; an httpx.Response is used up by one."""

    status: int
    headers: dict[str, str]
    content: bytes

    def build(self) -> httpx.Response:
        return httpx.Response(self.status, headers=self.headers, content=self.content)


@dataclass(frozen=True)
class _Order:
    """What is to happen to one request: this answer, or a connection that breaks."""

    response: _Plain | None = None
    after_results: int | None = None


@dataclass
class _Stream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Lines, and a break after them if one was ordered."""

    lines: list[bytes]
    breaks: bool = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self.lines
        if self.breaks:
            raise httpx.ReadError("the connection was dropped, as ordered")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for line in self:
            yield line


def _receive(request: httpx.Request) -> tuple[Received, _Plain | None]:
    """The request, and its refusal if the wire's models refuse it."""
    reward, refusal = None, None
    if (request.method, request.url.path) == ("POST", "/reward"):
        try:
            reward = wire.RewardRequest.model_validate_json(request.content)
        except ValidationError as error:
            refusal = _problem(422, "invalid_request", from_validation(error).message)
    received = Received(request.method, request.url.path, request.headers, request.content, reward)
    return received, refusal


def _answer(
    received: Received, answer: wire.RewardResponse, order: _Order | None
) -> httpx.Response:
    if "application/x-ndjson" not in received.headers.get("accept", ""):
        if order is not None:
            raise httpx.ReadError("the connection was dropped, as ordered")
        return _json(answer).build()
    if order is not None and order.after_results is None:
        raise httpx.ReadError("the connection was dropped, as ordered")
    told = answer.results if order is None else answer.results[: order.after_results]
    lines = [_line(result) for result in told]
    if order is None:
        lines.append(_line(wire.SummaryLine(summary=answer.summary)))
    stream = _Stream(lines, breaks=order is not None)
    return httpx.Response(200, headers={"Content-Type": "application/x-ndjson"}, stream=stream)


def _result(index: int, submission: wire.Submission, judged: Judged) -> wire.Result:
    if isinstance(judged, wire.Result):
        return judged.model_copy(update={"index": index})
    blank = wire.Result(
        index=index,
        id=submission.id,
        group=submission.group,
        evaluation_id=f"ev_fake_{index}",
        integrity="separated",
        cache="miss",
    )
    if isinstance(judged, wire.ItemError):
        return blank.model_copy(update={"error": judged})
    if isinstance(judged, str):
        if judged not in get_args(wire.Verdict):
            raise ValueError(f"the judge said {judged!r}, which is no verdict")
        reward = 1.0 if judged == "passed" else 0.0
        return blank.model_copy(update={"verdict": judged, "reward": reward})
    verdict = "passed" if judged >= 1 else "failed"
    return blank.model_copy(update={"verdict": verdict, "reward": float(judged)})


def _summary(results: Iterable[wire.Result]) -> wire.Summary:
    results = list(results)
    rewards = [each.reward for each in results if each.reward is not None]
    return wire.Summary(
        count=len(results),
        judged=len(rewards),
        passed=sum(each.verdict == "passed" for each in results),
        no_code=sum(each.verdict == "no_code" for each in results),
        errors=sum(each.error is not None for each in results),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
    )


def _problem(status: int, reason: str, message: str) -> _Plain:
    return _json(wire.ProblemBody(error=wire.Problem(reason=reason, message=message)), status)


def _json(model: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> _Plain:
    headers = {"Content-Type": "application/json", **(headers or {})}
    return _Plain(status, headers, model.model_dump_json().encode())


def _line(model: BaseModel) -> bytes:
    return json.dumps(model.model_dump(mode="json"), ensure_ascii=False).encode() + b"\n"
