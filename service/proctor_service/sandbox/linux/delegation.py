"""Delegation in cgroup v2: the group below which this process may create groups with limits.

In v2 a group with processes cannot have children with limits; only the machine's root is exempt (see "No
Internal Process Constraint" in the kernel's cgroup-v2.rst). The service therefore moves itself into a
child of its group, the service group. Processes started later begin there, and share the parent. Where
its group has other processes, or no controllers, the groups of sandboxes are below the nearest suitable
group above, and the service stays in its group.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_SERVICE_GROUP = "proctor-service"
_NEEDED = frozenset({"memory", "pids"})
_TRIES = 10  # processes of a container may start others while they are moved
_LIMITS = (
    "memory.max", "memory.high", "memory.swap.max", "pids.max", "cpu.max", "cpuset.cpus",
    "cpuset.mems", "io.max",
)  # fmt: skip
_UNLIMITED = ("", "max")  # first word of these files: `max 100000` in cpu.max


def own_group(own: Path = _OWN, root: Path = _ROOT) -> Path | None:
    """Return this process's v2 group; None unless /sys/fs/cgroup is a v2 mount."""
    if not (root / "cgroup.controllers").exists():
        return None
    for line in own.read_text().splitlines():
        if line.startswith("0::"):
            return root / line.removeprefix("0::").lstrip("/")
    return None


def enable_limits() -> None:
    """Enable limits for the processes started by this process; without effect if unavailable.

    Needed before judge processes start: they cannot move the process which started them.
    """
    with contextlib.suppress(OSError):
        own = own_group()
        if own is not None:
            delegated(own)


def delegated(own: Path, root: Path = _ROOT) -> Path | str:
    """Return the v2 directory for groups with limits, or the reason for its absence.

    `own`: this process's group. Moves this process into the service group if necessary.
    """
    directory = own.parent if own.name == _SERVICE_GROUP else own
    try:
        if set((directory / "cgroup.controllers").read_text().split()) >= _NEEDED:
            _enable(directory, is_container=directory == root)
            return directory
        why_not = f"{directory} has no memory and pids controllers"
    except OSError as error:
        why_not = f"{directory} is not delegated to this user: {error.strerror}"
        if error.errno == errno.EBUSY:
            why_not = (
                f"{directory} has other processes, too: start the service in a group of its own "
                "(systemd-run --scope -p Delegate=yes)"
            )
    return _above(directory, root) or why_not


def _above(group: Path, root: Path) -> Path | None:
    """Return the nearest group above for groups with limits; None without a suitable group.

    A limit of the service holds for its sandboxes: the search ends at a group with a limit.
    """
    if ".." in group.parts:  # outside of this cgroup namespace
        return None
    while group != root and not _is_limited(group):
        group = group.parent
        with contextlib.suppress(OSError):
            controllers = (group / "cgroup.controllers").read_text().split()
            if set(controllers) >= _NEEDED and os.access(group, os.W_OK):
                _write_controllers(group)
                return group
    return None


def _is_limited(group: Path) -> bool:
    """Return True if processes leaving a group escape a limit."""
    for name in _LIMITS:
        with contextlib.suppress(FileNotFoundError):  # the controller is not enabled
            if (group / name).read_text().partition(" ")[0].strip() not in _UNLIMITED:
                return True
    return False


def shares_cores(directory: Path) -> bool:
    """Return True if groups below a v2 directory can have weights; enable weights if possible."""
    control = directory / "cgroup.subtree_control"
    try:
        if "cpu" not in control.read_text().split():
            control.write_text("+cpu")
    except OSError:
        return False
    return True


def _enable(directory: Path, *, is_container: bool) -> None:
    """Enable the controllers below a group, after moving its processes away. Raises OSError."""
    if set((directory / "cgroup.subtree_control").read_text().split()) >= _NEEDED:
        return
    if not (directory / "cgroup.type").exists():  # the machine's root, which keeps its processes
        _write_controllers(directory)
        return
    group = directory / _SERVICE_GROUP
    group.mkdir(exist_ok=True)
    _move([os.getpid()], group)
    if is_container:  # the group on top of a cgroup namespace has only the container's processes
        for _ in range(_TRIES):
            left = (directory / "cgroup.procs").read_text().split()
            if not left:
                break
            _move(map(int, left), group)
    try:
        _write_controllers(directory)
    except OSError:
        with contextlib.suppress(OSError):
            _move([os.getpid()], directory)
            group.rmdir()
        raise


def _write_controllers(directory: Path) -> None:
    control = directory / "cgroup.subtree_control"
    if not set(control.read_text().split()) >= _NEEDED:
        control.write_text("+memory +pids")


def _move(pids: Iterable[int], group: Path) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            (group / "cgroup.procs").write_text(str(pid))
