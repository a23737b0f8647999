"""Memory for the service and its sandboxes, in total and still available, and its check.

The reclaimable part of the page cache counts as available. An unreadable figure leaves the limit
open.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proctor_service.sandbox.interface import MachineCheck
from proctor_service.settings import Settings
from proctor_service.settings.cgroups_above import files_above

_MEBIBYTE = 1 << 20
_MEMINFO = Path("/proc/meminfo")
_TOTAL_AND_LEFT = "MemTotal", "MemAvailable"
_SCARCE_SHARE = 0.2
_LIMIT_FILES = ("memory.limit_in_bytes", "memory.max")  # v1, v2
_LARGEST_LIMIT_BYTES = 1 << 60  # v1 writes "no limit" as a number slightly above
# Files with the limit and the usage, and the name of the page cache in memory.stat: v1, v2.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", b"total_inactive_file"),
    2: ("memory.max", "memory.current", b"inactive_file"),
}


@dataclass(frozen=True, slots=True)
class MemoryRoom:
    """Available memory in megabytes, and the kernel's source of the number."""

    megabytes: int
    source: str


def memory_room() -> MemoryRoom | None:
    """Return the minimum of the machine's available memory and the limits of all cgroups above.

    None if the kernel gives neither.
    """
    return min((*_available(), *memory_limits()), key=lambda room: room.megabytes, default=None)


def memory_check(settings: Settings, room: MemoryRoom | None) -> MachineCheck:
    """Check the memory for all slots at the same time, each at the default limit."""
    slots, each_mb = settings.slot_count(), settings.memory_mb
    wanted = f"{slots} slots of {each_mb} MB (memory_mb) may take {slots * each_mb} MB"
    if room is None:
        return MachineCheck("memory_room", True, f"{wanted}; how much there is, is not told here")
    detail = f"{wanted}; there are {room.megabytes} MB by {room.source}"
    fitting = room.megabytes // each_mb
    fewer = f"PROCTOR_SLOTS={fitting}, or " if fitting else ""
    return MachineCheck(
        "memory_room",
        slots * each_mb <= room.megabytes,
        detail,
        f"set {fewer}PROCTOR_MEMORY_MB={room.megabytes // slots}, or give more memory; what does "
        "not fit is judged again, later",
    )


def _available(*names: str) -> Iterator[MemoryRoom]:
    """Yield the memory of the whole machine. Kernels before 3.14 give only the total."""
    with contextlib.suppress(OSError, ValueError):
        lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        for name in names or ("MemAvailable", "MemTotal"):
            if name in lines:
                yield MemoryRoom(int(lines[name].split()[0]) // 1024, name)
                return


def is_machine_short() -> bool:
    """Return True where a program like earlyoom may end processes for lack of memory.

    These programs begin at about a tenth, and the ended processes give memory back.
    """
    total, left = (sum(room.megabytes for room in _available(each)) for each in _TOTAL_AND_LEFT)
    return left < total * _SCARCE_SHARE


def memory_limits() -> Iterator[MemoryRoom]:
    """Yield the memory limits of the cgroups of this process and above."""
    for file in files_above("memory", _LIMIT_FILES):
        with contextlib.suppress(OSError, ValueError):  # `max` is no number
            limit_bytes = int(file.read_text())
            if limit_bytes < _LARGEST_LIMIT_BYTES:
                yield MemoryRoom(limit_bytes // _MEBIBYTE, str(file))


def available_memory_mb() -> float:
    """Return the memory left for processes in the service's cgroup, in megabytes."""
    limits = files_above("memory", _LIMIT_FILES)
    left = [available_below(file.parent, 1 + _LIMIT_FILES.index(file.name)) for file in limits]
    return min(*(room.megabytes for room in _available()), *left, math.inf, math.inf)


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
    return (limit - used) / _MEBIBYTE
