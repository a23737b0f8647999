"""The protocol without I/O: requests to send, times to wait, and the decision to give up.

A flow is a generator of steps (send a request, read on, sleep, emit an item to the caller)
and receives the reply to each step. `Client` and `AsyncClient` only carry out the steps. Three
rules prevent known faults:

- A retry must not start the work again. Each call has an Idempotency-Key, the same on every
  attempt; an unrepeatable call is sent again only if the earlier attempt surely did not begin.
- A service that shuts down returns its queued items unjudged. The flow asks for these items once
  more, with the same key, from the next replica.
- A series of short random waits could end before a restart does. So the unused rest of each random
  window is added to the next wait, and each attempt falls into its own part of the outage.
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
    NotJson,
    check_complete,
    check_index,
    is_back,
    parse_line,
)
from proctor_client._runtime import Clock
from proctor_client.errors import (
    DrainingError,
    ProctorConnectionError,
    ProctorError,
    ProctorTimeoutError,
    ProtocolError,
    describe_foreign,
    from_answer,
    from_problem,
    surely_unbegun,
)

T = TypeVar("T")
log = logging.getLogger("proctor_client")

FIRST_WINDOW_SECONDS = 1.0
LONGEST_WINDOW_SECONDS = 15.0
LONGEST_RETRY_AFTER_SECONDS = 60.0
LEAST_SECONDS = 0.1
SOUND_STATUSES = (200, 201, 204)
REQUEST_ID = "proctor-request-id"
"""Header repeated by every answer. `X-Request-Id` is unsuitable: proxies replace its value."""

WIRE = "proctor-wire"
"""Header of every answer: the version of the wire."""


@dataclass(frozen=True)
class Policy:
    """Timeouts and retry limits of a client.

    `max_attempts` bounds the attempts of a call; `retry_budget_seconds` bounds the sum of the
    waits between them. A call ends for good after its answer time plus this budget; the time for
    which the caller holds an item of a stream does not count. In threads, a read in progress at
    the end of the call still ends by its own limit, at most the answer time: httpx fixes all limits of
    an answer's reads when the request is sent. Streams of output and of trajectories are not
    resumed, and last as long as their data arrives. With the defaults, the seven waits add up to 45
    to 60 s, which is longer than a restart of the service.
    """

    max_attempts: int = 8
    retry_budget_seconds: float = 60.0
    timeout_seconds: float = 30.0
    connect_timeout_seconds: float = 10.0
    secret: str = field(default="", repr=False)  # removed from every message
    url: str = ""  # for messages


@dataclass(frozen=True)
class Call:
    """A logical request. A healthy service answers within `answer_seconds`.

    `key` is the Idempotency-Key. `repeatable` is true if sending the request twice does no harm,
    either because of the key or by the nature of the request. Other calls are sent again only if
    the earlier attempt surely did not begin.
    """

    method: str
    path: str
    answer_seconds: float
    content: bytes | None = field(default=None, repr=False)  # may contain a policy's key
    content_type: str = "application/json"
    accept: str = "application/json"
    key: str | None = None
    repeatable: bool = True
    secret: str = field(default="", repr=False)  # removed from every message, as Policy.secret


@dataclass(frozen=True)
class Send:
    """Step: send this request. The reply is an `Answer`.

    The answer's body is empty if `streams` is set and the status is a success: `Read` steps follow.
    Any other body is whole within `left_seconds`.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes | None = field(repr=False)
    streams: bool
    connect_seconds: float
    read_seconds: float
    left_seconds: float


@dataclass(frozen=True)
class Read:
    """Step: read on in the answer. The reply is a chunk of any length, or None at the end.

    An event loop's driver gives up after `left_seconds`; None: after the request's own limit.
    """

    left_seconds: float | None = None


@dataclass(frozen=True)
class Sleep:
    """Step: wait. The reply is None."""

    seconds: float


@dataclass(frozen=True)
class Emit(Generic[T]):
    """Step: emit `item` to the caller. The reply is None."""

    item: T


@dataclass(frozen=True)
class Answer:
    """Status, headers (looked up in lower case) and body of an answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Reply: TypeAlias = Answer | bytes | ProctorError | None
Flow: TypeAlias = Generator[Send | Read | Sleep | Emit[T], Reply, None]


class Patience:
    """Remaining attempts and time of a call."""

    def __init__(self, call: Call, policy: Policy, clock: Clock) -> None:
        self._call = call
        self._policy = policy
        self._clock = clock
        self._end = clock.monotonic() + call.answer_seconds + policy.retry_budget_seconds
        self._start_anew()

    def attempt_seconds(self) -> float:
        """Return the maximum wait of the next attempt for its answer, in seconds."""
        return min(self._call.answer_seconds, self.left_seconds())

    def left_seconds(self) -> float:
        """Return the time until the end of the call. After the end, the time is short but positive.

        A sleep may last longer than asked for, and sockets accept no timeout of zero or less.
        """
        return max(LEAST_SECONDS, self._end - self._clock.monotonic())

    def check_end(self) -> None:
        """Raise ProctorTimeoutError after the end of the call, although data still arrives."""
        if self._clock.monotonic() >= self._end:
            seconds = self._call.answer_seconds + self._policy.retry_budget_seconds
            raise ProctorTimeoutError(
                f"{self._policy.url}: the answer is still incomplete after {seconds:g} s"
            )

    def emit(self, item: wire.Result) -> Generator[Emit[wire.Result | wire.Summary], Reply, None]:
        """Emit a result. The time for which the caller holds the result does not count."""
        begun = self._clock.monotonic()
        yield Emit(item)
        self._end += self._clock.monotonic() - begun

    def note_progress(self) -> None:
        """Restart the retry limits after new data: the next failure counts as a new outage."""
        self._start_anew()

    def wait_after(self, error: ProctorError) -> float:
        """Return the seconds to wait before the next attempt; raise `error` if none is left."""
        self._failures += 1
        budget = self._policy.retry_budget_seconds - self._waited
        requested_wait = min(error.retry_after_seconds or 0.0, LONGEST_RETRY_AFTER_SECONDS)
        # The random wait is added to the requested wait, or all rejected clients return at once.
        wait = min(requested_wait + self._draw(), budget)
        if (
            not error.retryable
            or not (self._call.repeatable or surely_unbegun(error))
            or self._failures >= self._policy.max_attempts
            or budget <= 0
            or requested_wait > budget
            or self._clock.monotonic() + wait >= self._end
        ):
            if self._failures > 1:
                error.add_note(f"Gave up after {self._failures} attempts.")
            raise error
        self._waited += wait
        message = "attempt %d of %s failed, next one in %.1f s: %s"
        log.info(message, self._failures, self._call.path, wait, error)
        return wait

    def if_handed_back(self, count: int) -> float | None:
        """Return the wait before `count` items are asked for again, or None before a repetition is due."""
        if not count:
            return None
        try:
            return self.wait_after(DrainingError(f"{count} were handed back", retryable=True))
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
    lacking: Callable[[T], int] = lambda item: 0,
    completed: Callable[[T, T], T] = lambda item, later: later,
) -> Flow[T]:
    """Emit an item: the result of `parse` for the body of a success answer.

    `lacking` returns how much an item lacks. The flow then asks again within the retry limits, and
    `completed` fills gaps of the item from a later item. Without a later item, the
    first item is emitted unchanged.
    """
    patience = Patience(call, policy, clock)
    item = yield from _answered(call, policy, clock, patience, parse)
    missing = lacking(item)
    while (wait := patience.if_handed_back(missing)) is not None:
        yield Sleep(wait)
        try:
            later = yield from _answered(call, policy, clock, patience, parse)
            item = completed(item, later)
        except ProctorError as error:
            log.warning("%d results of %s are missing: %s", missing, call.path, error)
            break
        before, missing = missing, lacking(item)
        if missing < before:
            patience.note_progress()
    yield Emit(item)


def lines_flow(
    call: Call,
    parse: Callable[[bytes], T | wire.Problem],
    is_last: Callable[[T], bool],
    policy: Policy,
    clock: Clock,
) -> Flow[T]:
    """Emit the result of `parse` for each line of an answer. A broken answer is not resumed."""
    yield from _stream_begun(call, policy, clock, Patience(call, policy, clock))
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
                yield Read()  # read to the end, as in _read_results
                yield Emit(item)
                return
            yield Emit(item)
        if chunk is None:
            raise _ended_early(policy, retryable=False)


def _answered(
    call: Call,
    policy: Policy,
    clock: Clock,
    patience: Patience,
    parse: Callable[[bytes], T],
) -> Generator[Send | Sleep, Reply, T]:
    """Return the result of `parse` for the first success answer, after as many attempts as needed."""
    while True:
        answer = yield from _sound(call, policy, clock, patience, streams=False)
        try:
            return parse(answer.body)
        except NotJson as error:
            failure = _not_json(answer, error, call, policy)
        yield Sleep(patience.wait_after(failure))


def _stream_begun(
    call: Call, policy: Policy, clock: Clock, patience: Patience
) -> Generator[Send | Sleep, Reply, None]:
    """Begin a stream, after as many attempts as needed. Raises ProtocolError for another page."""
    answer = yield from _sound(call, policy, clock, patience, streams=True)
    if "json" not in answer.headers.get("content-type", "json"):
        raise _foreign(answer, call, policy)


def _sound(
    call: Call, policy: Policy, clock: Clock, patience: Patience, *, streams: bool
) -> Generator[Send | Sleep, Reply, Answer]:
    """Return the first success answer, after as many attempts as needed."""
    while True:
        reply = yield _send(call, policy, patience, streams=streams)
        _check_version(reply, policy)
        failure = _failure(reply, call, policy, clock)
        if failure is None:
            assert isinstance(reply, Answer)
            return reply
        yield Sleep(patience.wait_after(failure))


def _not_json(answer: Answer, error: ProtocolError, call: Call, policy: Policy) -> ProctorError:
    """Return the error for a body in another format than JSON: cut short, or of another program."""
    begin = answer.body.lstrip()[:1]
    if begin in (b"", b"{") and "json" in answer.headers.get("content-type", "json"):
        return ProctorConnectionError(f"{policy.url}: cut short, {error.message}", retryable=True)
    return _foreign(answer, call, policy)


def _foreign(answer: Answer, call: Call, policy: Policy) -> ProtocolError:
    secrets = (policy.secret, call.secret)
    return ProtocolError(describe_foreign(answer.body, answer.headers, secrets, policy.url))


def _check_version(reply: Reply, policy: Policy) -> None:
    """Raise ProtocolError for an answer in a newer version of the wire. Early services omit the version."""
    version = reply.headers.get(WIRE, "") if isinstance(reply, Answer) else ""
    if version.isdecimal() and len(version) <= 9 and int(version) > wire.WIRE_VERSION:
        raise ProtocolError(
            f"{policy.url}: the service speaks version {version} of the wire, and this client "
            f"version {wire.WIRE_VERSION}: update proctor-client"
        )


def stream_flow(
    call: Call, count: int, policy: Policy, clock: Clock
) -> Flow[wire.Result | wire.Summary]:
    """Emit each of `count` results once, over any number of connections; then the summary."""
    patience = Patience(call, policy, clock)
    seen: set[int] = set()
    while True:
        yield from _stream_begun(call, policy, clock, patience)
        back: dict[int, wire.Result] = {}
        ended = yield from _read_results(seen, back, count, policy, patience)
        if isinstance(ended, ProctorError):
            yield Sleep(patience.wait_after(ended))
            continue
        wait = patience.if_handed_back(len(back))
        if wait is None:
            break
        yield Sleep(wait)
    for result in back.values():
        yield Emit(result)
    yield Emit(ended)


def _read_results(
    seen: set[int], back: dict[int, wire.Result], count: int, policy: Policy, patience: Patience
) -> Generator[Read | Emit[wire.Result | wire.Summary], Reply, ProctorError | wire.Summary]:
    """Emit the new results of a connection, and collect results returned unjudged in `back`.

    Returns the connection's error, or the summary. Raises ProctorTimeoutError at the
    end of the call: a restarted service begins the batch's deadline anew.
    """
    lines = Lines()
    while True:
        chunk = yield Read(patience.left_seconds())
        if isinstance(chunk, ProctorError):
            return chunk
        assert not isinstance(chunk, Answer)
        for line in lines.feed(chunk):
            item = parse_line(line)
            if isinstance(item, wire.Problem):
                return from_problem(item, status=None, secrets=(policy.secret,))
            if isinstance(item, wire.Summary):
                check_complete(seen | back.keys(), count)
                # Reading to the end keeps the connection for the next call, and the service sees no
                # disconnect. The reply to this step does not matter.
                yield Read(patience.left_seconds())
                return item
            check_index(item, count)
            if item.index in seen:
                continue
            if is_back(item):
                back[item.index] = item
                continue
            seen.add(item.index)
            patience.note_progress()
            yield from patience.emit(item)
        if chunk is None:
            return _ended_early(policy, retryable=True)
        patience.check_end()


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
        left_seconds=patience.left_seconds(),
    )


def _failure(reply: Reply, call: Call, policy: Policy, clock: Clock) -> ProctorError | None:
    if isinstance(reply, ProctorError):
        return reply
    assert isinstance(reply, Answer)
    if reply.status in SOUND_STATUSES:
        return None
    now, secrets = clock.wall(), (policy.secret, call.secret)
    return from_answer(
        reply.status, reply.body, reply.headers, now=now, secrets=secrets, url=policy.url
    )


def _ended_early(policy: Policy, *, retryable: bool) -> ProctorError:
    return ProctorConnectionError(f"{policy.url}: the stream ended early", retryable=retryable)
