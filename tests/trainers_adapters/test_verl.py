"""verl's own reward managers, with the functions of proctor_trainers.verl."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from adapter_calls import DOWN, Case, cases
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo.reward import load_reward_manager
from verl.workers.reward_manager import get_reward_manager_cls

from proctor_trainers.verl import NotJudged, batch_compute_score_function, compute_score_function

LENGTH = 200
FILE = """
from proctor_trainers.verl import async_compute_score_function, compute_score_function

compute_score = {kind}_function({url!r}, retry_seconds=0.0)
"""


class Characters:
    """A tokenizer with a token for each character."""

    eos_token = "\0"

    def decode(self, tokens: Any, skip_special_tokens: bool = True) -> str:
        return "".join(map(chr, tokens)).rstrip("\0")

    def batch_decode(self, rows: Any, skip_special_tokens: bool = True) -> list[str]:
        return [self.decode(row) for row in rows]


def batch_of(told: Sequence[Case], **extra: Any) -> DataProto:
    responses = torch.zeros((len(told), LENGTH), dtype=torch.long)
    for row, case in zip(responses, told, strict=True):
        row[: len(case.completion)] = torch.tensor(list(map(ord, case.completion)))
    prompts = torch.full((len(told), 1), ord("?"))
    mask = torch.cat([torch.ones_like(prompts), (responses != 0).long()], dim=1)
    return DataProto.from_single_dict(
        {
            "prompts": prompts,
            "responses": responses,
            "attention_mask": mask,
            "data_source": objects(["mine"] * len(told)),
            "reward_model": objects([{"ground_truth": case.tests} for case in told]),
            "extra_info": objects([{"index": number} for number in range(len(told))]),
        }
    )


def objects(values: Sequence[Any]) -> Any:
    import numpy

    array = numpy.empty(len(values), dtype=object)
    array[:] = values
    return array


def loop_manager(name: str, url: str, folder: Path, kind: str) -> Any:
    """A manager of the reward loop, made by verl from its settings."""
    file = folder / "reward.py"
    file.write_text(FILE.format(kind=kind, url=url))
    reward = {
        "custom_reward_function": {"path": str(file), "name": "compute_score"},
        "reward_manager": {"source": "register", "name": name},
        "num_workers": 2,
        "max_concurrent": 64,
        "timeout": 300,
    }
    config = OmegaConf.create({"reward": reward, "trainer": {"experiment_name": "mine"}})
    return load_reward_manager(config, Characters())


def scores_of(manager: Any, data: DataProto) -> list[Any]:
    async def run() -> list[Any]:
        return await asyncio.gather(
            *(manager.run_single(data[i : i + 1]) for i in range(len(data)))
        )

    return [each["reward_score"] for each in manager.loop.run_until_complete(run())]


@pytest.mark.parametrize("name", ["naive", "dapo", "gdpo", "rate_limited"])
def test_the_reward_loop(name: str, url: str, tmp_path: Path) -> None:
    manager = loop_manager(name, url, tmp_path, "async_compute_score")
    told = cases()
    assert scores_of(manager, batch_of(told)) == [case.reward for case in told]


@pytest.mark.parametrize("name", ["naive", "rate_limited"])
@pytest.mark.parametrize("kind", ["compute_score", "async_compute_score"])
def test_no_service_is_no_reward_in_the_reward_loop(name: str, kind: str, tmp_path: Path) -> None:
    manager = loop_manager(name, DOWN, tmp_path, kind)
    with pytest.raises(NotJudged, match="Connect"):
        scores_of(manager, batch_of(cases(4)))


def old_manager(name: str, compute_score: Callable[..., Any]) -> Any:
    return get_reward_manager_cls(name)(
        tokenizer=Characters(), num_examine=0, compute_score=compute_score
    )


def rewards_of(manager: Any, data: DataProto) -> list[float]:
    tensor = manager(data)
    assert tensor.shape == data.batch["responses"].shape
    return [float(each) for each in tensor.sum(dim=-1)]


@pytest.mark.parametrize("name", ["naive", "dapo", "prime", "batch"])
def test_the_managers_of_older_releases(name: str, url: str) -> None:
    count = 128 if name in ("batch", "prime") else 16  # the others call one at a time
    told = cases(count)
    make = batch_compute_score_function if name == "batch" else compute_score_function
    manager = old_manager(name, make(url))
    assert rewards_of(manager, batch_of(told)) == [case.reward for case in told]


@pytest.mark.parametrize("name", ["naive", "dapo", "prime", "batch"])
def test_no_service_is_no_reward_in_older_releases(name: str) -> None:
    make: Any = batch_compute_score_function if name == "batch" else compute_score_function
    with pytest.raises(NotJudged, match="Connect"):
        rewards_of(old_manager(name, make(DOWN, retry_seconds=0.0)), batch_of(cases(4)))


def test_a_broken_row_is_nan_where_this_is_asked_for(url: str) -> None:
    told = cases(4)
    broken = Case(told[0].prompt, told[0].completion, ["assert add_0( =="], math.nan)
    manager = old_manager("batch", batch_compute_score_function(url, on_unjudged="nan"))
    rewards = rewards_of(manager, batch_of([broken, *told[1:]]))
    assert math.isnan(rewards[0])
    assert rewards[1:] == [0.0, 1.0, 0.0]


def test_details_are_logged_by_verl(url: str) -> None:
    manager = old_manager("naive", compute_score_function(url, details=True))
    told = manager(batch_of(cases(2)), return_dict=True)["reward_extra_info"]
    assert told == {"score": [1.0, 0.0], "acc": [1.0, 0.0], "verdict": ["passed", "failed"]}
