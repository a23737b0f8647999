"""What /proc says of a sandbox's processes, seen from the service.

Every read may find that its process is gone; then it says nothing. Formats: proc(5), and for schedstat
the kernel's Documentation/scheduler/sched-stats.rst (nanoseconds run, nanoseconds waited for a core).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

_TICK_SECONDS = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CHUNK = 1 << 16
_EXITING = 0x4  # PF_EXITING in a process' flags, see the kernel's sched.h
_LEAST_OF_MORE = 1 << 11  # the kernel gives a page at a time, cut between two lines or words
_MOST_BYTES = 1 << 20  # of what is read as a whole; see `pieces` for what may be longer


def read(path: str) -> bytes:
    """What a file of /proc holds now; nothing when its process is gone, or keeps it to itself."""
    # Without a file object: thousands are read a second where many sandboxes run.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        data = piece = os.read(descriptor, _CHUNK)
        while len(piece) >= _LEAST_OF_MORE and len(data) < _MOST_BYTES:
            piece = os.read(descriptor, _CHUNK)
            data += piece
        return data
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def pieces(path: str) -> Iterator[bytes]:
    """A long file of /proc, some whole lines at a time."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    unfinished = b""
    try:
        while piece := os.read(descriptor, _CHUNK):
            lines, _, unfinished = (unfinished + piece).rpartition(b"\n")
            yield lines
        yield unfinished
    except OSError:
        return  # its process is gone
    finally:
        os.close(descriptor)


def pid_of(pidfd: int) -> int | None:
    """The pid that a pidfd has in this pid namespace; None when its process is gone."""
    for line in read(f"/proc/self/fdinfo/{pidfd}").split(b"\n"):
        if line.startswith(b"Pid:"):
            pid = int(line.split()[1])
            return pid if pid > 0 else None
    return None


def is_exiting(pidfd: int) -> bool:
    """Whether the process of a pidfd has begun to end, or is gone; False where that cannot be known."""
    for line in read(f"/proc/self/fdinfo/{pidfd}").split(b"\n"):
        if line.startswith(b"Pid:"):
            pid = int(line.split()[1])
            fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[6:7] if pid > 0 else []
            return pid < 0 or (bool(fields) and int(fields[0]) & _EXITING != 0)
    return False


def tree(pid: int) -> list[int]:
    """`pid` and all that descend from it; orphans of a sandbox hang below its first process."""
    return list(walk(pid) or ())


def walk(pid: int, most: int | None = None) -> dict[int, list[int]] | None:
    """The threads of `pid` and of all that descend from it, by process.

    None when there are more than `most` threads; finding that out takes no longer than reading `most`.
    """
    found: dict[int, list[int]] = {}
    todo = [pid]
    count = 0
    while todo:
        current = todo.pop()
        its_threads = threads(current)
        count += max(1, len(its_threads))
        if most is not None and count + len(todo) > most:
            return None
        found[current] = its_threads
        for thread in its_threads:
            children = read(f"/proc/{current}/task/{thread}/children")
            todo += [int(child) for child in children.split()]
    return found


def threads(pid: int) -> list[int]:
    """Thread ids of a process."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def scheduled_seconds(thread: int) -> float:
    """Seconds that a thread has run or waited for a core."""
    return sum(schedule(thread))


def schedule(thread: int) -> tuple[float, float]:
    """Seconds that a thread has run, and that it has waited for a core."""
    words = read(f"/proc/{thread}/schedstat").split()
    return (int(words[0]) / 1e9, int(words[1]) / 1e9) if len(words) >= 2 else (0.0, 0.0)


def any_is_runnable(pids: list[int]) -> bool:
    """Whether a thread of these processes runs, or waits for a core."""
    return b"R" in states((pid, thread) for pid in pids for thread in threads(pid))


def states(of: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """The state of each of these threads, given as process and thread: `R`, `S`, `D`, …"""
    for pid, thread in of:
        yield from read(f"/proc/{pid}/task/{thread}/stat").rpartition(b")")[2].split()[:1]


def cpu_seconds(pids: list[int]) -> float:
    """CPU time of these processes and of the children that they have reaped."""
    total = 0
    for pid in pids:
        fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if len(fields) > 14:
            total += sum(int(field) for field in fields[11:15])  # utime, stime, cutime, cstime
    return total * _TICK_SECONDS


def exceeds_memory(pids: list[int], limit_mb: float) -> bool:
    """Whether these processes together hold more than `limit_mb`.

    Pages that a fork shares count once for each process in the cheap sum, so what is over the limit by
    it is looked at again, with shared pages divided among their holders (smaps_rollup). Where that is
    not ours to read, the cheap sum counts.
    """
    resident = sum(_resident_bytes(pid) for pid in pids)
    if resident <= limit_mb * (1 << 20):
        return False
    shares = [_proportional_bytes(pid) for pid in pids]
    if None in shares:
        return True
    return sum(share or 0 for share in shares) > limit_mb * (1 << 20)


def _resident_bytes(pid: int) -> int:
    words = read(f"/proc/{pid}/statm").split()
    return int(words[1]) * _PAGE_BYTES if len(words) >= 2 else 0


def _proportional_bytes(pid: int) -> int | None:
    """None when it cannot be known; 0 once the process is gone."""
    for line in read(f"/proc/{pid}/smaps_rollup").split(b"\n"):
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) << 10
    return None if _resident_bytes(pid) else 0
