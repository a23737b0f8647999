"""Failures in the agent's loops, with a scripted policy, judge and sandbox."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from rollout_world import REFINE, Place, World, failed, runs, says, submits, tools
from waits import WAIT_SECONDS

from proctor_client.wire import Agent
from proctor_service.errors import DeadlinePassed, JudgeFailed, PolicyUnavailable
from proctor_service.features.rollouts.policy import ContextExceeded
from proctor_service.features.rollouts.tools import Workplace
from proctor_service.outcomes import TrajectoryPlan


@pytest.mark.parametrize("agent", [REFINE, tools()])
def test_a_policy_that_fails_is_an_error_without_a_reward(agent: Agent) -> None:
    down = PolicyUnavailable("policy: down")
    first = says("```\none\n```") if agent is REFINE else runs()
    world = World([first, down], outcomes=[failed()])
    found = world.play(agent)
    assert (found.failure, found.reward, found.verdict) == (down, None, None)
    assert found.metrics["turns"] == 1
    assert world.opened == world.stopped


def test_a_conversation_that_outgrew_the_context_is_the_policys_own_doing() -> None:
    too_long = ContextExceeded("HTTP 400: context length")
    found = World([runs(), too_long]).play(tools())
    assert (found.verdict, found.reward, found.failure) == ("no_code", 0.0, None)
    assert (found.metrics["context_exceeded"], found.metrics["hit_max_turns"]) == (1, 0)
    found = World([says("```\none\n```"), too_long], outcomes=[failed()]).play(REFINE)
    assert (found.verdict, found.reward) == ("failed", 0.0)
    assert found.metrics["context_exceeded"] == 1
    state = World([runs(), too_long], files={"solution.py": b"x = 1"})
    assert state.play(tools("execute_code")).reward == 1.0


@pytest.mark.parametrize("agent", [REFINE, tools()])
def test_a_task_that_never_fitted_the_context_says_nothing_of_the_policy(agent: Agent) -> None:
    found = World([ContextExceeded("HTTP 400: context length")]).play(agent)
    assert isinstance(found.failure, PolicyUnavailable)
    assert "context length" in found.failure.message
    assert found.reward is None


async def never() -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize("agent", [REFINE, tools()])
def test_the_deadline_ends_it_without_a_reward(agent: Agent) -> None:
    first = says("```\none\n```") if agent is REFINE else runs()
    world = World([first, never], outcomes=[failed()])
    found = world.play(agent, seconds=0.05)
    assert isinstance(found.failure, DeadlinePassed)
    assert found.reward is None
    assert world.opened == world.stopped


@pytest.mark.parametrize("error", [KeyError("x"), TimeoutError("not ours")])
def test_a_fault_of_ours_is_an_error_and_is_logged(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        found = World([runs(), submits()], execs=[error]).play(tools())
    assert isinstance(found.failure, JudgeFailed)
    assert "ro_1" in found.failure.message
    assert found.reward is None
    assert caplog.records


def test_cancelling_it_stops_its_sandbox() -> None:
    async def cancelled() -> World:
        asked = asyncio.Event()

        async def hang() -> Any:
            asked.set()
            await never()

        world = World([runs(), hang])
        playing = asyncio.create_task(world.played(tools(), WAIT_SECONDS))
        await asked.wait()
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        return world

    world = asyncio.run(cancelled())
    assert (world.opened, world.stopped) == (1, 1)


def test_a_stop_goes_on_though_it_is_cancelled() -> None:
    async def run() -> int:
        stopping, go_on, stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

        class Slow(Place):
            async def stop(self) -> None:
                stopping.set()
                await go_on.wait()
                await super().stop()
                stopped.set()

        world = World([runs(), submits()])

        async def open_slow(plan: TrajectoryPlan) -> Workplace:
            world.opened += 1
            return Slow(world, "sb_slow")

        world.open_workplace = open_slow  # type: ignore[method-assign]
        playing = asyncio.create_task(world.played(tools(), WAIT_SECONDS))
        await stopping.wait()
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        assert world.stopped == 0
        go_on.set()
        async with asyncio.timeout(WAIT_SECONDS):
            await stopped.wait()
        return world.stopped

    assert asyncio.run(run()) == 1


def test_a_sandbox_that_will_not_stop_costs_no_reward(caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn(Place):
        async def stop(self) -> None:
            raise KeyError("no")

    world = World([runs(), submits()])

    async def open_stubborn(plan: TrajectoryPlan) -> Workplace:
        return Stubborn(world, "sb_1")

    world.open_workplace = open_stubborn  # type: ignore[method-assign]
    with caplog.at_level(logging.ERROR):
        assert world.play(tools()).reward == 1.0
    assert "not stopped" in caplog.text
