"""Programs of this machine that sandboxes find."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

from proctor_service.settings.languages import LANGUAGES, SANDBOX_PATH


def are_installed(programs: Iterable[str]) -> bool:
    """True if sandboxes find all these programs."""
    return all(shutil.which(program, path=SANDBOX_PATH) for program in programs)


def is_language_here(name: str) -> bool:
    """True if this machine has what a language needs."""
    return name == "python" or are_installed(LANGUAGES[name].needs)
