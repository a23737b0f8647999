"""Folders and an interpreter that sandboxes see, wherever the repository is.

The repository may lie below /tmp, where sandboxes have their own files.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from proctor_service.errors import StartError
from proctor_service.sandbox.local.shown_paths import check_shown

_PLACES = (Path(sys.prefix), Path("/var/lib"), Path("/opt"), Path("/srv"), Path.home())


@contextmanager
def visible_folder() -> Iterator[Path]:
    """Makes a folder that everybody may read; it is gone afterwards."""
    places = [each for each in _PLACES if _is_visible(each) and os.access(each, os.W_OK)]
    if not places:
        pytest.skip("this user can write to no folder that sandboxes may see")
    with tempfile.TemporaryDirectory(dir=places[0], prefix="visible-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def visible_python() -> Iterator[Path]:
    """The interpreter of the tests with its packages; a copy where sandboxes do not see it."""
    if _is_visible(Path(sys.prefix)):
        yield Path(sys.executable)
        return
    with visible_folder() as folder:
        venv.create(folder / "venv", symlinks=True)
        [packages] = (folder / "venv" / "lib").glob("python*/site-packages")
        shutil.copytree(
            sysconfig.get_path("purelib"), packages, copy_function=_link, dirs_exist_ok=True
        )
        yield folder / "venv" / "bin" / "python"


def _is_visible(place: Path) -> bool:
    with suppress(StartError):
        check_shown(place / "x", "a test")
        return True
    return False


def _link(source: str, target: str) -> None:
    """Link a file in place of a copy, where both are of one file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
