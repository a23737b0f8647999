"""Cgroups of this process, v1 and v2, up to the topmost visible group."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def files_above(
    controller: str, names: Sequence[str], own: Path = _OWN, root: Path = _ROOT
) -> list[Path]:
    """Return the files with these names in this process's cgroup, and in each group above.

    The files of the controller's v1 hierarchy, if any exist, else the files of v2.
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
        # Without a cgroup namespace, a container sees the host's path, but its own group on top.
        group = top / path.lstrip("/")
        groups = [group, *group.parents] if group.is_dir() else [top]
        groups = groups[: groups.index(top) + 1]
        by_version[is_first] += [group / name for group in groups for name in names]
    found = {version: [f for f in files if f.is_file()] for version, files in by_version.items()}
    return found[True] or found[False]


def kills_path(own: Path = _OWN, root: Path = _ROOT) -> str:
    """Return the file with a line `oom_kill N`, the number of processes killed for memory so far.

    The nearest memory cgroup counts its own processes. Without such a count, and in the topmost
    group of v2, the file is /proc/vmstat: the count of the whole machine. Needs Linux 4.13.
    """
    for path in files_above("memory", ("memory.events", "memory.oom_control"), own, root)[:1]:
        with contextlib.suppress(OSError):
            if "\noom_kill " in path.read_text():
                return str(path)
    return "/proc/vmstat"


def cpu_quota(own: Path = _OWN, root: Path = _ROOT) -> float:
    """Return the CPU time in cores allowed by this process's cgroups; infinite by default."""
    least = math.inf
    for path in files_above("cpu", ("cpu.max", "cpu.cfs_quota_us"), own, root):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            quota, *period = path.read_text().split()
            period = period or [path.with_name("cpu.cfs_period_us").read_text()]
            if quota != "max" and int(quota) > 0:
                least = min(least, int(quota) / int(period[0]))
    return least
