"""The step of the training run: the number of optimizer steps before the completions."""

from __future__ import annotations

from typing import Any


def step_of(state: object) -> int | None:
    """Return `global_step` of a transformers.TrainerState; None without such a state."""
    step = getattr(state, "global_step", None)
    return step if isinstance(step, int) and step >= 0 else None


class Training:
    """The environments' training, as far as its callback reports.

    TRL passes the trainer's state to reward functions, and hides the state from environments.
    """

    def __init__(self) -> None:
        self._state: object = None

    @property
    def step(self) -> int | None:
        """Step of the training run; None until a trainer has the callback."""
        return step_of(self._state)

    def callback(self) -> Any:
        """Return a transformers.TrainerCallback that follows the trainer's state."""
        from transformers import TrainerCallback

        training = self

        class StateCallback(TrainerCallback):  # type: ignore[misc]
            """Keeps each initial state of the trainer, where the trainer counts its steps."""

            def on_init_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
                training._state = state

            on_train_begin = on_init_end

        return StateCallback()
