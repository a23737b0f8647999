"""A batch of items being judged: one task per item, the results as lines, and the readers.

A batch outlives its request: with an idempotency key a second request may join, and the batch
continues for a while after its client disconnects. Without readers the batch is cancelled; every
item without a result then gets the error `cancelled`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from proctor_service.api.rewards.items import Entry
from proctor_service.api.rewards.results import Line
from proctor_service.errors import Cancelled, JudgeFailed
from proctor_service.evaluate import Evaluate, Outcome
from proctor_service.scheduling.deadlines import AT_ONCE
from proctor_service.scheduling.queue import Reservation

log = logging.getLogger(__name__)

CLIENT_GONE = "the client went away"

Settle = Callable[[Mapping[int, Line]], Awaitable[Mapping[int, Line]]]
"""Function from new results to the valid results, by index: another replica may have been first."""


class Batch:
    """Batch of one request's items; must be created in a running event loop."""

    def __init__(
        self,
        entries: Sequence[Entry],
        evaluate: Evaluate,
        to_line: Callable[[Entry, Outcome], Line],
        places: Reservation,
        orphan_seconds: float = 0.0,
        kept: Mapping[int, Line] | None = None,
        settle: Settle | None = None,
    ) -> None:
        """`kept`: results from earlier work. `settle`: maps new results to the valid results."""
        self._entries = entries
        self._count = len(entries)
        first = entries[0].item
        self._tenant_and_job = (first.tenant, first.job)
        self._tags = list(first.tags)
        self._evaluate = evaluate
        self._to_line = to_line
        self._places = places
        self._orphan_seconds = orphan_seconds
        self._begun = time.monotonic()
        kept = dict(kept or {})
        self._lines: list[Line | None] = [kept.get(entry.index) for entry in entries]
        self._finished = sorted(kept)
        self._tasks: list[asyncio.Task[Outcome]] = []
        self._ended_because: str | None = None
        self._done = asyncio.Event()
        self._then: list[Callable[[], None]] = []
        self._readers: set[asyncio.Event] = set()
        self._orphan_timer: asyncio.TimerHandle | None = None
        self._settle = settle
        self._unsettled: dict[int, Line] = {}
        self._to_settle = asyncio.Event()
        self._starter = asyncio.create_task(self._start())
        self._settler = None if settle is None else asyncio.create_task(self._settle_all(settle))

    @property
    def done(self) -> bool:
        """True when every item has its result."""
        return self._done.is_set()

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the results, in bytes."""
        return sum(len(line.json) + 200 for line in self._lines if line is not None)

    @property
    def retryable(self) -> bool:
        """True if the batch is done and a repeated request would judge some items again."""
        return self.done and any(line.retryable for line in self.lines())

    def lines(self) -> list[Line]:
        """Return the results in the order of the request; only valid when the batch is done."""
        return [line for line in self._lines if line is not None]

    def judged(self) -> dict[int, Line]:
        """Return the final results by index, without retryable errors."""
        found = enumerate(self._lines)
        return {index: line for index, line in found if line is not None and not line.retryable}

    def finished(self, after: int, most: int) -> list[Line]:
        """Return up to `most` results in the order of completion, from position `after` on."""
        found = (self._lines[index] for index in self._finished[after : after + most])
        return [line for line in found if line is not None]

    def when_done(self, then: Callable[[], None]) -> None:
        """Call `then` when the batch is done, or at once if already done."""
        if self.done:
            then()
        else:
            self._then.append(then)

    async def wait(self) -> None:
        """Wait until the batch is done."""
        await self._done.wait()

    @contextmanager
    def reading(self) -> Iterator[asyncio.Event]:
        """Join as a reader. The event is set for each new result; the reader clears the event."""
        more = asyncio.Event()
        more.set()
        self._readers.add(more)
        if self._orphan_timer is not None:
            self._orphan_timer.cancel()
            self._orphan_timer = None
        try:
            yield more
        finally:
            self._readers.discard(more)
            if not self._readers and not self.done:
                self._abandoned()

    def cancel(self, why: str) -> None:
        """End the batch: each item without a result gets the error `cancelled`."""
        if self._ended_because is None and not self.done:
            self._ended_because = why
            # Last items first, so running items leave their slots to other batches.
            self._cancel_slice(len(self._tasks))

    def _abandoned(self) -> None:
        if self._orphan_seconds == 0:
            self.cancel(CLIENT_GONE)
            return
        loop = asyncio.get_running_loop()
        self._orphan_timer = loop.call_later(self._orphan_seconds, self.cancel, CLIENT_GONE)

    def _cancel_slice(self, end: int) -> None:
        start = max(end - AT_ONCE, 0)
        for task in reversed(self._tasks[start:end]):
            task.cancel()
        if start > 0:
            asyncio.get_running_loop().call_soon(self._cancel_slice, start)

    async def _start(self) -> None:
        """Create a task for each item, a slice per turn of the loop."""
        if len(self._finished) == self._count:
            self._end()
        for number, entry in enumerate(self._entries):
            if self._lines[number] is not None:
                continue
            if self._ended_because is not None:
                self._record(entry, Outcome(failure=Cancelled(self._ended_because)))
            else:
                task = asyncio.create_task(self._judge(entry))
                task.add_done_callback(partial(self._on_done, entry))
                self._tasks.append(task)
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)

    async def _judge(self, entry: Entry) -> Outcome:
        return await self._evaluate(entry.item)

    def _on_done(self, entry: Entry, task: asyncio.Task[Outcome]) -> None:
        # A callback, since a task cancelled before its first step runs no code.
        if task.cancelled():
            why = self._ended_because or "it was cancelled"
            outcome = Outcome(failure=Cancelled(why))
        elif (error := task.exception()) is not None:
            outcome = self._fault(entry, error)
        else:
            outcome = task.result()
        self._record(entry, outcome)

    def _fault(self, entry: Entry, error: BaseException) -> Outcome:
        evaluation_id = entry.item.evaluation_id
        log.error("an item failed", exc_info=error, extra={"evaluation_id": evaluation_id})
        message = f"a fault of the service; its log has it under {evaluation_id}"
        return Outcome(failure=JudgeFailed(message))

    def _record(self, entry: Entry, outcome: Outcome) -> None:
        try:
            line = self._to_line(entry, outcome)
        except Exception as error:
            line = self._to_line(entry, self._fault(entry, error))
        self._places.give_back()
        if self._settle is None or line.retryable:
            self._publish(entry.index, line)
        else:
            self._unsettled[entry.index] = line
            self._to_settle.set()

    async def _settle_all(self, settle: Settle) -> None:
        """Settle all recorded results together, repeatedly, until the batch is done."""
        while not self.done:
            await self._to_settle.wait()
            self._to_settle.clear()
            lines, self._unsettled = self._unsettled, {}
            try:
                standing = await settle(lines) if lines else {}
            except Exception:
                log.exception("results were not shared")
                standing = lines
            for index, line in lines.items():
                self._publish(index, standing.get(index, line))

    def _publish(self, index: int, line: Line) -> None:
        self._lines[index] = line
        self._finished.append(index)
        if len(self._finished) == self._count:
            self._end()
        for reader in self._readers:
            reader.set()

    def _end(self) -> None:
        self._places.close()
        # Results may be kept for an hour; the submissions are no longer needed.
        self._tasks.clear()
        self._entries = ()
        self._done.set()
        self._to_settle.set()
        self._log_end()
        for then in self._then:
            then()
        self._then.clear()

    def _log_end(self) -> None:
        verdicts = Counter(line.verdict or "error" for line in self.lines())
        log.info(
            "judged",
            extra={
                "tenant": self._tenant_and_job[0],
                "job": self._tenant_and_job[1],
                "tags": self._tags,
                "count": self._count,
                "verdicts": dict(verdicts),
                "seconds": round(time.monotonic() - self._begun, 3),
            },
        )
