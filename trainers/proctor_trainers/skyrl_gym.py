"""An environment for SkyRL-gym: the policy's answer is judged, in a turn or in several.

    from skyrl_gym.envs.registration import register

    register(id="proctor", entry_point="proctor_trainers.skyrl_gym:ProctorEnv")

A row of the data set has its tests in `reward_spec.ground_truth`, in a form of
proctor_client.tasks.ground_truth, or in columns as in proctor_client.tasks.forms. The
configuration of the
environment (`env_config`) may have

    url, token     the service; default: PROCTOR_URL and PROCTOR_TOKEN
    retry_seconds  how long a call waits for an unreachable service; default: 60
    max_turns      answers allowed to the policy until a pass; default: 1, or the row's
                   `max_turns`

Environments of a process share requests: SkyRL steps them in threads at the same time. An
unjudged answer raises NotJudged, which ends the step of the training.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from proctor_client.tasks.forms import GROUND_TRUTH, task_from_row
from proctor_trainers.batching import RETRY_SECONDS, RewardBatcher, batcher_for
from proctor_trainers.extras import MissingExtra
from proctor_trainers.unjudged import NotJudged, as_not_judged, number_of

try:
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
except ImportError as error:
    raise MissingExtra(f"{error}: pip install 'proctor-trainers[skyrl]'") from None

__all__ = ["NotJudged", "ProctorEnv"]

TAG = "skyrl"
_AGAIN = "This answer did not pass its tests ({}). Write the whole program again."


class ProctorEnv(BaseTextEnv):  # type: ignore[misc]
    """Environment with an answer per turn, and the answer's reward.

    Before the last turn, a failed answer has the reward 0.0 and an observation that
    names the verdict. Raises ValueError for a wrong configuration.
    """

    def __init__(
        self,
        env_config: Mapping[str, Any] | None = None,
        extras: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        config = {"max_turns": extras.get("max_turns", 1), **dict(env_config or {})}
        self.max_turns = int(config["max_turns"])
        if self.max_turns < 1:
            raise ValueError("max_turns: it must be 1 or more")
        self._row = _row(extras)
        self._batcher = _batcher(
            config.get("url"),
            config.get("token"),
            float(config.get("retry_seconds", RETRY_SECONDS)),
        )

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Judge the policy's answer. Raises NotJudged."""
        self.turns += 1
        with as_not_judged():
            answer = self._batcher.judge(action, self._row)
            reward = number_of(answer, "raise")
        done = answer.verdict == "passed" or self.turns >= self.max_turns
        observations = [] if done else [{"role": "user", "content": _AGAIN.format(answer.verdict)}]
        return BaseTextEnvStepOutput(
            observations=observations,
            reward=reward,
            done=done,
            metadata={"verdict": answer.verdict, "hack_signals": list(answer.hack_signals)},
        )


@cache
def _batcher(url: str | None, token: str | None, retry_seconds: float) -> RewardBatcher:
    """Return the batcher of all environments with this configuration."""
    return batcher_for(TAG, url, token=token, retry_seconds=retry_seconds, task=task_from_row)


def _row(extras: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = extras.get("reward_spec")
    if isinstance(spec, Mapping) and spec.get("ground_truth") is not None:
        return {GROUND_TRUTH: spec["ground_truth"]}
    return extras
