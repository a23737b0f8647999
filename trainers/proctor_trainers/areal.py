"""Rewards for AReaL: a function in place of the wrapper around `reward_fn`.

    from areal.workflow.rlvr import RLVRWorkflow
    from proctor_trainers.areal import async_reward_function

    class Workflow(RLVRWorkflow):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            self.reward_fn = self.async_reward_fn = async_reward_function("http://127.0.0.1:8080")

AReaL's own wrapper runs a `reward_fn` in a few processes, and returns 0 after four timeouts of 15 s,
which include the wait for a free process. The function here works without the wrapper: AReaL awaits it, and
calls at the same moment share a request. The function replaces `reward_fn` as well, since AReaL wraps
a `reward_fn` named by its path at the first episode. An unjudged completion raises
RewardsUnavailable; AReaL rejects its trajectory. This module works without importing AReaL.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Unpack

from pydantic import SecretStr

from proctor_client import RewardOptions
from proctor_client.queries import response_of
from proctor_client.tasks.forms import task_from_row
from proctor_client.tasks.task import TaskOf
from proctor_trainers.batching import RETRY_SECONDS, RewardBatcher, batcher_for
from proctor_trainers.functions import function
from proctor_trainers.rewards import RewardsUnavailable

__all__ = ["RewardsUnavailable", "async_reward_function"]

TAG = "areal"

AsyncRewardFn = Callable[..., Awaitable[float]]


def async_reward_function(
    url: str | None = None,
    *,
    token: str | SecretStr | None = None,
    retry_seconds: float = RETRY_SECONDS,
    batcher: RewardBatcher | None = None,
    task: TaskOf = task_from_row,
    **options: Unpack[RewardOptions],
) -> AsyncRewardFn:
    """Return `reward_fn(prompt, completions, prompt_ids, completion_ids, **row)`, to be awaited.

    The function returns 1.0 if all tests of the completion pass, else 0.0. `task` maps the row of
    the data set to the judging fields. The other arguments are those of
    proctor_trainers.verl.compute_score_function. Raises RewardsUnavailable and ProctorError.
    """
    batcher = batcher or batcher_for(
        TAG, url, token=token, retry_seconds=retry_seconds, task=task, options=options
    )
    return function(_reward_fn, batcher)


def _reward_fn(batcher: RewardBatcher) -> AsyncRewardFn:
    async def reward_fn(
        prompt: Any,
        completions: str,
        prompt_ids: Any = None,
        completion_ids: Any = None,
        **row: Any,
    ) -> float:
        completion = response_of(completions, "")
        answer = await batcher.judge_async(completion, {"prompt": prompt, **row})
        if answer.reward is None:
            raise RewardsUnavailable(f"a completion could not be judged: {answer.error}")
        return answer.reward

    return reward_fn
