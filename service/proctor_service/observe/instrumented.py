"""Wrappers that record metrics of the parts without a change in their behaviour."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from proctor_client.wire import Policy
from proctor_service.errors import Cancelled, Failure, HandedBack
from proctor_service.evaluate import Evaluate, Item, Judge, Outcome
from proctor_service.features.rollouts.agent import Play
from proctor_service.features.rollouts.policy import Ask, Connect
from proctor_service.features.rollouts.reply import Reply
from proctor_service.features.rollouts.trajectory import Plan, Trajectory
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.observe.metrics import Metrics
from proctor_service.sandbox.interface import Sandboxes


def measured_judge(judge: Judge, metrics: Metrics) -> Judge:
    """Return the judge, with the seconds and failures of each attempt recorded."""

    async def measured(submission: Submission, backend: Sandboxes) -> Judgement:
        begun = time.perf_counter()
        try:
            judgement = await judge(submission, backend)
        except Failure as failure:
            metrics.attempt_failed(failure.reason)
            raise
        except HandedBack:  # it was no attempt
            raise
        except Exception:
            metrics.attempt_failed("judge_failed")
            raise
        metrics.attempted(judgement, time.perf_counter() - begun)
        return judgement

    return measured


def measured_evaluate(evaluate: Evaluate, metrics: Metrics) -> Evaluate:
    """Return the evaluator, with each outcome recorded."""

    async def measured(item: Item) -> Outcome:
        try:
            outcome = await evaluate(item)
        except asyncio.CancelledError:
            metrics.cancelled()
            raise
        metrics.evaluated(item.job, outcome, item.tenant, item.submission.environment)
        if isinstance(item.submission, Submission):
            metrics.controlled(item.submission, outcome)
        return outcome

    return measured


def measured_play(play: Play, metrics: Metrics) -> Play:
    """Return the player, with each trajectory recorded."""

    async def measured(plan: Plan, ask: Ask) -> Trajectory:
        trajectory = Trajectory(failure=Cancelled("it was cancelled"))
        try:
            trajectory = await play(plan, ask)
        finally:
            metrics.played(trajectory)
        return trajectory

    return measured


def measured_connect(connect: Connect, metrics: Metrics) -> Connect:
    """Return the policy connection, with the seconds of each answer recorded."""

    @asynccontextmanager
    async def measured(policy: Policy) -> AsyncIterator[Ask]:
        async with connect(policy) as ask:

            async def asked(messages: Any, tools: Any, seed: int | None = None) -> Reply:
                begun, outcome = time.perf_counter(), "failed"
                try:
                    reply = await ask(messages, tools, seed)
                    outcome = "answered"
                finally:
                    metrics.asked_policy(outcome, time.perf_counter() - begun)
                return reply

            yield asked

    return measured
