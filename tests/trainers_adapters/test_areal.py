"""AReaL's own workflow for verifiable rewards, with the function of proctor_trainers.areal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from adapter_calls import DOWN, Case, cases
from areal.api import ModelResponse
from areal.api.cli_args import GenerationHyperparameters
from areal.workflow.rlvr import RLVRWorkflow

from proctor_client import ProctorConnectionError
from proctor_trainers.areal import RewardsUnavailable, async_reward_function

END = "<|im_end|>"


class Workflow(RLVRWorkflow):  # type: ignore[misc]
    """As in docs/adapters.md."""

    def __init__(self, url: str, **named: Any) -> None:
        super().__init__(**named)
        self.reward_fn = self.async_reward_fn = async_reward_function(url, retry_seconds=0.0)


class Characters:
    """A tokenizer with a token for each character."""

    pad_token_id, eos_token_id = 0, 1

    def decode(self, tokens: Sequence[int], **_: Any) -> str:
        return "".join(map(chr, tokens))


class Engine:
    """A policy that answers with a given completion."""

    def __init__(self, completion: str) -> None:
        self._tokens = list(map(ord, f"{completion}{END}"))

    async def agenerate(self, request: Any) -> ModelResponse:
        return ModelResponse(
            input_tokens=list(request.input_ids),
            output_tokens=self._tokens,
            output_logprobs=[0.0] * len(self._tokens),
            output_versions=[0] * len(self._tokens),
        )


def episodes(url: str, told: Sequence[Case], reward_fn: Any = "areal.reward.nothing") -> list[Any]:
    """What the workflow makes of the completions, all at once: a reward, or an exception."""
    workflow = Workflow(
        url,
        reward_fn=reward_fn,
        gconfig=GenerationHyperparameters(),
        tokenizer=Characters(),
        get_input_ids_fn=lambda text, tokenizer, enable_thinking: list(map(ord, text)),
        data_extract_prompt_fn=lambda data: data["prompt_text"],
    )

    async def run() -> list[Any]:
        calls = (
            workflow.arun_episode(
                Engine(case.completion), {"prompt_text": case.prompt, "tests": case.tests}
            )
            for case in told
        )
        return await asyncio.gather(*calls, return_exceptions=True)

    return [
        float(each["rewards"]) if isinstance(each, dict) else each for each in asyncio.run(run())
    ]


@pytest.mark.parametrize("reward_fn", ["areal.reward.nothing", len])
def test_right_and_wrong_completions(reward_fn: Any, url: str) -> None:
    """A `reward_fn` given by its path would take the place of ours at the first episode."""
    told = cases()
    assert episodes(url, told, reward_fn) == [case.reward for case in told]


def test_what_could_not_be_judged_is_no_trajectory(url: str) -> None:
    """AReaL rejects a trajectory whose workflow raises an Exception."""
    [right] = cases(1)
    broken = Case(right.prompt, right.completion, ["assert add_0( =="], 0.0)
    assert [type(each) for each in episodes(url, [broken])] == [RewardsUnavailable]
    assert [type(each) for each in episodes(DOWN, cases(4))] == [ProctorConnectionError] * 4
