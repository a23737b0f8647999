"""What an errand in a stateful sandbox (a file in or out, a snapshot) came to, on every backend."""

from __future__ import annotations

from proctor_service.errors import FileMissing, FileRefused
from proctor_service.inside.errands import MISSING, REFUSED
from proctor_service.sandbox.interface import Ended


def check_errand(ended: Ended) -> None:
    """Raises FileMissing or FileRefused unless it was run."""
    if ended.exit_code == 0:
        return
    why = ended.stderr.decode("utf-8", "replace") or f"ended by {ended.ending}"
    if ended.exit_code == MISSING:
        raise FileMissing(why)
    if ended.exit_code == REFUSED:
        raise FileRefused(why)
    raise FileRefused(f"the sandbox has no means left for it: {why}")
