"""Responses: JSON in a single piece, or the results of a task as JSON or NDJSON while they finish.

A task is the items of a request under way, with their results and their readers: a batch of rewards, a
rollout, a compatible request, the creation of a sandbox; the arguments of `RequestTask` are the
differences. A task outlives its request: a repeated request may join, and the task continues for a while
after its last reader has left. Then the task is cancelled, and every item without a result gets the error
`cancelled`. A response in pieces watches its connection: work ends with the connection of its last
client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    aclosing,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass
from functools import partial
from operator import call
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar, cast

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from proctor_service.errors import Cancelled
from proctor_service.http.json import encode
from proctor_service.scheduling.fair_share import Reservation
from proctor_service.scheduling.queue import AT_ONCE

log = logging.getLogger(__name__)

NDJSON = "application/x-ndjson"
PIECE_BYTES = 1 << 18
CLIENT_GONE = "the client went away"
_NONE: Mapping[str, str] = MappingProxyType({})


class Result(Protocol):
    """Result of an item. `retryable`: a repeated request does the item again."""

    @property
    def retryable(self) -> bool:
        """True for a temporary error."""

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the result."""


R = TypeVar("R", bound=Result)
T = TypeVar("T")
Work = Callable[[Any], Awaitable[Any]]
"""Function that does one item."""
Share = Callable[[Mapping[int, R]], Awaitable[Mapping[int, R]]]
"""Function from new results to the valid results, by index: another replica may have been first."""


class RequestTask(Generic[R]):
    """Items of a request under way; must be created in a running event loop.

    `opening`: context of all items, which yields the function to do an item. `to_result`: maps an item,
    and its value or exception, to its result. `running`: the set holding the task until the task is done.
    `places`: queue capacity of the items. `orphan_seconds`: time without readers after which the task is
    cancelled. `earlier`: results from earlier work. `share`: maps new results to the valid results.
    `once_taken`: maps a result taken by a reader to its remains. `size_bytes`: memory of the task,
    besides its results. The attribute `done` is True when every item has its result.
    """

    def __init__(
        self,
        items: Sequence[Any],
        opening: AbstractAsyncContextManager[Work],
        to_result: Callable[[Any, Any], R],
        running: set[RequestTask[R]],
        *,
        places: Reservation | None = None,
        orphan_seconds: float = 0.0,
        earlier: Mapping[int, R] | None = None,
        share: Share[R] | None = None,
        once_taken: Callable[[R], R] | None = None,
        size_bytes: int = 0,
    ) -> None:
        earlier = earlier or {}
        self.done = False
        self._items = items
        self._opening = opening
        self._opened = False
        self._to_result = to_result
        self._places = places
        self._orphan_seconds = orphan_seconds
        self._share = share
        self._once_taken = once_taken
        self._size_bytes = size_bytes
        self._results: list[R | None] = [earlier.get(index) for index in range(len(items))]
        self._finished = sorted(earlier)
        self._unshared: dict[int, R] = {}
        self._tasks: list[asyncio.Future[Any]] = []
        self._ended_because: str | None = None
        self._readers = 0
        self._orphan_timer: asyncio.TimerHandle | None = None
        self._recorded = asyncio.Event()
        self._more = asyncio.Event()
        self._ended = asyncio.Event()
        self._then: list[Callable[[], object]] = [partial(running.discard, self)]
        running.add(self)
        self._runner = asyncio.create_task(self._run())
        # A callback, since a task cancelled before its first step runs no code.
        self._runner.add_done_callback(self._end)

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the task, in bytes."""
        return self._size_bytes + sum(each.size_bytes for each in self.results())

    @property
    def retryable(self) -> bool:
        """True if the task is done and a repeated request would do some items again."""
        return self.done and any(each.retryable for each in self.results())

    def results(self) -> list[R]:
        """Return the results in the order of the request; complete when the task is done."""
        return [each for each in self._results if each is not None]

    def final(self) -> dict[int, R]:
        """Return the results by index, without retryable errors."""
        found = enumerate(self._results)
        return {index: each for index, each in found if each is not None and not each.retryable}

    def finished(self, after: int, most: int) -> list[R]:
        """Return up to `most` results in the order of completion, from position `after` on."""
        found: list[R] = []
        for index in self._finished[after : after + most]:
            result = self._results[index]
            assert result is not None, "finished"
            found.append(result)
            if self._once_taken is not None:
                self._results[index] = self._once_taken(result)
        return found

    def when_done(self, then: Callable[[], object]) -> None:
        """Call `then` when the task is done, or at once if already done."""
        if self.done:
            then()
        else:
            self._then.append(then)

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until the task is done; return False if the task takes longer than `seconds`."""
        if seconds is None:
            return await self._ended.wait()
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                return await self._ended.wait()
        except TimeoutError:
            return False

    async def progress(self) -> None:
        """Wait for the next result, or until the task is done."""
        await self._more.wait()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Join as a reader; after the last reader has left, the task is cancelled."""
        self._readers += 1
        if self._orphan_timer is not None:
            self._orphan_timer.cancel()
            self._orphan_timer = None
        try:
            yield
        finally:
            self._readers -= 1
            if not (self._readers or self.done or self._ended_because):
                if self._orphan_seconds == 0:
                    self.cancel(CLIENT_GONE)
                else:
                    later = asyncio.get_running_loop().call_later
                    self._orphan_timer = later(self._orphan_seconds, self.cancel, CLIENT_GONE)

    def cancel(self, why: str) -> None:
        """End the task: each item without a result gets the error `cancelled`."""
        if self._ended_because is None and not self.done:
            self._ended_because = why
            if self._opened:
                # Last items first, so running items leave their slots to other jobs.
                self._cancel_slice(len(self._tasks))
            else:
                self._runner.cancel()

    def _cancel_slice(self, end: int) -> None:
        start = max(end - AT_ONCE, 0)
        for task in reversed(self._tasks[start:end]):
            task.cancel()
        if start > 0:
            asyncio.get_running_loop().call_soon(self._cancel_slice, start)

    async def _run(self) -> None:
        """Create a task for each item, a slice per turn of the loop; then share the results."""
        async with self._opening as work:
            self._opened = True
            for index, item in enumerate(self._items):
                if self._results[index] is not None:
                    continue
                if self._ended_because is not None:
                    self._record(index, Cancelled(self._ended_because))
                else:
                    task = asyncio.ensure_future(work(item))
                    task.add_done_callback(partial(self._on_done, index))
                    self._tasks.append(task)
                if index % AT_ONCE == AT_ONCE - 1:
                    await asyncio.sleep(0)
            while len(self._finished) < len(self._results):
                await self._recorded.wait()
                self._recorded.clear()
                if self._share is not None and self._unshared:
                    await self._publish_shared(self._share)

    async def _publish_shared(self, share: Share[R]) -> None:
        """Share all recorded results together, and publish the valid results."""
        found, self._unshared = self._unshared, {}
        valid: Mapping[int, R] = {}
        try:
            valid = await share(found)
        except Exception:
            log.exception("results were not shared")
        for index, result in found.items():
            self._publish(index, valid.get(index, result))

    def _on_done(self, index: int, task: asyncio.Future[Any]) -> None:
        if self.done:  # the event loop ends, and cancels all tasks
            return
        if task.cancelled():
            self._record(index, Cancelled(self._ended_because or "it was cancelled"))
        else:
            error = task.exception()
            self._record(index, task.result() if error is None else error)

    def _record(self, index: int, outcome: Any) -> None:
        item = self._items[index]
        try:
            result = self._to_result(item, outcome)
        except Exception as error:
            result = self._to_result(item, error)
        if self._places is not None:
            self._places.give_back()
        if self._share is None or result.retryable:
            self._publish(index, result)
        else:
            self._unshared[index] = result
            self._recorded.set()

    def _publish(self, index: int, result: R) -> None:
        self._results[index] = result
        self._finished.append(index)
        if len(self._finished) == len(self._results):
            self._recorded.set()
        self._more.set()  # wakes the readers that wait now
        self._more.clear()

    def _end(self, runner: asyncio.Task[None]) -> None:
        """Give all items a result, if the opening failed or was cancelled; end the task."""
        error = None if runner.cancelled() else runner.exception()
        self._share = None
        for index, result in enumerate(self._results):
            if result is None:
                why = Cancelled(self._ended_because or "it was cancelled")
                self._record(index, why if error is None else error)
        if self._places is not None and self._places.left:
            self._places.close()
        if self._orphan_timer is not None:
            self._orphan_timer.cancel()
        # Results may be kept for an hour; the items are no longer needed.
        self._tasks.clear()
        self._items = ()
        self.done = True
        self._ended.set()
        self._more.set()
        for then in self._then:
            then()
        self._then.clear()


@dataclass(frozen=True, slots=True)
class Value(Generic[T]):
    """Result of a task with a single item: its value or its error."""

    value: T | None = None
    error: BaseException | None = None
    size_bytes: int = 0

    @property
    def retryable(self) -> bool:
        """True for any error."""
        return self.error is not None


def task_of(
    do: Callable[[], Awaitable[T]],
    running: set[RequestTask[Value[T]]],
    size_bytes: int,
    orphan_seconds: float = 0.0,
) -> RequestTask[Value[T]]:
    """Return a task with a single item, the call of `do`."""
    return RequestTask(
        [do],
        nullcontext(call),
        lambda item, outcome: (
            Value(error=outcome) if isinstance(outcome, BaseException) else Value(outcome)
        ),
        running,
        orphan_seconds=orphan_seconds,
        size_bytes=size_bytes,
    )


def value_of(task: RequestTask[Value[T]]) -> T:
    """Return the value of a finished task with a single item. Raises the error of the item."""
    [result] = task.results()
    if result.error is not None:
        raise result.error
    return cast(T, result.value)


@dataclass(frozen=True, slots=True)
class Line:
    """An encoded result, with the fields needed by a summary and by a repeated request."""

    json: bytes
    reward: float | None
    verdict: str | None
    retryable: bool = False

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the line."""
        return len(self.json) + 200


def json_response(body: dict[str, Any], status: int = 200) -> Response:
    """Return a response with a JSON object."""
    return Response(encode(body), status, media_type="application/json")


def response_of(
    pieces: Sequence[bytes], media_type: str, status: int = 200, headers: Mapping[str, str] = _NONE
) -> Response:
    """Return a response with the given content; long content is sent in these pieces."""
    size = sum(map(len, pieces))
    if size <= PIECE_BYTES:
        return Response(b"".join(pieces), status, headers, media_type)
    response = StreamedResponse(_each(pieces), media_type, status=status)
    response.headers.update({**headers, "content-length": str(size)})
    return response


async def _each(pieces: Sequence[bytes]) -> AsyncGenerator[bytes]:
    for piece in pieces:
        yield piece


async def while_connected(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Return the result of the work; the request's body must be fully read before.

    Raises the errors of the work, and ClientDisconnect if the client disconnects first: the work is
    then cancelled, and has ended.
    """

    async def watch(limit: asyncio.Timeout) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        limit.reschedule(asyncio.get_running_loop().time())

    try:
        async with asyncio.timeout(None) as limit:
            watching = asyncio.create_task(watch(limit))
            try:
                return await work
            finally:
                watching.cancel()
    except TimeoutError:
        if not limit.expired():
            raise
        raise ClientDisconnect from None


class StreamedResponse(Response):
    """A response in pieces, which end when the client disconnects.

    The headers are sent with the first piece, so an earlier error can still be an error response.
    `reading`: context held open until the last piece.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes],
        media_type: str,
        reading: AbstractContextManager[None] | None = None,
        status: int = 200,
    ) -> None:
        super().__init__(status_code=status, media_type=media_type)
        del self.headers["content-length"]
        self._pieces = pieces
        self._reading = reading or nullcontext()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all pieces, or stop when the client disconnects."""
        with self._reading, suppress(ClientDisconnect):
            await while_connected(self._send(send), receive)

    async def _send(self, send: Send) -> None:
        start: Message | None = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                if start is not None:
                    await send(start)
                    start = None
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """Format of a task's response: a JSON object with `field`, or NDJSON `by_line`.

    `counted`: the verdicts counted in the summary. `at_once`: the most results in a piece.
    `headers_first`: send the headers at once. `gather_seconds`: time in which further results come
    into the same piece, since a receiver pays for each piece.
    """

    field: str
    counted: Collection[str]
    by_line: bool
    at_once: int
    headers_first: bool
    gather_seconds: float = 0.0


def task_response(task: RequestTask[Line], form: AnswerFormat) -> StreamedResponse:
    """Return the response with the results of a task, which is left when the client disconnects."""
    if form.by_line:
        return StreamedResponse(_lines(task, form), NDJSON, task.reading())
    return StreamedResponse(_object(task, form), "application/json", task.reading())


async def _lines(task: RequestTask[Line], form: AnswerFormat) -> AsyncGenerator[bytes]:
    yield b""  # sends the headers
    sent = 0
    while True:
        if found := task.finished(sent, form.at_once):
            sent += len(found)
            yield b"".join(each.json + b"\n" for each in found)
        elif task.done:
            break
        else:
            await task.progress()
            if form.gather_seconds:
                await task.wait(form.gather_seconds)
    yield b'{"summary":' + _summary(task.results(), form) + b"}\n"


async def _object(task: RequestTask[Line], form: AnswerFormat) -> AsyncGenerator[bytes]:
    if form.headers_first:
        yield b""
    await task.wait()
    lines = task.results()
    piece = b'{"%s":[' % form.field.encode()
    for start in range(0, len(lines), form.at_once):
        if start:
            yield piece
            piece = b","
        piece += b",".join(each.json for each in lines[start : start + form.at_once])
    yield piece + b'],"summary":' + _summary(lines, form) + b"}"


def _summary(lines: Collection[Line], form: AnswerFormat) -> bytes:
    rewards = [each.reward for each in lines if each.reward is not None]
    verdicts = [each.verdict for each in lines]
    return encode(
        {
            "count": len(lines),
            "judged": len(rewards),
            **{verdict: verdicts.count(verdict) for verdict in form.counted},
            "errors": len(lines) - len(rewards),
            "mean_reward": sum(rewards) / len(rewards) if rewards else None,
        }
    )
