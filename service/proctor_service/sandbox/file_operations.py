"""Exit codes of file operations in a stateful sandbox, mapped to errors for every backend."""

from __future__ import annotations

from proctor_service.errors import FileMissing, FileRefused
from proctor_service.guest.session.file_operations import MISSING, REFUSED
from proctor_service.sandbox.interface import Ended


def check_file_operation(ended: Ended) -> None:
    """Raise FileMissing or FileRefused unless the file operation succeeded."""
    if ended.exit_code == 0:
        return
    why = ended.stderr.decode("utf-8", "replace") or f"ended by {ended.ending}"
    if ended.exit_code == MISSING:
        raise FileMissing(why)
    if ended.exit_code == REFUSED:
        raise FileRefused(why)
    raise FileRefused(f"the sandbox has no means left for it: {why}")
