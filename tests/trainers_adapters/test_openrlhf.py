"""OpenRLHF's own executor of single turns, with its reward function and with the service's route."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from adapter_calls import DOWN, Case, cases
from openrlhf.utils.agent import SingleTurnAgentExecutor

from proctor_trainers.openrlhf import NotJudged

CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
END = "<|im_end|>"
FILE = """
from proctor_trainers.openrlhf import reward_function

reward_func = reward_function({url!r}, retry_seconds=0.0)
"""


class Characters:
    """A tokenizer with a token for each character."""

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        return {"input_ids": torch.tensor([list(map(ord, text))])}

    def decode(self, tokens: Any, skip_special_tokens: bool) -> str:
        assert not skip_special_tokens
        return "".join(map(chr, tokens))


class Engine:
    """A policy that answers with a given completion."""

    def __init__(self, completion: str) -> None:
        self._completion = completion

    async def generate(self, tokens: Any, params: Any, multi_modal_data: Any = None) -> Any:
        tokens = list(map(ord, f"{self._completion}{END}"))
        output = SimpleNamespace(token_ids=tokens, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


def rollouts(remote_url: str, told: Sequence[Case]) -> list[dict[str, Any]]:
    """What the executor makes of the completions, all at once."""
    executor = SingleTurnAgentExecutor([remote_url])
    params = SimpleNamespace(max_tokens=500, logprobs=None)

    async def run() -> list[dict[str, Any]]:
        calls = [
            executor.execute(
                CHAT.format(case.prompt),
                case.tests,
                params,
                4000,
                Characters(),
                Engine(case.completion),
            )
            for case in told
        ]
        return list(await asyncio.gather(*calls))

    return asyncio.run(run())


def numbers(values: Sequence[Any]) -> list[float]:
    """The values as OpenRLHF reads them: a tensor, or a list with one number."""
    return [torch.tensor([value]).flatten()[0].item() for value in values]


def file_for(url: str, folder: Path) -> str:
    file = folder / "reward_func.py"
    file.write_text(FILE.format(url=url))
    return str(file)


def test_the_reward_function(url: str, tmp_path: Path) -> None:
    told = cases()
    made = rollouts(file_for(url, tmp_path), told)
    expected = [case.reward for case in told]
    assert numbers([each["reward"] for each in made]) == expected
    assert numbers([each["scores"] for each in made]) == expected
    assert numbers([each["extra_logs"]["pass_rate"] for each in made]) == expected


def test_the_route_of_the_service(url: str) -> None:
    told = cases()
    made = rollouts(f"{url}/compat/get_reward", told)
    assert numbers([each["reward"] for each in made]) == [case.reward for case in told]


def test_no_service_is_no_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotJudged, match="Connect"):
        rollouts(file_for(DOWN, tmp_path), cases(4))

    async def at_once(seconds: float) -> None:
        """Its client waits a second between its tries."""

    monkeypatch.setattr(asyncio, "sleep", at_once)
    made = rollouts(f"{DOWN}/compat/get_reward", cases(4))
    assert [each["reward"] for each in made] == [None] * 4
