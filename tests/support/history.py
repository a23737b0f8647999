"""Earlier states of this repository, taken from its own history."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = ("client", "service", "trainers")


def extract(commit: str, folder: Path, *paths: str) -> Path:
    """Puts these paths, as they were at a commit, into a folder; returns the folder.

    Skips the test where the history does not reach so far: in a shallow clone or without one.
    """
    command = ["git", "-C", str(ROOT), "archive", commit, "--", *paths]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(
            f"needs commit {commit[:12]} of this repository's history, which is not here "
            f"(git fetch --unshallow gets it): {done.stderr.decode().strip()}"
        )
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extraction_filter = lambda member, path: member  # Debian's 3.11 knows no filter=
        archive.extractall(folder)
    return folder


def python_path(root: Path) -> str:
    """PYTHONPATH for the packages of a tree."""
    return os.pathsep.join(str(root / each) for each in CODE)


def install_command(root: Path, file: Path) -> None:
    """Writes a program `proctor` that runs the service of a tree."""
    file.parent.mkdir(parents=True)
    file.write_text(
        f'#!/bin/sh\nPYTHONPATH="{python_path(root)}" exec "{sys.executable}" -m proctor_service "$@"\n'
    )
    file.chmod(0o755)
