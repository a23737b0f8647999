"""GRPO on rewards from a real service: the right ones, in their places, and none when it is gone."""

from __future__ import annotations

import asyncio
import importlib.util
import math
import threading
from typing import Any

import pytest
from adapter_calls import cases
from grpo_training import (
    ROWS,
    by_hash,
    check_right_and_wrong,
    check_step,
    expected_advantages,
    some_fail,
    trained,
)
from service_process import ServiceProcess

from proctor_client import wire
from proctor_client.testing import FakeProctor
from proctor_trainers.addresses import async_client_for, client_for
from proctor_trainers.trl import async_reward_function, reward_function


def test_a_trainer_holds_nothing_of_the_service() -> None:
    assert importlib.util.find_spec("proctor_service") is None
    assert importlib.util.find_spec("fastapi") is None


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_ten_steps_on_the_rewards_that_the_service_gives(
    kind: str, service: ServiceProcess, tokenizer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    client, async_client = client_for(service.url), async_client_for(service.url)
    if kind == "sync":
        reward: Any = reward_function(client=client, task=by_hash, extract="none")
    else:
        reward = async_reward_function(client=async_client, task=by_hash, extract="none")
    with client, trained(ROWS, tokenizer, steps=10, reward_funcs=reward) as (trainer, steps):
        if kind == "async":
            asyncio.run_coroutine_threadsafe(async_client.aclose(), trainer.async_loop).result()
        assert len(steps) == 10
        for step in steps:
            check_step(step)
        seen = {reward for step in steps for reward in step.rewards}
        assert seen == {0.0, 1.0}
        assert any(advantage for step in steps for advantage in step.advantages)
        [first, *_] = trainer.state.log_history
        assert first["rewards/proctor/mean"] == first["proctor/pass_rate"]
        assert first["proctor/unavailable_rate"] == 0.0
    lines = [line for line in capsys.readouterr().out.splitlines() if "[proctor]" in line]
    assert [line.split(":")[0] for line in lines] == [
        f"[proctor] reward call {number}" for number in range(1, 11)
    ]
    assert all(" 8 judged, " in line and ", 0 unavailable, " in line for line in lines)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_right_and_wrong_completions(kind: str, service: ServiceProcess, tokenizer: Any) -> None:
    make: Any = reward_function if kind == "sync" else async_reward_function
    rows = [{"prompt": case.prompt, "tests": case.tests} for case in cases(2)]
    reward = make(service.url, retry_seconds=0.0)
    with trained(rows, tokenizer, steps=1, reward_funcs=reward) as (trainer, _):
        check_right_and_wrong(trainer, service.kill)


def test_training_goes_on_while_the_service_is_gone(
    service: ServiceProcess, tokenizer: Any
) -> None:
    def then(step: int) -> None:
        if step == 4:
            service.kill()
        if step == 7:
            service.start()

    client = client_for(service.url, retry_seconds=0)
    reward = reward_function(client=client, task=by_hash, extract="none")
    run = trained(ROWS, tokenizer, steps=12, then=then, reward_funcs=reward)
    with client, run as (trainer, steps):
        masked = [number for number, step in enumerate(steps, 1) if step.masked]
        assert masked == [5, 6, 7]
        for number, step in enumerate(steps, 1):
            if number in masked:
                assert step.advantages == [0.0] * len(step.advantages)
                assert step.parameters == steps[number - 2].parameters
            else:
                check_step(step)
        assert steps[-1].parameters != steps[0].parameters
        [gone] = [log for log in trainer.state.log_history if log.get("step") == 6]
        assert gone["proctor/unavailable_rate"] == 1.0
        assert gone["reward"] is None


def test_an_outage_that_is_shorter_than_the_patience_goes_unseen(
    service: ServiceProcess, tokenizer: Any
) -> None:
    def then(step: int) -> None:
        if step == 2:
            service.kill()
            again.start()

    def restart() -> None:
        service.start()
        is_over.wait()  # the service ends with the thread that started it

    is_over = threading.Event()
    again = threading.Thread(target=restart, daemon=True)
    client = client_for(service.url)
    reward = reward_function(client=client, task=by_hash, extract="none")
    with client, trained(ROWS, tokenizer, steps=4, then=then, reward_funcs=reward) as (_, steps):
        is_over.set()
        again.join()
        for step in steps:
            check_step(step)


def flat(**arguments: Any) -> list[float]:
    """Another reward function: the same for everybody."""
    return [0.25] * len(arguments["completions"])


def test_what_could_not_be_judged_leaves_its_group(tokenizer: Any) -> None:
    fake = FakeProctor(some_fail)
    with fake.client() as client:
        reward = reward_function(client=client, grader={"kind": "exec"})
        with trained(ROWS, tokenizer, steps=6, reward_funcs=reward) as (_, steps):
            told = [reward for step in steps for reward in step.rewards]
            assert any(math.isnan(each) for each in told)
            assert {each for each in told if not math.isnan(each)} == {0.0, 1.0}
            for step in steps:
                assert step.advantages == pytest.approx(expected_advantages(step.rewards), abs=1e-5)
    assert [each.reward.step for each in fake.requests if each.reward] == [0, 1, 2, 3, 4, 5]


def test_beside_another_function_what_could_not_be_judged_costs_nothing(tokenizer: Any) -> None:
    """TRL adds up what is not None: [None, 0.25] would be less than a sibling's [1.0, 0.25]."""
    with FakeProctor(some_fail).client() as client:
        ours = reward_function(client=client, grader={"kind": "exec"})
        with trained(ROWS, tokenizer, steps=6, reward_funcs=[ours, flat]) as (_, steps):
            failures = 0
            for step in steps:
                for completion, advantage in zip(step.completions, step.advantages, strict=True):
                    if isinstance(
                        some_fail(wire.Submission(completion=completion)), wire.ItemError
                    ):
                        failures += 1
                        assert advantage == pytest.approx(0.0, abs=1e-5)
            assert failures
            assert {reward for step in steps for reward in step.rewards} - {0.0, 1.0}
