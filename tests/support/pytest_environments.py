"""Virtual environments that hold one version of pytest and what it needs, each made once."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSIONS = ("8.0.2", "9.0.2", "9.2.0")
"""The oldest pytest that the grader works with, one in between, and the newest."""


def interpreter(version: str) -> Path:
    """The interpreter of the environment with this version of pytest; made where it is missing."""
    place = ROOT / ".venv-pytest" / version
    place.parent.mkdir(exist_ok=True)
    with (place.parent / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = place / "bin" / "python"
        done = place / "installed"
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
            install = ["install", "--quiet", "--disable-pip-version-check", f"pytest=={version}"]
            subprocess.run([str(python), "-m", "pip", *install], check=True)
            done.touch()
    return python
