"""An art.Backend without training, which runs the whole loop on any machine, for tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import art


@dataclass(frozen=True, slots=True)
class Trained:
    """Call of `train` at the end of step `step` of `model`."""

    model: str
    step: int
    groups: Sequence[art.TrajectoryGroup]
    options: Mapping[str, Any]


class MemoryBackend:
    """Backend for counting steps only. The policy of the rollouts needs another endpoint.

    `trained` records the arguments of `train`, unless `keeps` is false, as for a long run.
    """

    def __init__(self, *, keeps: bool = True) -> None:
        self.trained: list[Trained] = []
        self._keeps = keeps
        self._steps: Counter[str] = Counter()

    async def register(self, model: Any) -> None:
        """Do nothing: preparation is needless here."""

    async def train(
        self, model: Any, trajectory_groups: Iterable[art.TrajectoryGroup], **options: Any
    ) -> art.TrainResult:
        """End a step."""
        groups = list(trajectory_groups)
        self._steps[model.name] += 1
        step = self._steps[model.name]
        if self._keeps:
            self.trained.append(Trained(model.name, step, groups, options))
        return art.TrainResult(step=step)

    async def close(self) -> None:
        """Do nothing: the backend holds nothing to release."""

    def _model_inference_name(self, model: Any, step: int | None = None) -> str:
        return f"{model.name}@{self._steps[model.name] if step is None else step}"

    async def _prepare_backend_for_training(self, model: Any, config: Any) -> tuple[str, str]:
        return "", ""

    async def _get_step(self, model: Any) -> int:
        return self._steps[model.name]

    async def _delete_checkpoint_files(self, model: Any, steps_to_keep: list[int]) -> None:
        """Do nothing: checkpoints do not exist here."""

    def _train_sft(self, *args: Any, **options: Any) -> AsyncIterator[dict[str, float]]:
        raise NotImplementedError("this backend trains nothing")
