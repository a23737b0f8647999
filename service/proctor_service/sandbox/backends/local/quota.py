"""How long the service's cgroup was throttled: held back by a quota on CPU time.

A thread that is throttled would run, and the kernel says so (state R); but it adds this time to no
thread's wait for a core. The cgroups that hold the service and its sandboxes know it, each its own.
"""

from __future__ import annotations

import os
from pathlib import Path

from proctor_service.sandbox.cgroups_above import files_above

_UNITS = {b"throttled_usec": 1e-6, b"throttled_time": 1e-9}  # v2, v1
_MOST_BYTES = 4096


class Throttling:
    """Reads the throttled time of this process' cgroup and of those above it."""

    def __init__(self) -> None:
        self._files = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in _stat_files()]

    def seconds(self) -> float:
        """So far. The kernel sums it over cores, so that it may grow faster than time passes."""
        return sum(map(_throttled, self._files))

    def close(self) -> None:
        """Closes the files."""
        for descriptor in self._files:
            os.close(descriptor)
        self._files = []


def _throttled(descriptor: int) -> float:
    try:
        text = os.pread(descriptor, _MOST_BYTES, 0)
    except OSError:  # the group is gone
        return 0.0
    for line in text.splitlines():
        name, _, number = line.partition(b" ")
        if name in _UNITS:
            return int(number) * _UNITS[name]
    return 0.0


def _stat_files() -> list[Path]:
    """`cpu.stat` of each group from this process' own up to the root, where there is a quota to have."""
    if not files_above("cpu", ("cpu.cfs_quota_us", "cpu.max")):
        return []
    return files_above("cpu", ("cpu.stat",))
