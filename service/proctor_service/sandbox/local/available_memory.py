"""Memory left for more sandboxes: on the machine, and below the limits of the service's cgroups.

The reclaimable part of the page cache counts as free. An unreadable figure sets no limit.
"""

from __future__ import annotations

import math
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")
_OWN_GROUPS = Path("/proc/self/cgroup")
# Files with the limit and the usage, and the name of the page cache in memory.stat: v1, v2.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", b"total_inactive_file"),
    2: ("memory.max", "memory.current", b"inactive_file"),
}


def available_memory_mb() -> float:
    """Return the memory left for processes in the service's cgroup, in megabytes."""
    version, groups = _own_groups()
    left = [available_below(group, version) for group in groups]
    return min(_machine_kb() / 1024, *left, math.inf)


def _machine_kb() -> float:
    try:
        for line in _MEMINFO.read_bytes().splitlines():
            if line.startswith(b"MemAvailable:"):
                return float(line.split()[1])
    except OSError:
        pass
    return math.inf


def _own_groups() -> tuple[int, list[Path]]:
    """Return the version of the memory hierarchy, and this process's group with all parents."""
    try:
        lines = _OWN_GROUPS.read_text().splitlines()
    except OSError:
        return 2, []
    own = {names: path for _, names, path in (line.split(":", 2) for line in lines)}
    version, top, path = 2, _ROOT, own.get("", "/")
    for names, its_path in own.items():
        if "memory" in names.split(","):
            version, top, path = 1, _ROOT / "memory", its_path
    # Without a cgroup namespace, a container sees the host's path, but its own group on top.
    group = top / path.lstrip("/")
    groups = [group, *group.parents] if group.is_dir() else [top]
    return version, groups[: groups.index(top) + 1]


def available_below(group: Path, version: int) -> float:
    """Return the memory left below a cgroup's limit, in megabytes; infinity without a limit."""
    limit_file, usage_file, reclaimable = _FILES[version]
    try:
        limit = float((group / limit_file).read_text().replace("max", "inf"))
        if math.isinf(limit):
            return math.inf
        used = float((group / usage_file).read_text())
        for line in (group / "memory.stat").read_bytes().splitlines():
            name, _, number = line.partition(b" ")
            if name == reclaimable:
                used -= int(number)
    except (OSError, ValueError):
        return math.inf
    return (limit - used) / (1 << 20)
