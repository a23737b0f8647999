"""Rewards for TRL's GRPOTrainer, over HTTP.

    trainer = GRPOTrainer(model, reward_funcs=reward_function("http://127.0.0.1:8080"), …)
    trainer = GRPOTrainer(model, environment_factory=environment_factory(), …)

TRL 1.15 and later skip a completion with None for every reward. An earlier TRL would read None as
0.0, so the reward function returns the mean of the completion's siblings instead. The same happens
beside other reward functions, because TRL adds up all rewards except None. In a training with
several processes, the siblings are on all processes.

This module works without importing TRL; the training script `python -m proctor_trainers.trl` imports TRL.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, Unpack

from pydantic import SecretStr

from proctor_client import AsyncClient, Client, RewardOptions
from proctor_client.reporting import PREFIX
from proctor_client.tasks.forms import task_from_row
from proctor_client.tasks.task import TaskOf
from proctor_trainers.addresses import async_client_for, client_for
from proctor_trainers.functions import function
from proctor_trainers.rewards import Rewards, Settings, Trainer, judge, judge_async, say_line
from proctor_trainers.trl.factory import EnvironmentFactory, environment_factory
from proctor_trainers.trl.processes import gather_of_processes
from proctor_trainers.trl.steps import step_of
from proctor_trainers.trl.versions import TAG, masks_none

__all__ = [
    "TAG",
    "AsyncRewardFunction",
    "EnvironmentFactory",
    "RewardFunction",
    "async_reward_function",
    "environment_factory",
    "reward_function",
]

RewardFunction: TypeAlias = Callable[..., list[float | None]]
AsyncRewardFunction: TypeAlias = Callable[..., Awaitable[list[float | None]]]

_NO_COLUMNS = ("completion_ids", "environments")


def reward_function(
    url: str | None = None,
    *,
    token: str | SecretStr | None = None,
    retry_seconds: float = 60.0,
    client: Client | None = None,
    name: str = "proctor",
    task: TaskOf = task_from_row,
    max_unavailable_share: float | None = None,
    say: Callable[[str], None] | None = say_line,
    report_to: Sequence[str] | None = None,
    metrics_prefix: str = PREFIX,
    **options: Unpack[RewardOptions],
) -> RewardFunction:
    """Return a reward function for GRPOTrainer: 1.0 if all tests of a completion pass, else 0.0.

    `url` and `token` are PROCTOR_URL and PROCTOR_TOKEN by default; `client` takes precedence over
    both. `retry_seconds` is the maximum wait of a call for an unreachable service. After the wait,
    the completions get no reward; if the service has never answered, the call raises instead. A
    wrong token, address or version, and an option that the service refuses, raise a ProctorError at
    the first call.

    The judging of a completion is defined by the data set's columns, by `task`, a function of a row
    (see proctor_client.tasks.forms), or by a `grader` for all completions.

    `name` is the name of the reward in TRL's logs, and of the metrics `{name}/pass_rate`,
    `no_code_rate`, `hack_signal_rate`, `unavailable_rate` and `latency_seconds`. If the share of
    unjudged completions in a call exceeds `max_unavailable_share`, the call raises
    RewardsUnavailable, which ends the training; the default is never, or a half before TRL 1.15.
    `say` gets a line for each call.

    `report_to=["wandb"]` also writes the metrics to the active wandb run, under `metrics_prefix`,
    into the row that the trainer's next log completes. If the trainer accepts no metrics from
    reward functions, as TRL before 1.0, None does the same; `[]` never does.

    `options` are the options of proctor_client's Client.reward: `scoring`, `limits`, `tags` and
    other runs. `step` comes from the trainer: the number of optimizer steps before the completions;
    TRL before 0.20 does not tell. The function may be pickled, and used in a forked process, where
    it opens its own connections. In a training with several processes, each process calls the
    function at the same time, as TRL does.
    """
    proctor = client or client_for(url, token, retry_seconds)
    settings = _settings(name, task, max_unavailable_share, say, options)
    calls = Rewards(replace(settings, report_to=report_to, metrics_prefix=metrics_prefix))
    return function(_reward, proctor, calls, name)


def async_reward_function(
    url: str | None = None,
    *,
    token: str | SecretStr | None = None,
    retry_seconds: float = 60.0,
    client: AsyncClient | None = None,
    name: str = "proctor",
    task: TaskOf = task_from_row,
    max_unavailable_share: float | None = None,
    say: Callable[[str], None] | None = say_line,
    report_to: Sequence[str] | None = None,
    metrics_prefix: str = PREFIX,
    **options: Unpack[RewardOptions],
) -> AsyncRewardFunction:
    """Async version of reward_function, which TRL runs concurrently with other async functions.

    With several processes, use reward_function if there are several reward functions, or TRL is
    before 1.15. The siblings known here are in the same process, because TRL's event loop runs
    in a thread of its own, in which processes cannot exchange rewards safely. So an unjudged
    completion with all siblings on another process gets None, and beside another function's
    reward, TRL counts None as 0.0.
    """
    proctor = client or async_client_for(url, token, retry_seconds)
    settings = _settings(name, task, max_unavailable_share, say, options)
    calls = Rewards(replace(settings, report_to=report_to, metrics_prefix=metrics_prefix))
    return function(_async_reward, proctor, calls, name)


def _reward(proctor: Client, calls: Rewards, name: str) -> RewardFunction:
    masks = masks_none()

    def reward(prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
        trainer = _trainer(columns, masks)
        # The trainers that tell their state call the function in all processes; others need not.
        in_all_processes = trainer.step is not None or trainer.log_metric is not None
        if in_all_processes and (trainer.adds or not trainer.masks):
            trainer = replace(trainer, gather=gather_of_processes())
        batch = calls.begin(completions, _with_prompts(prompts, columns), trainer.step)
        return calls.end(batch, judge(proctor, batch), trainer, prompts)

    reward.__name__ = name
    return reward


def _async_reward(proctor: AsyncClient, calls: Rewards, name: str) -> AsyncRewardFunction:
    masks = masks_none()

    async def reward(prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
        trainer = _trainer(columns, masks)
        batch = calls.begin(completions, _with_prompts(prompts, columns), trainer.step)
        return calls.end(batch, await judge_async(proctor, batch), trainer, prompts)

    reward.__name__ = name
    return reward


def _settings(
    name: str,
    task: TaskOf,
    max_unavailable_share: float | None,
    say: Callable[[str], None] | None,
    options: RewardOptions,
) -> Settings:
    tags: Iterable[str] = options.pop("tags", ())
    return Settings(
        name=name,
        task=task,
        tags=(TAG, *tags),
        max_unavailable_share=max_unavailable_share,
        say=say,
        options=options,
    )


def _with_prompts(prompts: Any, columns: dict[str, Any]) -> dict[str, Any]:
    """Return the columns with TRL's prompts: a prompt in code is a part of its task."""
    return columns if prompts is None else {"prompt": prompts, **columns}


def _trainer(arguments: dict[str, Any], masks: bool) -> Trainer:
    """Remove TRL's extra arguments from the columns, and return them as a Trainer."""
    for name in _NO_COLUMNS:
        arguments.pop(name, None)
    log_metric, log_extra = arguments.pop("log_metric", None), arguments.pop("log_extra", None)
    step = step_of(arguments.pop("trainer_state", None))
    # TRL does not tell a reward function about other reward functions, but log_metric is a bound
    # method of the trainer, which knows them.
    functions = getattr(getattr(log_metric, "__self__", None), "reward_funcs", ())
    return Trainer(
        masks=masks,
        adds=len(functions) > 1,
        step=step,
        log_metric=log_metric,
        log_extra=log_extra,
    )
