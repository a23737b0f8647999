"""Rewards for ms-swift: a class for its table `orms`, in a file for `--external_plugins`.

    # plugin.py
    from swift.rewards import orms
    from proctor_trainers.ms_swift import orm_class

    orms["proctor"] = orm_class("http://127.0.0.1:8080")

    swift rlhf --rlhf_type grpo --external_plugins plugin.py --reward_funcs proctor …

The columns of the data set hold the tests, as for TRL. ms-swift adds up rewards, where a missing
reward counts as 0.0. So an unjudged completion gets the mean reward of its siblings,
and a call with more than half unjudged raises RewardsUnavailable, which ends the training. This
module works without importing ms-swift.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from pydantic import SecretStr

from proctor_client import Client, RewardOptions
from proctor_client.tasks.forms import task_from_row
from proctor_client.tasks.task import TaskOf
from proctor_trainers.addresses import client_for
from proctor_trainers.rewards import Rewards, RewardsUnavailable, Settings, Trainer, judge, say_line

__all__ = ["RewardsUnavailable", "orm_class"]

TAG = "ms-swift"
PROMPT_IDS = "prompt_id"
MESSAGES = "messages"


def orm_class(
    url: str | None = None,
    *,
    token: str | SecretStr | None = None,
    retry_seconds: float = 60.0,
    client: Client | None = None,
    task: TaskOf = task_from_row,
    settings: Settings | None = None,
    **options: Unpack[RewardOptions],
) -> type:
    """Return a class with the interface of ms-swift's ORM: 1.0 if all tests pass, else 0.0.

    `task` maps a row to its task. `settings` takes
    precedence over `task` and `options`, which are the options of proctor_client's Client.reward.
    """
    proctor = client or client_for(url, token, retry_seconds)
    if settings is None:
        tags = (TAG, *options.pop("tags", ()))
        settings = Settings(task=task, tags=tags, say=say_line, options=options)
    adapter = settings

    class Proctor:
        """Reward of the tests in the data set's columns."""

        def __init__(self, args: Any = None, **more: Any) -> None:
            self.args = args
            self._rewards = Rewards(adapter)

        def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
            """Return a reward for each completion. Raises RewardsUnavailable and ProctorError."""
            count = len(completions)
            rows = {
                name: each
                for name, each in columns.items()
                if isinstance(each, Sequence) and not isinstance(each, str) and len(each) == count
            }
            step = getattr(columns.get("trainer_state"), "global_step", None)
            batch = self._rewards.begin(completions, rows, step)
            answers = judge(proctor, batch)
            return self._rewards.end(batch, answers, Trainer(masks=False), _prompts(rows))

    return Proctor


def _prompts(columns: dict[str, Any]) -> Sequence[Any] | None:
    """Return the keys of the siblings: the ids of the prompts, or the prompts' messages."""
    if PROMPT_IDS in columns:
        ids: Sequence[Any] = columns[PROMPT_IDS]
        return ids
    if MESSAGES not in columns:
        return None
    return [
        [each for each in messages if each.get("role") != "assistant"]
        for messages in columns[MESSAGES]
    ]
