"""Processes of a remote sandbox, and functions to kill them.

Runs in the remote sandbox, in the supervisor: standard library only. The sandbox lacks a PID
namespace with a first process which takes all others along. So a program's processes are found by
descent, session or user, and the search is repeated until all are gone.
"""

from __future__ import annotations

import os
import select
import signal

from ....sandbox.linux import procfs

_ROUNDS = 200
_CHUNK = 1 << 16
_OUT_OF_MEMORY = (
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory/memory.oom_control",
)


def _stats() -> dict[int, tuple[int, int]]:
    """Return pid to (parent, session), for all processes except zombies."""
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
    """Return all descendants of a process."""
    return _descendants(_stats(), {root})


def _descendants(stats: dict[int, tuple[int, int]], found: set[int]) -> list[int]:
    below: set[int] = set()
    while True:
        more = {pid for pid, (parent, _) in stats.items() if parent in found | below} - below
        if not more:
            return list(below)
        below |= more


def of_session(leader: int) -> list[int]:
    """Return a command's processes: its session, and their descendants.

    Processes with a session of their own and without their parent are background processes, and
    stay.
    """
    stats = _stats()
    own = {pid for pid, (_, session) in stats.items() if leader in (pid, session)}
    return [*own, *(pid for pid in _descendants(stats, own) if pid not in own)]


def of_user(uid: int) -> list[int]:
    """Return all processes of this user."""
    return [pid for pid in _stats() if _owner(pid) == uid]


def end_strangers(uid: int | None) -> None:
    """Kill all processes of an earlier program, before a fresh workdir. Raises OSError."""
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
    """Signal all processes of a user at once, as this user; a loop would lose to a fork bomb."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(uid, uid, uid)
            os.kill(-1, number)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def exceed_memory(pids: list[int], limit_mb: float, uid: int | None) -> bool:
    """Return True if these processes together hold more than `limit_mb`.

    Where root lacks some capabilities, only the processes' own user can read their shared memory.
    So a child with this user id measures again when the cheap sum is above the limit. If hostile
    processes prevent this measurement, shared pages count once per process.
    """
    try:
        if uid is None:
            return procfs.exceeds_memory(pids, limit_mb)
        if sum(map(procfs.resident_bytes, pids)) <= limit_mb * (1 << 20):
            return False
    except procfs.Unread:
        return False
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            code = int(procfs.exceeds_memory(pids, limit_mb))
        except procfs.Unread:
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] != 0


def kill(pid: int) -> None:
    """Kill a process, ignoring errors (already gone, or owned by another user)."""
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass


def out_of_memory_kills() -> int:
    """Return the number of out-of-memory kills in this remote sandbox."""
    for path in _OUT_OF_MEMORY:
        try:
            with open(path) as file:
                return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
        except (OSError, ValueError, IndexError):
            continue
    return 0


def may_become(uid: int) -> bool:
    """Return True if this process is root and `uid` is mapped in its user namespace."""
    with open("/proc/self/uid_map") as file:
        ranges = [[int(word) for word in line.split()] for line in file]
    return os.geteuid() == 0 and any(first <= uid < first + count for first, _, count in ranges)


def drain_in_background(descriptors: list[int]) -> None:
    """Fork a process to drain the output of background processes, or SIGPIPE would kill them."""
    pid = os.fork()
    if pid:
        os.setpgid(pid, pid)  # so killing this command's processes spares this process
        return
    try:
        for descriptor in (0, 1, 2):
            os.close(descriptor)
        poll = select.poll()
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        while descriptors:
            for descriptor, _ in poll.poll():
                if not os.read(descriptor, _CHUNK):
                    poll.unregister(descriptor)
                    descriptors.remove(descriptor)
    finally:
        os._exit(0)
