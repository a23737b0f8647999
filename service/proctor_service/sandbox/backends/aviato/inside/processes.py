"""The processes of a remote sandbox, and how to end them.

Runs in the remote sandbox, in the warden: standard library only. There is no pid namespace whose first
process takes all others along, so what belongs to a program is found by descent, session or user, and
looked for again until nothing is left.
"""

from __future__ import annotations

import os
import signal

from ...local import procfs

_ROUNDS = 200
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_OUT_OF_MEMORY = (
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory/memory.oom_control",
)


def _stats() -> dict[int, tuple[int, int]]:
    """pid to (parent, session), of all that is no zombie."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if len(fields) > 3 and fields[0] not in (b"Z", b"X"):
                found[int(name)] = (int(fields[1]), int(fields[3]))
    return found


def below(root: int) -> list[int]:
    """All that descend from a process."""
    return _descendants(_stats(), {root})


def _descendants(stats: dict[int, tuple[int, int]], found: set[int]) -> list[int]:
    below: set[int] = set()
    while True:
        more = {pid for pid, (parent, _) in stats.items() if parent in found | below} - below
        if not more:
            return list(below)
        below |= more


def of_session(leader: int) -> list[int]:
    """A command's processes: its session, and what descends from it.

    What made a session of its own and lost its parent is in the background, and stays.
    """
    stats = _stats()
    own = {pid for pid, (_, session) in stats.items() if leader in (pid, session)}
    return [*own, *(pid for pid in _descendants(stats, own) if pid not in own)]


def of_user(uid: int) -> list[int]:
    """All that run as this user."""
    return [pid for pid in _stats() if _owner(pid) == uid]


def end_strangers(uid: int | None) -> None:
    """Before a fresh box: nothing that an earlier program left may run on. Raises OSError."""
    if uid is None:
        return
    for _ in range(_ROUNDS):
        left = [pid for pid in _stats() if _owner(pid) not in (0, None)]
        if not left:
            return
        for pid in left:
            kill(pid)
    raise OSError("processes of an earlier program cannot be ended")


def _owner(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(b"Uid:"))
    except (OSError, StopIteration):
        return None


def signal_user(uid: int, number: int) -> None:
    """All of a user's at once, or a fork bomb would be quicker: as it, to all that it may signal."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(uid, uid, uid)
            os.kill(-1, number)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def exceed_memory(pids: list[int], limit_mb: float, uid: int | None) -> bool:
    """Whether these processes together hold more than `limit_mb`.

    What they share can only be seen by their own user, where root has not all of its rights: it is looked
    at as that user, once they seem to be over the limit. Who prevents that, shares nothing.
    """
    if uid is None:
        return procfs.exceeds_memory(pids, limit_mb)
    if sum(map(_resident_bytes, pids)) <= limit_mb * (1 << 20):
        return False
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            code = int(procfs.exceeds_memory(pids, limit_mb))
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] != 0


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def kill(pid: int) -> None:
    """Kills a process that may be gone already, or be another's."""
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass


def out_of_memory_kills() -> int:
    """How often the kernel has killed something in this remote sandbox for memory."""
    for path in _OUT_OF_MEMORY:
        try:
            with open(path) as file:
                return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
        except (OSError, ValueError, IndexError):
            continue
    return 0
