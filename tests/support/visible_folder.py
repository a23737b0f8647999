"""Folders for files that sandboxes see: none below /tmp, where sandboxes have their own files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PLACE = Path(__file__).resolve().parents[2] / ".venv"


@contextmanager
def visible_folder() -> Iterator[Path]:
    """Makes a folder that everybody may read; it is gone afterwards."""
    with tempfile.TemporaryDirectory(dir=_PLACE, prefix="visible-") as name:
        Path(name).chmod(0o755)
        yield Path(name)
