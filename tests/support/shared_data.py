"""Where the data for tests lies: beside the repository, or where PROCTOR_SHARED_DATA says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def shared_data(name: str) -> Path:
    """A file of the shared data. Skips the test, saying so, when it is not there."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    path = Path(os.environ.get("PROCTOR_SHARED_DATA") or beside) / name
    if not path.exists():
        pytest.skip(f"no {path}: set PROCTOR_SHARED_DATA")
    return path
