"""Throttled time of the service's cgroup under a CPU quota.

The kernel reports a throttled thread as runnable (state R), but adds this time to no thread's
run-queue wait. Only the cgroups of the service and its sandboxes count the time, each for itself.
"""

from __future__ import annotations

import os
from pathlib import Path

from proctor_service.sandbox.cgroups_above import files_above

_UNITS = {b"throttled_usec": 1e-6, b"throttled_time": 1e-9}  # v2, v1
_MOST_BYTES = 4096


class Throttling:
    """Reads the throttled time of this process' cgroup and of its ancestors."""

    def __init__(self) -> None:
        self._files = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in _stat_files()]

    def seconds(self) -> float:
        """Return the throttled seconds so far.

        The kernel sums over cores, so the value may grow faster than wall time.
        """
        return sum(map(_throttled, self._files))

    def close(self) -> None:
        """Close the files."""
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
    """Return `cpu.stat` of this process's group and all groups above; empty without CPU quotas."""
    if not files_above("cpu", ("cpu.cfs_quota_us", "cpu.max")):
        return []
    return files_above("cpu", ("cpu.stat",))
