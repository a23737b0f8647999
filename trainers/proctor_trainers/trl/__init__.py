"""Rewards for TRL's GRPOTrainer, over HTTP.

    trainer = GRPOTrainer(model, reward_funcs=reward_function("http://127.0.0.1:8080"), …)
    trainer = GRPOTrainer(model, environment_factory=environment_factory(), …)

TRL 1.15 and later leave a completion out whose rewards are all None. An earlier one would take None
for 0.0: there the reward function gives the mean of the completion's siblings instead, and so it
does beside other reward functions, since TRL adds up what is not None.

Importing this imports no TRL: `python -m proctor_trainers.trl` does, to train.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, Unpack

from pydantic import SecretStr

from proctor_client import AsyncClient, Client, RewardOptions
from proctor_client.reporting import PREFIX
from proctor_trainers.addresses import async_client_for, client_for
from proctor_trainers.columns import TaskOf, task_from_columns
from proctor_trainers.functions import function
from proctor_trainers.rewards import Rewards, Settings, Trainer, judge, judge_async, say_line
from proctor_trainers.trl.factory import EnvironmentFactory, environment_factory
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

_NO_COLUMNS = ("completion_ids", "trainer_state", "environments")


def reward_function(
    url: str | None = None,
    *,
    token: str | SecretStr | None = None,
    retry_seconds: float = 60.0,
    client: Client | None = None,
    name: str = "proctor",
    task: TaskOf = task_from_columns,
    max_unavailable_share: float | None = None,
    say: Callable[[str], None] | None = say_line,
    report_to: Sequence[str] | None = None,
    metrics_prefix: str = PREFIX,
    **options: Unpack[RewardOptions],
) -> RewardFunction:
    """A reward function for GRPOTrainer: 1.0 for each completion whose tests all pass, else 0.0.

    `url` and `token` are PROCTOR_URL and PROCTOR_TOKEN by default; `client` goes before both.
    `retry_seconds` is how long a call waits for a service that cannot be reached, before its
    completions go without a reward; or before it raises, where the service never answered. A wrong
    token, address or version raises a ProctorError at the first call.
    How a completion is judged comes from the data set's columns, or from `task`, a function of a
    row (see proctor_trainers.columns), or is the `grader` for all.
    `name` is that of the reward in TRL's logs, and of the metrics `{name}/pass_rate`,
    `no_code_rate`, `hack_signal_rate`, `unavailable_rate` and `latency_seconds`. Above
    `max_unavailable_share` of a call that could not be judged it raises RewardsUnavailable, which
    ends the training: by default never, but above one half before TRL 1.15. `say` gets a line for
    each call. `report_to=["wandb"]` also writes the metrics to the wandb run that is active, under
    `metrics_prefix`, into the row that the trainer's next log completes. With a trainer that takes
    no metrics from reward functions, as TRL before 1.0, None does so too; `[]` never does.
    `options` are those of proctor_client's Client.reward: `scoring`, `limits`, `tags`… It may be
    pickled and used in a forked process, where it makes connections of its own.
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
    task: TaskOf = task_from_columns,
    max_unavailable_share: float | None = None,
    say: Callable[[str], None] | None = say_line,
    report_to: Sequence[str] | None = None,
    metrics_prefix: str = PREFIX,
    **options: Unpack[RewardOptions],
) -> AsyncRewardFunction:
    """As reward_function; TRL runs it at the same time as other async ones."""
    proctor = client or async_client_for(url, token, retry_seconds)
    settings = _settings(name, task, max_unavailable_share, say, options)
    calls = Rewards(replace(settings, report_to=report_to, metrics_prefix=metrics_prefix))
    return function(_async_reward, proctor, calls, name)


def _reward(proctor: Client, calls: Rewards, name: str) -> RewardFunction:
    masks = masks_none()

    def reward(prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
        trainer = _trainer(columns, masks)
        batch = calls.begin(completions, columns)
        return calls.end(batch, judge(proctor, batch), trainer, prompts)

    reward.__name__ = name
    return reward


def _async_reward(proctor: AsyncClient, calls: Rewards, name: str) -> AsyncRewardFunction:
    masks = masks_none()

    async def reward(prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
        trainer = _trainer(columns, masks)
        batch = calls.begin(completions, columns)
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


def _trainer(arguments: dict[str, Any], masks: bool) -> Trainer:
    """What TRL gave besides columns, taken out of the arguments."""
    for name in _NO_COLUMNS:
        arguments.pop(name, None)
    log_metric, log_extra = arguments.pop("log_metric", None), arguments.pop("log_extra", None)
    # Nothing says to a reward function whether there are others; the trainer knows, and lends one
    # of its own methods.
    functions = getattr(getattr(log_metric, "__self__", None), "reward_funcs", ())
    return Trainer(
        masks=masks,
        adds=len(functions) > 1,
        log_metric=log_metric,
        log_extra=log_extra,
    )
