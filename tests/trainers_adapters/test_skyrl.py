"""SkyRL-gym's own registry and environments, stepped in threads as SkyRL's generator does."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import skyrl_gym
from adapter_calls import DOWN, Case, cases
from skyrl_gym.envs.registration import register, registry

from proctor_trainers.skyrl_gym import NotJudged, ProctorEnv


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    if "proctor" not in registry:
        register(id="proctor", entry_point="proctor_trainers.skyrl_gym:ProctorEnv")


def made(case: Case, config: dict[str, Any], **extras: Any) -> Any:
    extras = {"reward_spec": {"ground_truth": json.dumps(case.tests)}, **extras}
    return skyrl_gym.make("proctor", env_config=config, extras=extras)


def step(env: Any, case: Case) -> Any:
    env.init([{"role": "user", "content": case.prompt}])
    return env.step(case.completion)


def steps(config: dict[str, Any], told: Sequence[Case]) -> list[Any]:
    environments = [made(case, config) for case in told]
    with ThreadPoolExecutor(32) as threads:
        return list(threads.map(step, environments, told))


def test_right_and_wrong_answers(url: str) -> None:
    told = cases()
    found = steps({"url": url}, told)
    assert [each["reward"] for each in found] == [case.reward for case in told]
    assert all(each["done"] and each["observations"] == [] for each in found)
    assert {each["metadata"]["verdict"] for each in found} == {"passed", "failed"}


def test_columns_of_the_row(url: str) -> None:
    [case] = cases(1)
    env = skyrl_gym.make("proctor", env_config={"url": url}, extras={"tests": case.tests})
    assert step(env, case)["reward"] == 1.0


def test_several_turns(url: str) -> None:
    right, wrong = cases(2)
    env = made(right, {"url": url, "max_turns": 3})
    env.init([{"role": "user", "content": right.prompt}])
    first = env.step(wrong.completion.replace("add_1", "add_0"))
    assert (first["reward"], first["done"]) == (0.0, False)
    assert "did not pass" in first["observations"][0]["content"]
    second = env.step(right.completion)
    assert (second["reward"], second["done"], second["observations"]) == (1.0, True, [])


def test_the_last_turn_ends_it(url: str) -> None:
    [_, wrong] = cases(2)
    env = made(wrong, {"url": url}, max_turns=2)
    assert [env.step(wrong.completion)["done"] for _ in range(2)] == [False, True]


def test_a_service_that_is_down_is_no_reward() -> None:
    [case] = cases(1)
    with pytest.raises(NotJudged):
        step(made(case, {"url": DOWN, "retry_seconds": 0}), case)


def test_a_wrong_row_is_no_reward(url: str) -> None:
    [case] = cases(1)
    for extras in ({}, {"reward_spec": {"ground_truth": "forty-two"}}):
        env = skyrl_gym.make("proctor", env_config={"url": url}, extras=extras)
        with pytest.raises(NotJudged):
            step(env, case)


def test_a_wrong_number_of_turns_is_told() -> None:
    with pytest.raises(ValueError, match="max_turns"):
        ProctorEnv({"max_turns": 0})


def test_it_can_be_copied(url: str) -> None:
    [case] = cases(1)
    env = ProctorEnv({"url": url}, {"tests": case.tests})
    for copied in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert step(copied, case)["reward"] == 1.0
