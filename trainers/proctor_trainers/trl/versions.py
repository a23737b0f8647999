"""Treatment of the reward None by the installed TRL."""

from __future__ import annotations

from proctor_trainers.extras import MissingExtra, release_of

TAG = "trl-grpo"
MASKS_SINCE = (1, 15)


def masks_none() -> bool:
    """Return True if TRL skips the completion. An earlier TRL reads None as 0.0."""
    release = release_of("trl")
    return release is None or release >= MASKS_SINCE


def require_masking() -> None:
    """Raise MissingExtra for a TRL without masking."""
    if not masks_none():
        raise MissingExtra(
            "environment_factory needs TRL 1.15 or later, which leaves out a rollout that could not "
            "be judged: pip install 'proctor-trainers[trl]'"
        )
