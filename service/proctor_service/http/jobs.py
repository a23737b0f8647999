"""Jobs: the items of a request under way, their results, and their readers.

A batch of rewards, a rollout, a compatible request and the creation of a sandbox are jobs; the
arguments of `Job` are the differences. A job outlives its request: a repeated request may join, and
the job continues for a while after its last reader has left. Then the job is cancelled, and every
item without a result gets the error `cancelled`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from operator import call
from typing import Any, Generic, Protocol, TypeVar, cast

from proctor_service.errors import Cancelled
from proctor_service.scheduling.deadlines import AT_ONCE
from proctor_service.scheduling.places import Reservation

log = logging.getLogger(__name__)

CLIENT_GONE = "the client went away"


class Result(Protocol):
    """Result of an item. `retryable`: a repeated request does the item again."""

    @property
    def retryable(self) -> bool:
        """True for an error that may pass."""

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the result."""


R = TypeVar("R", bound=Result)
T = TypeVar("T")
Work = Callable[[Any], Awaitable[Any]]
"""Function that does one item."""
Share = Callable[[Mapping[int, R]], Awaitable[Mapping[int, R]]]
"""Function from new results to the valid results, by index: another replica may have been first."""


class Job(Generic[R]):
    """Items of a request under way; must be created in a running event loop.

    `opening`: context of all items, which yields the function that does one item. `to_result`: maps
    an item, and its value or exception, to its result. `running`: the set that holds the job until
    the job is done. `places`: queue capacity of the items. `orphan_seconds`: time without readers
    after which the job is cancelled. `known`: results from earlier work. `share`: maps new results
    to the valid results. `once_taken`: maps a result that a reader has taken to its remains.
    `size_bytes`: memory of the job, besides its results. The attribute `done` is True when every
    item has its result.
    """

    def __init__(
        self,
        items: Sequence[Any],
        opening: AbstractAsyncContextManager[Work],
        to_result: Callable[[Any, Any], R],
        running: set[Job[R]],
        *,
        places: Reservation | None = None,
        orphan_seconds: float = 0.0,
        known: Mapping[int, R] | None = None,
        share: Share[R] | None = None,
        once_taken: Callable[[R], R] | None = None,
        size_bytes: int = 0,
    ) -> None:
        known = known or {}
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
        self._results: list[R | None] = [known.get(index) for index in range(len(items))]
        self._finished = sorted(known)
        self._unshared: dict[int, R] = {}
        self._tasks: list[asyncio.Future[Any]] = []
        self._ended_because: str | None = None
        self._readers = 0
        self._orphan_timer: asyncio.TimerHandle | None = None
        self._recorded = asyncio.Event()
        self._more: asyncio.Event | None = None  # made by a reader that waits for a result
        self._ended = asyncio.Event()
        self._then: list[Callable[[], object]] = [partial(running.discard, self)]
        running.add(self)
        self._runner = asyncio.create_task(self._run())
        # A callback, since a task cancelled before its first step runs no code.
        self._runner.add_done_callback(self._end)

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the job, in bytes."""
        return self._size_bytes + sum(each.size_bytes for each in self.results())

    @property
    def retryable(self) -> bool:
        """True if the job is done and a repeated request would do some items again."""
        return self.done and any(each.retryable for each in self.results())

    def results(self) -> list[R]:
        """Return the results in the order of the request; complete when the job is done."""
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
        """Call `then` when the job is done, or at once if already done."""
        if self.done:
            then()
        else:
            self._then.append(then)

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until the job is done; return False if the job takes longer than `seconds`."""
        if seconds is None:
            return await self._ended.wait()
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                return await self._ended.wait()
        except TimeoutError:
            return False

    async def progress(self) -> None:
        """Wait for the next result, or until the job is done."""
        if self._more is None:
            self._more = asyncio.Event()
        await self._more.wait()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Join as a reader; after the last reader has left, the job is cancelled."""
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
        """End the job: each item without a result gets the error `cancelled`."""
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
        self._wake_readers()

    def _wake_readers(self) -> None:
        if self._more is not None:
            self._more.set()
            self._more = None

    def _end(self, runner: asyncio.Task[None]) -> None:
        """Give all items a result, if the opening failed or was cancelled; end the job."""
        error = None if runner.cancelled() else runner.exception()
        self._share = None
        for index, result in enumerate(self._results):
            if result is None:
                why = Cancelled(self._ended_because or "it was cancelled")
                self._record(index, why if error is None else error)
        if self._places is not None:
            self._places.close()
        if self._orphan_timer is not None:
            self._orphan_timer.cancel()
        # Results may be kept for an hour; the items are no longer needed.
        self._tasks.clear()
        self._items = ()
        self.done = True
        self._ended.set()
        self._wake_readers()
        for then in self._then:
            then()
        self._then.clear()


@dataclass(frozen=True, slots=True)
class Value(Generic[T]):
    """Result of a job with a single item: its value or its error."""

    value: T | None = None
    error: BaseException | None = None
    size_bytes: int = 0

    @property
    def retryable(self) -> bool:
        """True for any error."""
        return self.error is not None


def job_of(
    do: Callable[[], Awaitable[T]],
    running: set[Job[Value[T]]],
    size_bytes: int,
    orphan_seconds: float = 0.0,
) -> Job[Value[T]]:
    """Return a job with a single item, the call of `do`."""
    return Job(
        [do],
        nullcontext(call),
        lambda item, outcome: (
            Value(error=outcome) if isinstance(outcome, BaseException) else Value(outcome)
        ),
        running,
        orphan_seconds=orphan_seconds,
        size_bytes=size_bytes,
    )


def value_of(job: Job[Value[T]]) -> T:
    """Return the value of a finished job with a single item. Raises the error of the item."""
    [result] = job.results()
    if result.error is not None:
        raise result.error
    return cast(T, result.value)
