"""Observers of the service's work: metrics, traces, the journal and the readiness probe.

An observer implements the events of interest. `Observers` tells all of them; their order is free, and the
failure of an observer is logged and leaves the results unchanged. Every event of a piece of work is told
in the task that does the work, so an observer may set a context variable from its beginning to its end.
Each beginning has exactly one end: `ended`, `judged` or `answered`, or else `interrupted` or `failed`,
which includes a cancellation.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Concatenate, ParamSpec

from proctor_service.errors import Failure, HandedBack
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.outcomes import Item, Outcome, Trajectory, TrajectoryPlan
from proctor_service.sandbox.interface import (
    DEFAULT,
    HASH_SEEDS,
    Limits,
    PassedSandboxes,
    Sandbox,
    Sandboxes,
)

log = logging.getLogger(__name__)

Events = ParamSpec("Events")
Leased = Callable[[str, int, int, str], None]
"""Receiver of a lease: see `Observer.leased`."""


class Observer:
    """Base of observers: every event is ignored."""

    def item_begun(self, item: Item) -> None:
        """The evaluator has got an item."""

    def item_ended(self, item: Item, outcome: Outcome, seconds: float) -> None:
        """An item has its outcome, after so many seconds in queue and judge."""

    def item_recalled(self, item: Item, outcome: Outcome) -> None:
        """A request gets an outcome of another replica, possibly gone since."""

    def item_interrupted(self, item: Item, error: BaseException) -> None:
        """An item ends without an outcome."""

    def attempt_begun(self, submission: Submission) -> None:
        """The judge gets a submission, for the first time or again."""

    def attempt_judged(self, submission: Submission, judgement: Judgement, seconds: float) -> None:
        """The judge has a judgement after so many seconds."""

    def attempt_failed(self, submission: Submission, error: BaseException) -> None:
        """The judge raised an error. With HandedBack, the submission waits for another ticket."""

    def leased(self, sandbox_id: str, begun_ns: int, ended_ns: int, reason: str) -> None:
        """A lease has ended, within an attempt; times in nanoseconds since the epoch.

        `sandbox_id` is empty if no sandbox was available, `reason` is empty without a failure.
        """

    def trajectory_begun(self, plan: TrajectoryPlan) -> None:
        """A trajectory begins."""

    def trajectory_ended(self, plan: TrajectoryPlan, trajectory: Trajectory) -> None:
        """A trajectory has ended with a verdict or a failure."""

    def trajectory_interrupted(self, plan: TrajectoryPlan, error: BaseException) -> None:
        """A trajectory ends without a result."""

    def policy_asked(self, model: str) -> None:
        """A request to a policy begins."""

    def policy_answered(self, model: str, seconds: float) -> None:
        """A policy has answered, with retries, after so many seconds."""

    def policy_failed(self, model: str, error: BaseException, seconds: float) -> None:
        """A request to a policy failed."""

    def traceparent(self) -> str:
        """Return the span of the current work as a `traceparent` header, or an empty text."""
        return ""


class Observers:
    """All observers of an app.

    `follow_work`: an observer listens to beginnings or leases, which few do. The way of a reward
    skips these events otherwise.
    """

    def __init__(self, *observers: Observer) -> None:
        self._listeners = {
            event: tuple(
                getattr(each, name) for each in observers if getattr(type(each), name) is not event
            )
            for name, event in vars(Observer).items()
            if not name.startswith("_")
        }
        events = (Observer.item_begun, Observer.attempt_begun, Observer.leased)
        self.follow_work = any(self._listeners[event] for event in events)

    def hears(self, event: Callable[..., None]) -> bool:
        """Return True if an observer listens to an event, such as `Observer.item_recalled`."""
        return bool(self._listeners[event])

    def notify(
        self,
        event: Callable[Concatenate[Observer, Events], None],
        *values: Events.args,
        **_: Events.kwargs,
    ) -> None:
        """Tell each listening observer: `notify(Observer.item_begun, item)`."""
        for listener in self._listeners[event]:
            try:
                listener(*values)
            except Exception:
                log.exception("an observer failed", extra={"event": event.__name__})

    def recalled(self, item: Item, outcome: Outcome) -> None:
        """Tell each observer of an outcome reached by another replica."""
        self.notify(Observer.item_recalled, item, outcome)

    def leased(self, sandbox_id: str, begun_ns: int, ended_ns: int, reason: str) -> None:
        """Tell each observer of a lease."""
        self.notify(Observer.leased, sandbox_id, begun_ns, ended_ns, reason)

    def traceparent(self) -> str:
        """Return the span of the current work as a `traceparent` header, or an empty text."""
        found = (listener() for listener in self._listeners[Observer.traceparent])
        return next(filter(None, found), "")


NO_OBSERVERS = Observers()


class ObservedSandboxes(PassedSandboxes):
    """Source of sandboxes that tells `leased` of each lease, but for stateful sandboxes."""

    def __init__(self, sandboxes: Sandboxes, leased: Leased) -> None:
        super().__init__(sandboxes)
        self._leased = leased

    @asynccontextmanager
    async def lease(
        self, limits: Limits, environment: str = DEFAULT, hash_seed: int = HASH_SEEDS[0]
    ) -> AsyncIterator[Sandbox]:
        """Lease a sandbox."""
        begun, sandbox_id, reason = time.time_ns(), "", ""
        try:
            async with self._sandboxes.lease(limits, environment, hash_seed) as sandbox:
                sandbox_id = sandbox.id
                yield sandbox
        except BaseException as error:
            reason = reason_of(error)
            raise
        finally:
            self._leased(sandbox_id, begun, time.time_ns(), reason)


def reason_of(error: BaseException) -> str:
    """Return the stable name of a failure; empty for a submission handed back by its judge."""
    if isinstance(error, HandedBack):
        return ""
    return error.reason if isinstance(error, Failure) else type(error).__name__
