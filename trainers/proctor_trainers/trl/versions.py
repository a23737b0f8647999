"""What the TRL that is installed does with a reward that is None."""

from __future__ import annotations

from proctor_trainers.extras import MissingExtra, release_of

TAG = "trl-grpo"
MASKS_SINCE = (1, 15)


def masks_none() -> bool:
    """Whether it leaves the completion out. An earlier one takes None for 0.0."""
    release = release_of("trl")
    return release is None or release >= MASKS_SINCE


def require_masking() -> None:
    """Raises MissingExtra for a TRL that does not mask."""
    if not masks_none():
        raise MissingExtra(
            "environment_factory needs TRL 1.15 or later, which leaves out a rollout that could not "
            "be judged: pip install 'proctor-trainers[trl]'"
        )
