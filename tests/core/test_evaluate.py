"""The corridor: an outcome is a judgement with its reward, or a failure without one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from harness import NoBackend

from proctor_client.wire import ExecGrader, Scoring
from proctor_service.errors import (
    Cancelled,
    DeadlinePassed,
    Failure,
    InvalidTask,
    JudgeFailed,
    Overloaded,
    SandboxLost,
    SandboxUnavailable,
)
from proctor_service.evaluate import Evaluator
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.outcomes import Item, NoCode, Outcome, outcome_bytes
from proctor_service.sandbox.interface import Limits, Sandboxes
from proctor_service.scheduling.queue import Deadlines, FairQueue
from proctor_service.scheduling.result_cache import Cache

LIMITS = Limits(1, 1, 64, 64, 8, 8)


class Scripted:
    """A judge that does what each attempt's script says."""

    def __init__(self, *ends: Judgement | BaseException) -> None:
        self.ends = list(ends)
        self.attempts = 0

    async def __call__(self, submission: Submission, backend: Sandboxes) -> Judgement:
        self.attempts += 1
        end = self.ends.pop(0)
        if isinstance(end, BaseException):
            raise end
        return end


def item(deadline: float = 1e9, scoring: Scoring = "all", cache_key: bytes | None = None) -> Item:
    submission = Submission("x = 1", ExecGrader(kind="exec"), LIMITS, scoring)
    return Item("ev_1", submission, "t", "j", deadline, cache_key)


def corridor(judge: Callable[[Submission, Sandboxes], Coroutine[Any, Any, Judgement]]) -> Evaluator:
    deadlines = Deadlines()
    cache = Cache[Outcome](10, 10_000, outcome_bytes, deadlines)
    return Evaluator(judge, NoBackend(), FairQueue(1, 10, deadlines), cache)


def evaluate(judge: Scripted, asked: Item) -> Outcome:
    return asyncio.run(corridor(judge).evaluate(asked))


def test_a_judgement_has_its_reward() -> None:
    half = Judgement("failed", passed=1, total=2)
    assert evaluate(Scripted(half), item()).reward == 0.0
    outcome = evaluate(Scripted(half), item(scoring="fraction"))
    assert (outcome.judgement, outcome.reward, outcome.failure) == (half, 0.5, None)


def test_no_code_needs_no_judge() -> None:
    judge = Scripted()
    outcome = evaluate(judge, Item("ev_1", NoCode(3), "t", "j", 1e9))
    assert judge.attempts == 0
    assert outcome.reward == 0.0
    assert outcome.judgement is not None
    assert (outcome.judgement.verdict, outcome.judgement.total) == ("no_code", 3)


@pytest.mark.parametrize("lost", [SandboxLost("gone"), SandboxUnavailable("none")])
def test_a_lost_sandbox_is_replaced_twice(lost: Failure) -> None:
    judge = Scripted(lost, lost, Judgement("passed"))
    assert evaluate(judge, item()).reward == 1.0
    judge = Scripted(lost, lost, lost, Judgement("passed"))
    outcome = evaluate(judge, item())
    assert (judge.attempts, outcome.failure, outcome.reward) == (3, lost, None)


@pytest.mark.parametrize(
    "failure",
    [JudgeFailed("x"), DeadlinePassed("x"), Overloaded("x"), Cancelled("x"), InvalidTask("x")],
)
def test_nothing_else_is_retried_and_no_failure_has_a_reward(failure: Failure) -> None:
    judge = Scripted(failure, Judgement("passed"))
    outcome = evaluate(judge, item())
    assert judge.attempts == 1
    assert (outcome.failure, outcome.reward, outcome.judgement) == (failure, None, None)


@pytest.mark.parametrize("bug", [ValueError("secret"), TimeoutError("secret"), MemoryError()])
def test_a_bug_is_judge_failed_and_logged(bug: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        outcome = evaluate(Scripted(bug), item())
    assert isinstance(outcome.failure, JudgeFailed)
    assert "ev_1" in outcome.failure.message
    assert "secret" not in outcome.failure.message
    assert (outcome.reward, outcome.judgement) == (None, None)
    [record] = caplog.records
    assert record.exc_info is not None
    assert vars(record)["evaluation_id"] == "ev_1"


def test_the_deadline_holds_while_it_is_judged() -> None:
    cleaned: list[str] = []

    async def endless(submission: Submission, backend: Sandboxes) -> Judgement:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("sandbox")
        raise AssertionError("waits for ever")

    async def test() -> Outcome:
        deadline = asyncio.get_running_loop().time() + 0.02
        return await corridor(endless).evaluate(item(deadline))

    outcome = asyncio.run(test())
    assert isinstance(outcome.failure, DeadlinePassed)
    assert cleaned == ["sandbox"]


async def test_cancelling_passes_through_and_frees_the_slot() -> None:
    async def endless(submission: Submission, backend: Sandboxes) -> Judgement:
        await asyncio.Event().wait()
        raise AssertionError("waits for ever")

    rooms = corridor(endless)
    task = asyncio.create_task(rooms.evaluate(item()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert rooms._queue.busy == 0


async def test_a_failure_is_not_cached_and_a_judgement_is() -> None:
    judge = Scripted(InvalidTask("x"), *[Judgement("passed")] * 3)
    rooms = corridor(judge)
    asked = item(cache_key=b"k")
    assert (await rooms.evaluate(asked)).reward is None
    assert (await rooms.evaluate(asked)).cache == "miss"
    assert (await rooms.evaluate(asked)).cache == "hit"
    keyless = item()
    assert [(await rooms.evaluate(keyless)).cache for _ in range(2)] == ["miss", "miss"]
    assert judge.attempts == 4
