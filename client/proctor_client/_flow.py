"""The protocol once, without I/O: what to send, how long to wait, when to give up.

A flow is a generator. It yields steps (send this, read on, sleep, hand this to the caller) and gets
the reply of each; `Client` and `AsyncClient` only carry the steps out. What bit others:

- A retry must not start the work again: one Idempotency-Key per call, the same on every attempt;
  and what has no key and may have begun is not sent again.
- A service that stops hands back what waits in it, item by item: those are asked for once more,
  with the same key, of whoever serves then.
- Waits that are all drawn small end before a restart does. What a draw leaves of its window is
  added to the next wait, so each attempt falls at a random moment of its own part of the outage.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from proctor_client import wire
from proctor_client._answers import (
    Lines,
    check_complete,
    check_index,
    handed_back,
    is_back,
    parse_line,
)
from proctor_client._clock import Clock
from proctor_client.errors import (
    ProctorConnectionError,
    ProctorError,
    from_answer,
    from_problem,
    surely_unbegun,
)

T = TypeVar("T")

FIRST_WINDOW_SECONDS = 1.0
LONGEST_WINDOW_SECONDS = 15.0
LONGEST_RETRY_AFTER_SECONDS = 60.0
SOUND_STATUSES = (200, 201, 204)
REQUEST_ID = "proctor-request-id"
"""The header that every answer repeats. Not `X-Request-Id`, which proxies set to ids of their own."""


@dataclass(frozen=True)
class Policy:
    """How long a client waits and how often it tries.

    `max_attempts` counts the attempts of one call, `retry_budget_seconds` bounds the waits between
    them together. A call ends for good after the time that its answer may take plus that budget.
    With the defaults, seven waits come to 45 to 60 s: a service that restarts is outlived.
    """

    max_attempts: int = 8
    retry_budget_seconds: float = 60.0
    timeout_seconds: float = 30.0
    connect_timeout_seconds: float = 10.0
    secret: str = field(default="", repr=False)  # kept out of every message
    url: str = ""  # for messages


@dataclass(frozen=True)
class Call:
    """One logical request. `answer_seconds` is how long a sound service may take to answer it.

    `key` is its Idempotency-Key. `repeatable` says that sending it twice does no harm, thanks to
    the key or by its nature; other calls are sent again only when they surely did not begin.
    """

    method: str
    path: str
    answer_seconds: float
    content: bytes | None = field(default=None, repr=False)  # a policy's key may be in it
    content_type: str = "application/json"
    accept: str = "application/json"
    key: str | None = None
    repeatable: bool = True
    secret: str = field(default="", repr=False)  # kept out of every message, as the policy's


@dataclass(frozen=True)
class Send:
    """Send this; the reply is an `Answer`, with an empty body if it is a 200 that `streams`."""

    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes | None = field(repr=False)
    streams: bool
    connect_seconds: float
    read_seconds: float


@dataclass(frozen=True)
class Read:
    """Read on in the answer; the reply is bytes, cut anywhere, or None at the end."""


@dataclass(frozen=True)
class Sleep:
    """Wait; the reply is None."""

    seconds: float


@dataclass(frozen=True)
class Emit(Generic[T]):
    """Hand this to the caller; the reply is None."""

    item: T


@dataclass(frozen=True)
class Answer:
    """An answer's status, headers (looked up in lower case) and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Reply: TypeAlias = Answer | bytes | ProctorError | None
Flow: TypeAlias = Generator[Send | Read | Sleep | Emit[T], Reply, None]


class Patience:
    """What is left of one call's attempts and time."""

    def __init__(self, call: Call, policy: Policy, clock: Clock) -> None:
        self._call = call
        self._policy = policy
        self._clock = clock
        self._end = clock.monotonic() + call.answer_seconds + policy.retry_budget_seconds
        self._start_anew()

    def attempt_seconds(self) -> float:
        """How long the next attempt may wait for its answer."""
        return min(self._call.answer_seconds, self._end - self._clock.monotonic())

    def note_progress(self) -> None:
        """The attempt brought something new: the next failure is a new outage."""
        self._start_anew()

    def wait_after(self, error: ProctorError) -> float:
        """Seconds to wait before the next attempt; raises `error` when there is to be none."""
        self._failures += 1
        budget = self._policy.retry_budget_seconds - self._waited
        asked = min(error.retry_after_seconds or 0.0, LONGEST_RETRY_AFTER_SECONDS)
        # On top of what the service asked for, or all that it turned away come back at once.
        wait = min(asked + self._draw(), budget)
        if (
            not error.retryable
            or not (self._call.repeatable or surely_unbegun(error))
            or self._failures >= self._policy.max_attempts
            or budget <= 0
            or asked > budget
            or self._clock.monotonic() + wait >= self._end
        ):
            if self._failures > 1:
                error.add_note(f"Gave up after {self._failures} attempts.")
            raise error
        self._waited += wait
        log = logging.getLogger("proctor_client")
        message = "attempt %d of %s failed, next one in %.1f s: %s"
        log.info(message, self._failures, self._call.path, wait, error)
        return wait

    def if_any(self, error: ProctorError | None) -> float | None:
        """The same, where going without is no error: None when there is to be no other attempt."""
        try:
            return None if error is None else self.wait_after(error)
        except ProctorError:
            return None

    def _start_anew(self) -> None:
        self._failures = 0
        self._waited = 0.0
        self._left_of_window = 0.0

    def _draw(self) -> float:
        doublings = min(self._failures - 1, 16)
        window = min(FIRST_WINDOW_SECONDS * 2.0**doublings, LONGEST_WINDOW_SECONDS)
        drawn = window * self._clock.chance()
        wait = self._left_of_window + drawn
        self._left_of_window = window - drawn
        return wait


def answer_flow(
    call: Call,
    parse: Callable[[bytes], T],
    policy: Policy,
    clock: Clock,
    lacking: Callable[[T], ProctorError | None] = lambda item: None,
) -> Flow[T]:
    """Emits one thing: what `parse` makes of the body of a sound answer.

    `lacking`: why it is worth asking once more, as long as there is patience for it.
    """
    patience = Patience(call, policy, clock)
    while True:
        answer = yield from _answered(call, policy, clock, patience, streams=False)
        item = parse(answer.body)
        wait = patience.if_any(lacking(item))
        if wait is None:
            break
        yield Sleep(wait)
    yield Emit(item)


def lines_flow(
    call: Call,
    parse: Callable[[bytes], T | wire.Problem],
    is_last: Callable[[T], bool],
    policy: Policy,
    clock: Clock,
) -> Flow[T]:
    """Emits what `parse` makes of each line of one answer, which nothing resumes when it breaks."""
    yield from _answered(call, policy, clock, Patience(call, policy, clock), streams=True)
    lines = Lines()
    while True:
        chunk = yield Read()
        if isinstance(chunk, ProctorError):
            raise chunk
        assert not isinstance(chunk, Answer)
        for line in lines.feed(chunk):
            item = parse(line)
            if isinstance(item, wire.Problem):
                raise from_problem(item, status=None, secrets=(policy.secret, call.secret))
            if is_last(item):
                yield Read()  # to the end, as in _read_results
                yield Emit(item)
                return
            yield Emit(item)
        if chunk is None:
            raise _ended_early(policy)


def _answered(
    call: Call, policy: Policy, clock: Clock, patience: Patience, *, streams: bool
) -> Generator[Send | Sleep, Reply, Answer]:
    """The first sound answer, over as many attempts as it takes."""
    while True:
        reply = yield _send(call, policy, patience, streams=streams)
        failure = _failure(reply, call, policy, clock)
        if failure is None:
            assert isinstance(reply, Answer)
            return reply
        yield Sleep(patience.wait_after(failure))


def stream_flow(
    call: Call, count: int, policy: Policy, clock: Clock
) -> Flow[wire.Result | wire.Summary]:
    """Emits each of `count` results once, over however many connections; then the summary."""
    patience = Patience(call, policy, clock)
    seen: set[int] = set()
    while True:
        reply = yield _send(call, policy, patience, streams=True)
        failure = _failure(reply, call, policy, clock)
        if failure is None:
            back: dict[int, wire.Result] = {}
            ended = yield from _read_results(seen, back, count, policy, patience)
            if isinstance(ended, wire.Summary):
                wait = patience.if_any(handed_back(back.values()))
                if wait is None:
                    for result in back.values():
                        yield Emit(result)
                    yield Emit(ended)
                    return
                yield Sleep(wait)
                continue
            failure = ended
        yield Sleep(patience.wait_after(failure))


def _read_results(
    seen: set[int], back: dict[int, wire.Result], count: int, policy: Policy, patience: Patience
) -> Generator[Read | Emit[wire.Result | wire.Summary], Reply, ProctorError | wire.Summary]:
    """Emits what is new on one connection; those handed back go to `back`.

    Returns what broke it, or the summary.
    """
    lines = Lines()
    while True:
        chunk = yield Read()
        if isinstance(chunk, ProctorError):
            return chunk
        assert not isinstance(chunk, Answer)
        for line in lines.feed(chunk):
            item = parse_line(line)
            if isinstance(item, wire.Problem):
                return from_problem(item, status=None, secrets=(policy.secret,))
            if isinstance(item, wire.Summary):
                check_complete(seen | back.keys(), count)
                # Reading to the end keeps the connection for the next call, and the service does not
                # take us for a client that went away. What that read brings no longer matters.
                yield Read()
                return item
            check_index(item, count)
            if item.index in seen:
                continue
            if is_back(item):
                back[item.index] = item
                continue
            seen.add(item.index)
            patience.note_progress()
            yield Emit(item)
        if chunk is None:
            return ProctorConnectionError(f"{policy.url}: the stream ended early", retryable=True)


def _send(call: Call, policy: Policy, patience: Patience, *, streams: bool) -> Send:
    left = patience.attempt_seconds()
    headers = {"Accept": call.accept, REQUEST_ID: uuid.uuid4().hex}
    if call.content is not None:
        headers["Content-Type"] = call.content_type
    if call.key is not None:
        headers["Idempotency-Key"] = call.key
    return Send(
        method=call.method,
        path=call.path,
        headers=headers,
        content=call.content,
        streams=streams,
        connect_seconds=min(policy.connect_timeout_seconds, left),
        read_seconds=left,
    )


def _failure(reply: Reply, call: Call, policy: Policy, clock: Clock) -> ProctorError | None:
    if isinstance(reply, ProctorError):
        return reply
    assert isinstance(reply, Answer)
    if reply.status in SOUND_STATUSES:
        return None
    now, secrets = clock.wall(), (policy.secret, call.secret)
    return from_answer(reply.status, reply.body, reply.headers, now=now, secrets=secrets)


def _ended_early(policy: Policy, *, retryable: bool = False) -> ProctorError:
    return ProctorConnectionError(f"{policy.url}: the stream ended early", retryable=retryable)
