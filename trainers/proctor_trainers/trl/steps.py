"""The step of the training run: the number of optimizer steps before the completions."""

from __future__ import annotations

from typing import Any


def step_of(state: object) -> int | None:
    """Return `global_step` of a transformers.TrainerState; None without such a state."""
    step = getattr(state, "global_step", None)
    return step if isinstance(step, int) and step >= 0 else None


class Training:
    """The training that environments belong to, as far as its callback has told.

    TRL passes the trainer's state to reward functions, but not to environments.
    """

    def __init__(self) -> None:
        self._state: object = None

    @property
    def step(self) -> int | None:
        """Step of the training run; None as long as no trainer has the callback."""
        return step_of(self._state)

    def callback(self) -> Any:
        """Return a transformers.TrainerCallback that follows the trainer's state."""
        from transformers import TrainerCallback

        training = self

        class StateCallback(TrainerCallback):  # type: ignore[misc]
            """Keeps each state that the trainer begins with; the trainer counts its steps there."""

            def on_init_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
                training._state = state

            on_train_begin = on_init_end

        return StateCallback()
