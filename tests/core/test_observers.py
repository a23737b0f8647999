"""Observers: each sees all that happens, in any order, and none of them changes a reward."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import cast

import pytest
from harness import NoBackend

from proctor_client.wire import ExecGrader
from proctor_service.errors import HandedBack, InvalidTask, SandboxLost, SandboxUnavailable
from proctor_service.evaluate import Evaluator
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.observe.observer import ObservedSandboxes, Observer, Observers
from proctor_service.outcomes import Item, NoCode, Outcome, outcome_bytes
from proctor_service.sandbox.interface import DEFAULT, Limits, Sandbox, Sandboxes
from proctor_service.scheduling.queue import Deadlines, FairQueue
from proctor_service.scheduling.result_cache import Cache

LIMITS = Limits(1, 1, 64, 64, 8, 8)
SUBMISSION = Submission("x = 1", ExecGrader(kind="exec"), LIMITS)
ITEM = Item("ev_1", SUBMISSION, "t", "j", 1e9)
PASSED = Judgement("passed")
SPAN: ContextVar[str] = ContextVar("SPAN", default="")
EVENTS = [name for name in vars(Observer) if not name.startswith("_") and name != "traceparent"]


class Listener(Observer):
    """Notes the ends of items and attempts, and listens to no beginning."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.items: list[Item] = []

    def item_ended(self, item: Item, outcome: Outcome, seconds: float) -> None:
        self.events.append(f"item ended {outcome.reward}")
        self.items.append(item)

    def item_interrupted(self, item: Item, error: BaseException) -> None:
        self.events.append(f"item interrupted {type(error).__name__}")

    def attempt_judged(self, submission: Submission, judgement: Judgement, seconds: float) -> None:
        self.events.append(f"judged {judgement.verdict}")

    def attempt_failed(self, submission: Submission, error: BaseException) -> None:
        self.events.append(f"failed {type(error).__name__}")


class Follower(Listener):
    """Notes beginnings too, and keeps a context variable during the work."""

    def item_begun(self, item: Item) -> None:
        self.events.append("item begun")
        SPAN.set("item")

    def item_ended(self, item: Item, outcome: Outcome, seconds: float) -> None:
        super().item_ended(item, outcome, seconds)
        assert SPAN.get() == "item"
        SPAN.set("")

    def attempt_begun(self, submission: Submission) -> None:
        self.events.append("attempt begun")
        SPAN.set("attempt")

    def attempt_judged(self, submission: Submission, judgement: Judgement, seconds: float) -> None:
        super().attempt_judged(submission, judgement, seconds)
        SPAN.set("item")

    def attempt_failed(self, submission: Submission, error: BaseException) -> None:
        super().attempt_failed(submission, error)
        SPAN.set("item")

    def traceparent(self) -> str:
        return f"span of {SPAN.get()}"


def broken() -> Observer:
    """An observer that fails at every event."""

    def fail(*_: object) -> None:
        raise ValueError("an observer's own fault")

    made = type("Broken", (Observer,), dict.fromkeys(EVENTS, fail))()
    assert isinstance(made, Observer)
    return made


def evaluator(observers: Observers, *ends: Judgement | BaseException) -> Evaluator:
    left = list(ends)

    async def judge(submission: Submission, sandboxes: Sandboxes) -> Judgement:
        end = left.pop(0)
        if isinstance(end, BaseException):
            raise end
        return end

    deadlines = Deadlines()
    cache = Cache[Outcome](10, 10_000, outcome_bytes, deadlines)
    return Evaluator(judge, NoBackend(), FairQueue(1, 10, deadlines), cache, observers)


@pytest.mark.parametrize(
    ("ends", "events"),
    [
        ([PASSED], ["judged passed", "item ended 1.0"]),
        ([SandboxLost("x"), PASSED], ["failed SandboxLost", "judged passed", "item ended 1.0"]),
        ([HandedBack("x"), PASSED], ["failed HandedBack", "judged passed", "item ended 1.0"]),
        ([InvalidTask("x")], ["failed InvalidTask", "item ended None"]),
        ([KeyError("x")], ["failed KeyError", "item ended None"]),
        (
            [asyncio.CancelledError()],
            ["failed CancelledError", "item interrupted CancelledError"],
        ),
    ],
)
@pytest.mark.parametrize("broken_first", [True, False])
def test_each_observer_sees_every_end_in_any_order_and_beside_a_broken_one(
    ends: list[Judgement | BaseException], events: list[str], broken_first: bool
) -> None:
    listener, follower = Listener(), Follower()
    order = [broken(), listener, follower][:: 1 if broken_first else -1]

    async def test() -> None:
        try:
            await evaluator(Observers(*order), *ends).evaluate(ITEM)
        except asyncio.CancelledError:
            return

    asyncio.run(test())
    assert listener.events == events
    assert [event for event in follower.events if "begun" not in event] == events
    begun = ["item begun", *["attempt begun"] * len(ends)]
    assert [event for event in follower.events if "begun" in event] == begun


async def test_a_broken_observer_is_logged_and_changes_no_outcome(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        outcome = await evaluator(Observers(broken()), PASSED).evaluate(ITEM)
    assert (outcome.judgement, outcome.reward, outcome.failure) == (PASSED, 1.0, None)
    told = {vars(record)["event"] for record in caplog.records}
    assert told == {"item_begun", "attempt_begun", "attempt_judged", "item_ended"}


async def test_a_portable_item_carries_its_span_whatever_the_order() -> None:
    for turn in (1, -1):
        listener = Listener()
        observers = Observers(*[listener, Follower()][::turn])
        await evaluator(observers, PASSED).evaluate(replace(ITEM, portable=True))
        await evaluator(observers, PASSED).evaluate(ITEM)
        assert [item.traceparent for item in listener.items] == ["span of item", ""]


async def test_an_item_without_code_has_no_attempt() -> None:
    follower = Follower()
    await evaluator(Observers(follower)).evaluate(replace(ITEM, submission=NoCode(2)))
    assert follower.events == ["item begun", "item ended 0.0"]


class OneSandbox(NoBackend):
    """A source of sandboxes, which may have none."""

    def __init__(self, has_one: bool) -> None:
        self.has_one = has_one

    @asynccontextmanager
    async def lease(
        self, limits: Limits, environment: str = DEFAULT, hash_seed: int = 0
    ) -> AsyncIterator[Sandbox]:
        if not self.has_one:
            raise SandboxUnavailable("none")

        class Named:
            id = "sb_1"

        yield cast(Sandbox, Named())


@pytest.mark.parametrize(
    ("has_one", "error", "lease"),
    [
        (True, None, ("sb_1", "")),
        (True, KeyError("x"), ("sb_1", "KeyError")),
        (True, HandedBack("x"), ("sb_1", "")),
        (False, None, ("", "sandbox_unavailable")),
    ],
)
async def test_each_lease_is_told_with_its_sandbox_and_the_reason_of_a_failure(
    has_one: bool, error: Exception | None, lease: tuple[str, str]
) -> None:
    leases: list[tuple[str, str]] = []

    def leased(sandbox_id: str, begun_ns: int, ended_ns: int, reason: str) -> None:
        assert begun_ns <= ended_ns
        leases.append((sandbox_id, reason))

    sandboxes = ObservedSandboxes(OneSandbox(has_one), leased)
    try:
        async with sandboxes.lease(LIMITS):
            if error is not None:
                raise error
    except (KeyError, HandedBack, SandboxUnavailable):
        pass
    assert leases == [lease]
