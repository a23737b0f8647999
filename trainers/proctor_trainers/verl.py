"""Rewards for verl: `compute_score`, for threads, for event loops, and for whole batches.

    # reward.py
    from proctor_trainers.verl import async_compute_score_function

    compute_score = async_compute_score_function("http://127.0.0.1:8080")

    python -m verl.trainer.main_ppo reward.custom_reward_function.path=reward.py \\
        reward.custom_reward_function.name=compute_score …

| verl's reward manager | function |
|---|---|
| `naive`, `dapo`, `gdpo`, `rate_limited` of the reward loop | `async_compute_score_function` |
| `remote` of the reward loop; `naive`, `dapo`, `prime` of older releases | `compute_score_function` |
| `batch` of older releases | `batch_compute_score_function` |

The ground truth of a row holds its tests: see proctor_client.tasks.ground_truth. verl needs a number
for each completion. By default, an unjudged completion raises NotJudged, which ends
the training: `prime` and `rate_limited` continue with a reward of 0.0 after any other exception.

Both also make up a 0.0 after 300 s. A call ends earlier, at the latest after `deadline_seconds` (180)
and `retry_seconds` (60) and 35 s, with NotJudged. But `prime` counts from the start of the batch for
all of its completions, and judges only as many at a time as it has processes (64). So use `prime`
only for batches of at most 64 completions, else `batch`. `rate_limited` counts the time of a call,
but a function that is not async also waits for a thread within this time.

This module works without importing verl.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, Unpack

from pydantic import SecretStr

from proctor_client import RewardOptions
from proctor_client.tasks.forms import task_from_ground_truth
from proctor_client.tasks.task import TaskOf
from proctor_trainers.answers import Answer
from proctor_trainers.batching import RETRY_SECONDS, RewardBatcher, batcher_for
from proctor_trainers.functions import function
from proctor_trainers.unjudged import (
    NotJudged,
    OnUnjudged,
    OnUnjudgedInBatch,
    as_not_judged,
    number_of,
    numbers_of,
)

__all__ = [
    "NotJudged",
    "async_compute_score_function",
    "batch_compute_score_function",
    "compute_score_function",
]

TAG = "verl"
DEADLINE_SECONDS = 180.0
SPARE_SECONDS = 35.0
"""A call ends at the latest after its deadline, its retries, and this time: by default after 275 s,
before `rate_limited` makes up a 0.0. The client itself allows 30 s of it for the transfer."""

Score: TypeAlias = float | dict[str, Any]


def compute_score_function(
    url: str | None = None,
    *,
    token: str | SecretStr | None = None,
    retry_seconds: float = RETRY_SECONDS,
    batcher: RewardBatcher | None = None,
    task: TaskOf = task_from_ground_truth,
    on_unjudged: OnUnjudged = "raise",
    details: bool = False,
    **options: Unpack[RewardOptions],
) -> Callable[..., Score]:
    """Return `compute_score(data_source, solution_str, ground_truth, extra_info)` for threads.

    The function returns 1.0 if all tests of the completion pass, else 0.0. With `details`, the function
    returns {"score", "acc", "verdict"}, which verl logs; `prime` cannot read this form. `task`
    maps {"data_source", "ground_truth", "extra_info"} to the task.

    `url` and `token` are PROCTOR_URL and PROCTOR_TOKEN by default; `batcher` takes precedence.
    `retry_seconds` is the maximum wait for an unreachable service. `options` are the options of
    proctor_client's Client.reward. Calls at the same moment share a request. The function may be
    pickled, and used in Ray's workers and in forked processes.
    """
    batcher = batcher or _batcher(url, token, retry_seconds, task, options)
    return function(_compute_score, batcher, on_unjudged, details)


def async_compute_score_function(
    url: str | None = None,
    *,
    token: str | SecretStr | None = None,
    retry_seconds: float = RETRY_SECONDS,
    batcher: RewardBatcher | None = None,
    task: TaskOf = task_from_ground_truth,
    on_unjudged: OnUnjudged = "raise",
    details: bool = False,
    **options: Unpack[RewardOptions],
) -> Callable[..., Awaitable[Score]]:
    """Async version of compute_score_function, for the reward loop, with the best sharing of requests."""
    batcher = batcher or _batcher(url, token, retry_seconds, task, options)
    return function(_async_compute_score, batcher, on_unjudged, details)


def batch_compute_score_function(
    url: str | None = None,
    *,
    token: str | SecretStr | None = None,
    retry_seconds: float = RETRY_SECONDS,
    batcher: RewardBatcher | None = None,
    task: TaskOf = task_from_ground_truth,
    on_unjudged: OnUnjudgedInBatch = "raise",
    details: bool = False,
    **options: Unpack[RewardOptions],
) -> Callable[..., list[Score]]:
    """Return `compute_score(data_sources, solution_strs, ground_truths, extra_infos)`.

    Only here, `on_unjudged` may be `mean`: the mean reward of the completions with the same ground
    truth takes the place of a missing reward.
    """
    batcher = batcher or _batcher(url, token, retry_seconds, task, options)
    return function(_batch_compute_score, batcher, on_unjudged, details)


def _compute_score(
    batcher: RewardBatcher, on_unjudged: OnUnjudged, details: bool
) -> Callable[..., Score]:
    def compute_score(
        data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any = None, **more: Any
    ) -> Score:
        row = _row(data_source, ground_truth, extra_info)
        with as_not_judged():
            answer = batcher.judge(solution_str, row, group=_group(extra_info))
        return _score(answer, number_of(answer, on_unjudged), details)

    return compute_score


def _async_compute_score(
    batcher: RewardBatcher, on_unjudged: OnUnjudged, details: bool
) -> Callable[..., Awaitable[Score]]:
    async def compute_score(
        data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any = None, **more: Any
    ) -> Score:
        row = _row(data_source, ground_truth, extra_info)
        with as_not_judged():
            answer = await batcher.judge_async(solution_str, row, group=_group(extra_info))
        return _score(answer, number_of(answer, on_unjudged), details)

    return compute_score


def _batch_compute_score(
    batcher: RewardBatcher, on_unjudged: OnUnjudgedInBatch, details: bool
) -> Callable[..., list[Score]]:
    def compute_score(
        data_sources: Sequence[Any],
        solution_strs: Sequence[str],
        ground_truths: Sequence[Any],
        extra_infos: Sequence[Any] | None = None,
        **more: Any,
    ) -> list[Score]:
        extras = [None] * len(solution_strs) if extra_infos is None else list(extra_infos)
        rows = list(map(_row, data_sources, ground_truths, extras))
        with as_not_judged():
            answers = batcher.judge_all(solution_strs, rows, groups=list(map(_group, extras)))
        groups = [json.dumps(each, sort_keys=True, default=str) for each in ground_truths]
        numbers = numbers_of(answers, groups, on_unjudged)
        return [_score(a, number, details) for a, number in zip(answers, numbers, strict=True)]

    return compute_score


def _batcher(
    url: str | None,
    token: str | SecretStr | None,
    retry_seconds: float,
    task: TaskOf,
    options: RewardOptions,
) -> RewardBatcher:
    deadline_seconds = options.setdefault("deadline_seconds", DEADLINE_SECONDS)
    return batcher_for(
        TAG,
        url,
        token=token,
        retry_seconds=retry_seconds,
        task=task,
        options=options,
        call_seconds=deadline_seconds + retry_seconds + SPARE_SECONDS,
    )


def _row(data_source: Any, ground_truth: Any, extra_info: Any) -> dict[str, Any]:
    return {
        "data_source": data_source,
        "ground_truth": ground_truth,
        "extra_info": extra_info,
    }


def _group(extra_info: Any) -> str | None:
    """Return the row's number in its data set, which the completions of a prompt share."""
    index = extra_info.get("index") if isinstance(extra_info, Mapping) else None
    return None if index is None else str(index)


def _score(answer: Answer, number: float, details: bool) -> Score:
    return {"score": number, "acc": number, "verdict": answer.verdict_text} if details else number
