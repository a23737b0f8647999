"""The trainer as Unsloth patches it, on a CPU: it takes our rewards, and leaves out what has none.

The model is not one that Unsloth has loaded, which takes a GPU; all else is Unsloth's.
"""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import pytest
import trl
from adapter_calls import cases
from grpo_training import ROWS, by_hash, check_right_and_wrong, check_step, some_fail, trained
from service_process import ServiceProcess
from wandb_training import check_that_each_step_is_one_row

from proctor_client.testing import FakeProctor
from proctor_trainers.addresses import client_for
from proctor_trainers.unsloth import reward_function


def as_if_loaded(model: Any) -> None:
    """What Unsloth's own models can do besides."""
    model.for_training = lambda *_, **__: model.train()
    model.for_inference = lambda *_, **__: model.eval()


def test_it_is_the_patched_trainer() -> None:
    source = inspect.getsource(trl.GRPOTrainer)
    assert "Unsloth" in trl.GRPOTrainer.__name__, source[:200]
    parameters = inspect.signature(trl.GRPOTrainer._calculate_rewards).parameters
    assert list(parameters) == ["self", "inputs", "prompts", "completions", "completion_ids_list"]


def test_steps_on_the_rewards_that_the_service_gives(
    service: ServiceProcess, tokenizer: Any
) -> None:
    client = client_for(service.url)
    reward = reward_function(client=client, task=by_hash, extract="none")
    run = trained(ROWS, tokenizer, steps=3, prepare=as_if_loaded, reward_funcs=[reward])
    with client, run as (_, steps):
        assert len(steps) == 3
        for step in steps:
            check_step(step)
        assert {reward for step in steps for reward in step.rewards} == {0.0, 1.0}


def test_right_and_wrong_completions(service: ServiceProcess, tokenizer: Any) -> None:
    rows = [{"prompt": case.prompt, "tests": case.tests} for case in cases(2)]
    reward = reward_function(service.url, retry_seconds=0.0)
    run = trained(rows, tokenizer, steps=1, prepare=as_if_loaded, reward_funcs=[reward])
    with run as (trainer, _):
        check_right_and_wrong(trainer, service.kill)


def test_what_could_not_be_judged_leaves_its_group(tokenizer: Any) -> None:
    fake = FakeProctor(some_fail)
    with fake.client() as client:
        reward = reward_function(client=client, grader={"kind": "exec"})
        run = trained(ROWS, tokenizer, steps=3, prepare=as_if_loaded, reward_funcs=[reward])
        with run as (_, steps):
            assert any(math.isnan(each) for step in steps for each in step.rewards)
            for step in steps:
                for reward_, advantage in zip(step.rewards, step.advantages, strict=True):
                    assert advantage == 0.0 or not math.isnan(reward_)
    assert [each.reward.step for each in fake.requests if each.reward] == [0, 1, 2]


def test_each_step_is_one_row_of_wandb_with_the_ten_names(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_that_each_step_is_one_row(tokenizer, tmp_path, monkeypatch, prepare=as_if_loaded)
