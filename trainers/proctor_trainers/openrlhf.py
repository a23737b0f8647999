"""Rewards for OpenRLHF: `reward_func(queries, prompts, labels)`, for `--reward.remote_url`.

    # reward_func.py
    from proctor_trainers.openrlhf import reward_function

    reward_func = reward_function("http://127.0.0.1:8080")

    python -m openrlhf.cli.train_ppo_ray --reward.remote_url reward_func.py --data.label_key tests …

A label holds the tests of a prompt: see proctor_client.tasks.ground_truth. OpenRLHF calls the function
in threads, with a single query each; calls at the same moment share a request. OpenRLHF lacks a form
for a missing reward, so an unjudged completion raises NotJudged, which ends the
training. This module works without importing OpenRLHF, and needs its torch only for the answers.

Without this package, give OpenRLHF the service's own route: `…/compat/get_reward`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, Unpack

from pydantic import SecretStr

from proctor_client import RewardOptions
from proctor_client.queries import response_of
from proctor_client.tasks.forms import GROUND_TRUTH, task_from_ground_truth
from proctor_client.tasks.task import TaskOf
from proctor_trainers.answers import Answer
from proctor_trainers.batching import RETRY_SECONDS, RewardBatcher, batcher_for
from proctor_trainers.functions import function
from proctor_trainers.unjudged import NotJudged, OnUnjudged, as_not_judged, number_of

__all__ = ["NotJudged", "reward_function"]

TAG = "openrlhf"

RewardFunc: TypeAlias = Callable[..., dict[str, Any]]


def reward_function(
    url: str | None = None,
    *,
    token: str | SecretStr | None = None,
    retry_seconds: float = RETRY_SECONDS,
    batcher: RewardBatcher | None = None,
    task: TaskOf = task_from_ground_truth,
    on_unjudged: OnUnjudged = "raise",
    **options: Unpack[RewardOptions],
) -> RewardFunc:
    """Return a `reward_func`: 1.0 if all tests of a response pass, else 0.0.

    The function returns {"rewards", "scores", "extra_logs"} with tensors, a value for each query.
    The response is the query without its prompt and without the special tokens at its end. `task`
    maps {"ground_truth"} to the task; the ground truth is the label.

    `url` and `token` are PROCTOR_URL and PROCTOR_TOKEN by default; `batcher` takes precedence.
    `retry_seconds` is the maximum wait for an unreachable service. `options` are the options of
    proctor_client's Client.reward. The function may be pickled, and used in Ray's workers.
    """
    batcher = batcher or batcher_for(
        TAG, url, token=token, retry_seconds=retry_seconds, task=task, options=options
    )
    return function(_reward_func, batcher, on_unjudged)


def _reward_func(batcher: RewardBatcher, on_unjudged: OnUnjudged) -> RewardFunc:
    def reward_func(
        queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **more: Any
    ) -> dict[str, Any]:
        import torch

        with as_not_judged():
            pairs = zip(queries, prompts, strict=True)
            responses = [response_of(query, prompt) for query, prompt in pairs]
            answers = _answers(batcher, responses, labels)
        rewards = torch.tensor([number_of(each, on_unjudged) for each in answers])
        passed = torch.tensor([float(each.verdict == "passed") for each in answers])
        return {"rewards": rewards, "scores": rewards, "extra_logs": {"pass_rate": passed}}

    return reward_func


def _answers(
    batcher: RewardBatcher, responses: Sequence[str], labels: Sequence[Any]
) -> list[Answer]:
    rows = [{GROUND_TRUTH: label} for label in labels]
    if len(rows) == 1:
        return [batcher.judge(responses[0], rows[0])]
    return batcher.judge_all(responses, rows)
