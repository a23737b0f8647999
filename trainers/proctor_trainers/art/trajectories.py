"""The service's trajectory as an art.Trajectory: the same messages, choices, tools and reward.

ART trains on choices in form of the `openai` package's objects with logprobs. This module builds
them in the same way as `openai`, without validation and without loss.
"""

from __future__ import annotations

import math
from typing import Any

import art
from openai.types.chat.chat_completion import Choice

from proctor_client import wire


class RolloutFailed(RuntimeError):
    """Raised for a rollout without a verdict: the reward is missing, the policy unjudged."""


def trajectory_of(trajectory: wire.Trajectory) -> art.Trajectory:
    """Return the trajectory in ART's form. Raises RolloutFailed for a trajectory without a reward.

    Its metrics are the service's, plus `duration` in seconds, a name from art.Trajectory.finish.
    Its metadata are `task_id`, `verdict`, `rollout_id`, `sandbox_id`, and the task's metadata
    except lists and objects, which ART rejects.
    """
    error = trajectory.error
    if error is not None:
        raise RolloutFailed(f"{error.reason}: {error.message}")
    if trajectory.reward is None or not math.isfinite(trajectory.reward):
        raise RolloutFailed("protocol: a trajectory with neither a reward nor an error")
    metrics = dict(trajectory.metrics)
    if "duration_seconds" in metrics:
        metrics["duration"] = metrics["duration_seconds"]
    own = {
        "task_id": trajectory.task_id,
        "verdict": trajectory.verdict,
        "rollout_id": trajectory.rollout_id,
        "sandbox_id": trajectory.sandbox_id,
    }
    fields = {
        name: value
        for name, value in trajectory.metadata.items()
        if not isinstance(value, list | dict)
    }
    return art.Trajectory(
        messages_and_choices=[_message_or_choice(each) for each in trajectory.messages_and_choices],
        tools=trajectory.tools,
        reward=trajectory.reward,
        metrics=metrics,
        metadata={**fields, **own},
    )


def _message_or_choice(each: dict[str, Any]) -> Any:
    """Return a message unchanged, or build a choice: only messages have a role."""
    return each if "role" in each else Choice.construct(**each)
