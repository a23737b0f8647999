"""Calls waiting for a shared request, and their answers, for threads and for event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from proctor_trainers.answers import Answer

AnswerFuture: TypeAlias = Future[Answer] | asyncio.Future[Answer]


@dataclass(frozen=True)
class Place:
    """Meeting place of calls with the same step, in a loop (None: in all threads)."""

    loop: asyncio.AbstractEventLoop | None
    step: int | None


@dataclass(eq=False)
class Collected:
    """The calls of a request, in their order; `sending` is the task of the request."""

    place: Place
    submissions: list[Mapping[str, Any]] = field(default_factory=list)
    waiting: list[AnswerFuture] = field(default_factory=list)
    sending: asyncio.Task[None] | None = None

    def add(self, submission: Mapping[str, Any], future: AnswerFuture) -> None:
        """Add a call, with its caller's future."""
        self.submissions.append(submission)
        self.waiting.append(future)

    def set_answer(self, index: int, answer: Answer) -> None:
        """Give a waiting caller its answer; cancelled callers are gone."""
        if not self.waiting[index].done():
            self.waiting[index].set_result(answer)

    def fail(self, error: BaseException) -> int:
        """Raise the error in each waiting caller, and return their number.

        Ctrl-C and a cancellation are for a single thread or task: other callers get an unjudged answer.
        """
        left = [future for future in self.waiting if not future.done()]
        for future in left:
            if isinstance(error, Exception):
                future.set_exception(error)
            else:
                future.set_result(Answer.unjudged("cancelled", "the request was interrupted"))
        return len(left)

    @property
    def is_abandoned(self) -> bool:
        """True if all callers were cancelled."""
        return all(each.cancelled() for each in self.waiting)

    def answers(self) -> list[Answer]:
        """Return the answers of the uncancelled callers."""
        return [each.result() for each in self.waiting if each.done() and not each.cancelled()]


@dataclass(eq=False)
class Collection:
    """A process's waiting calls, and its number of open requests."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    by_place: dict[Place, Collected] = field(default_factory=dict)
    in_flight: int = 0

    def join(
        self,
        place: Place,
        submission: Mapping[str, Any],
        future: AnswerFuture,
        most: int,
        begin: Callable[[Collected], None] | None = None,
    ) -> tuple[Collected, bool]:
        """Add a call at this place; return its batch, and True if the call is the batch's first.

        `begin` is called for a first call. A batch with `most` calls is full.
        """
        with self.lock:
            batch = self.by_place.get(place)
            is_first = batch is None
            if batch is None:
                batch = self.by_place[place] = Collected(place)
                if begin is not None:
                    begin(batch)
            batch.add(submission, future)
            if len(batch.waiting) >= most:
                del self.by_place[place]
            return batch, is_first

    def close(self, batch: Collected) -> None:
        """Close the batch for further calls."""
        with self.lock:
            if self.by_place.get(batch.place) is batch:
                del self.by_place[batch.place]
