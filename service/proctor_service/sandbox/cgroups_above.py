"""The cgroups that this process is in, v1 and v2, as far up as they can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def files_above(
    controller: str, names: Sequence[str], own: Path = _OWN, root: Path = _ROOT
) -> list[Path]:
    """Files with these names in this process' group of a controller, and in each group above it.

    Of the hierarchy of version 1 where it has any, or else of version 2.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    by_version: dict[bool, list[Path]] = {True: [], False: []}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        is_first = bool(controllers)
        if is_first and controller not in controllers.split(","):
            continue
        top = (root / controller).resolve() if is_first else root
        # In a container without a cgroup namespace the path is the host's, and the top is its own.
        group = top / path.lstrip("/")
        groups = [group, *group.parents] if group.is_dir() else [top]
        groups = groups[: groups.index(top) + 1]
        by_version[is_first] += [group / name for group in groups for name in names]
    found = {version: [f for f in files if f.is_file()] for version, files in by_version.items()}
    return found[True] or found[False]
