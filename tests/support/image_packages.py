"""Packages of the tests' own environment, as files of an image's Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pluggy

PYTEST = ("_pytest", "pytest", "pluggy", "iniconfig", "packaging", "pygments", "py.py")
XDIST = ("xdist", "execnet")
_INFO = {"_pytest": "pytest", "xdist": "pytest_xdist"}
"""Packages whose folder of metadata has another name."""


def site_packages(names: Sequence[str] = PYTEST) -> Iterator[tuple[str, Path]]:
    """Files of packages, with their entry points, by their path in an image of the system's Python."""
    home = Path(pluggy.__file__).parents[1]
    for name in names:
        folders = [home / name, *home.glob(f"{_INFO.get(name, name)}-[0-9]*.dist-info")]
        for folder in folders:
            files = [folder] if folder.is_file() else sorted(folder.rglob("*"))
            for path in files:
                if path.suffix in (".py", ".txt", "") and path.is_file() and path.name != "RECORD":
                    yield f"usr/lib/python3/dist-packages/{path.relative_to(home)}", path
