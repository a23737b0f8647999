"""ms-swift's own scoring of rollouts, with the class of proctor_trainers.ms_swift in its table."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from adapter_calls import DOWN, Case, cases
from swift.rewards import orms
from swift.rl_core.data import GRPOSample
from swift.rl_core.grpo_algorithm import score_completions

from proctor_client import ProctorConnectionError
from proctor_trainers.ms_swift import orm_class

STATE = SimpleNamespace(global_step=3)


def samples(told: Sequence[Case], each: int = 1) -> list[Any]:
    """Rollouts as GRPO has them; `each` is the number of completions of a prompt."""
    return [
        GRPOSample(
            messages=[
                {"role": "user", "content": case.prompt},
                {"role": "assistant", "content": case.completion},
            ],
            extra={"tests": case.tests},
            prompt_id=f"p{number // each}",
            request_id=f"r{number}",
        )
        for number, case in enumerate(told)
    ]


def scored(url: str, rollouts: list[Any]) -> list[float]:
    orms["proctor"] = orm_class(url, retry_seconds=0.0)
    orm = orms["proctor"](args=SimpleNamespace(num_generations=2))
    scores = score_completions(rollouts, [orm], None, False, torch.device("cpu"), STATE)
    assert scores.shape == (len(rollouts), 1)
    values: list[float] = scores[:, 0].tolist()
    return values


def test_right_and_wrong_completions(url: str) -> None:
    told = cases()
    assert scored(url, samples(told)) == [case.reward for case in told]


def test_what_could_not_be_judged_has_the_mean_of_its_siblings(url: str) -> None:
    right, wrong = cases(2)
    broken = Case(right.prompt, right.completion, ["assert add_0( =="], 0.0)
    told = [right, broken, right, wrong, wrong, broken]
    assert scored(url, samples(told, each=3)) == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]


def test_a_service_that_is_down_ends_the_training() -> None:
    with pytest.raises(ProctorConnectionError):
        scored(DOWN, samples(cases(4)))
