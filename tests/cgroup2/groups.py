"""Groups of cgroup v2 for the tests: below the root, with limits, and delegated to a user."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_DELEGATED = ("", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads")


@contextlib.contextmanager
def delegated_group(user: int = 0, **limits: str) -> Iterator[Path]:
    """A group that is delegated to a user, with limits: `memory_max="…"` is its file memory.max."""
    (ROOT / "cgroup.subtree_control").write_text("+memory +pids +cpu")
    group = ROOT / f"delegated-{os.getpid()}"
    group.mkdir()
    try:
        for name, value in limits.items():
            (group / name.replace("_", ".")).write_text(value)
        for name in _DELEGATED:
            os.chown(group / name, user, user)
        yield group
    finally:
        remove(group)


def remove(group: Path) -> None:
    """Kills what is in a group, and removes it with all below it."""
    (group / "cgroup.kill").write_text("1")
    while "populated 1" in (group / "cgroup.events").read_text():
        os.sched_yield()
    for folder, _, _ in os.walk(group, topdown=False):
        Path(folder).rmdir()


def events(group: Path) -> dict[str, int]:
    """The group's memory.events."""
    lines = (group / "memory.events").read_text().splitlines()
    return {name: int(number) for name, number in (line.split() for line in lines)}
