"""Reads of /proc about a sandbox's processes, from the service's side.

A process may end during any read; the read then returns an empty result. A failed read for lack of a
descriptor or of memory on the machine raises Unread: the process's state is then unknown. Formats:
proc(5), and for schedstat the kernel's Documentation/scheduler/sched-stats.rst (nanoseconds run,
nanoseconds waited for a core).
"""

from __future__ import annotations

import errno
import os
import select
import signal
from collections.abc import Iterable, Iterator

_TICK_SECONDS = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CHUNK = 1 << 16
_EXITING = 0x4  # PF_EXITING in a process' flags, see the kernel's sched.h
_PENDING_FIELD = 28  # pending signals, counted from the state
_PENDING_KILL = 1 << (signal.SIGKILL - 1)
_LEAST_OF_MORE = 1 << 11  # a shorter piece is the last: the kernel returns about a page per read
_MOST_BYTES = 1 << 20  # limit of `read`; see `pieces` for longer files
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Unread(Exception):
    """The machine lacks a descriptor or memory for a read."""


def _check_shortage(error: OSError) -> None:
    if error.errno in _SHORTAGES:
        raise Unread(str(error)) from error


def read(path: str) -> bytes:
    """Return the content of a /proc file; empty if its process is gone or access is denied.

    Raises Unread.
    """
    # os.read instead of a file object, for speed: many sandboxes need thousands of reads a second.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        _check_shortage(error)
        return b""
    try:
        data = piece = os.read(descriptor, _CHUNK)
        while len(piece) >= _LEAST_OF_MORE and len(data) < _MOST_BYTES:
            piece = os.read(descriptor, _CHUNK)
            data += piece
        return data
    except OSError as error:
        _check_shortage(error)
        return b""
    finally:
        os.close(descriptor)


def out_of_memory_kills(path: str) -> int:
    """Return the number of processes killed for memory so far, by the file of `kills_path`.

    Returns 0 where the kernel lacks the counter. Raises Unread.
    """
    _, found, rest = read(path).partition(b"\noom_kill ")
    return int(rest.split(None, 1)[0]) if found else 0


def pieces(path: str) -> Iterator[bytes]:
    """Yield a long /proc file in blocks of whole lines. Raises Unread."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        _check_shortage(error)
        return
    unfinished = b""
    try:
        while piece := os.read(descriptor, _CHUNK):
            lines, _, unfinished = (unfinished + piece).rpartition(b"\n")
            yield lines
        yield unfinished
    except OSError as error:
        _check_shortage(error)  # else its process is gone
    finally:
        os.close(descriptor)


def pid_of(pidfd: int) -> int | None:
    """Return the pid of a pidfd in this PID namespace; None if its process is gone. Raises Unread."""
    for line in read(f"/proc/self/fdinfo/{pidfd}").split(b"\n"):
        if line.startswith(b"Pid:"):
            pid = int(line.split()[1])
            return pid if pid > 0 else None
    return None


def is_exiting(pidfd: int) -> bool:
    """Return True if a pidfd's process is exiting or gone; False if the state is unknown.

    After the exit of its first thread alone, a process lives on in its other threads.
    """
    try:
        return _is_exiting(pidfd)
    except Unread:
        poll = select.poll()  # it takes no descriptor, but sees only what is gone
        poll.register(pidfd, select.POLLIN)
        return bool(poll.poll(0))


def _is_exiting(pidfd: int) -> bool:
    for line in read(f"/proc/self/fdinfo/{pidfd}").split(b"\n"):
        if line.startswith(b"Pid:"):
            pid = int(line.split()[1])
            its_threads = threads(pid) if pid > 0 else []
            return pid < 0 or (bool(its_threads) and all(_ends(pid, each) for each in its_threads))
    return False


def _ends(pid: int, thread: int) -> bool:
    """Return True if a thread is gone, exiting, or about to exit: a SIGKILL is pending."""
    fields = read(f"/proc/{pid}/task/{thread}/stat").rpartition(b")")[2].split()
    if len(fields) <= _PENDING_FIELD:
        return True
    return int(fields[6]) & _EXITING != 0 or int(fields[_PENDING_FIELD]) & _PENDING_KILL != 0


def children(pid: int) -> list[int]:
    """Return the children of a process's first thread. Raises Unread."""
    return [int(child) for child in read(f"/proc/{pid}/task/{pid}/children").split()]


def tree(pid: int) -> list[int]:
    """Return `pid` and its descendants. Raises Unread."""
    return list(walk(pid) or ())


def walk(pid: int, most: int | None = None, init: int | None = None) -> dict[int, list[int]] | None:
    """Return the threads of `pid` and of all its descendants, by process. Raises Unread.

    Includes orphans, the children of `init`. Returns None for more than `most` threads, in the time of
    reading `most` threads.
    """
    found: dict[int, list[int]] = {}
    todo = [pid]
    count = 0
    # An orphan moves to `init`, which is read last: no process is missed.
    while todo or (init and (todo := [each for each in children(init) if each not in found])):
        current = todo.pop()
        if current in found:
            continue
        its_threads = threads(current)
        count += max(1, len(its_threads))
        if most is not None and count + len(todo) > most:
            return None
        found[current] = its_threads
        for thread in its_threads:
            of_thread = read(f"/proc/{current}/task/{thread}/children")
            todo += [int(child) for child in of_thread.split()]
    return found


def threads(pid: int) -> list[int]:
    """Return the thread ids of a process. Raises Unread."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError as error:
        _check_shortage(error)
        return []


def scheduled_seconds(thread: int) -> float:
    """Return seconds in which a thread ran or waited for a core."""
    return sum(schedule(thread))


def schedule(thread: int) -> tuple[float, float]:
    """Return (seconds run, seconds waited for a core) of a thread."""
    words = read(f"/proc/{thread}/schedstat").split()
    return (int(words[0]) / 1e9, int(words[1]) / 1e9) if len(words) >= 2 else (0.0, 0.0)


def any_is_runnable(pids: list[int]) -> bool:
    """Return True if a thread of these processes runs or waits for a core."""
    return b"R" in states((pid, thread) for pid in pids for thread in threads(pid))


def states(of: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """Yield the state of each (process, thread) pair: `R`, `S`, `D`, …"""
    for pid, thread in of:
        yield from read(f"/proc/{pid}/task/{thread}/stat").rpartition(b")")[2].split()[:1]


def cpu_seconds(pids: list[int]) -> float:
    """Return CPU seconds of these processes and of their reaped children."""
    total = 0
    for pid in pids:
        fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if len(fields) > 14:
            total += sum(int(field) for field in fields[11:15])  # utime, stime, cutime, cstime
    return total * _TICK_SECONDS


def exceeds_memory(pids: list[int], limit_mb: float) -> bool:
    """Return True if these processes together hold more than `limit_mb`.

    The cheap sum counts pages shared by a fork once per process. If this sum is above the limit,
    smaps_rollup gives the exact sum, in which shared pages are divided among their holders. The
    cheap sum is final where smaps_rollup is unreadable.
    """
    resident = sum(resident_bytes(pid) for pid in pids)
    if resident <= limit_mb * (1 << 20):
        return False
    shares = [_proportional_bytes(pid) for pid in pids]
    if None in shares:
        return True
    return sum(share or 0 for share in shares) > limit_mb * (1 << 20)


def memory_directory(pid: int) -> str:
    """Return the /proc directory with a process's memory.

    Usually the process's own; an exited first thread shows no memory, while other threads may live.
    """
    own = f"/proc/{pid}"
    if not _has_no_memory(own):
        return own
    others = (f"{own}/task/{thread}" for thread in threads(pid))
    return next((each for each in others if not _has_no_memory(each)), own)


def _has_no_memory(directory: str) -> bool:
    return read(f"{directory}/statm").startswith(b"0 ")


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 once the process is gone."""
    words = read(f"{memory_directory(pid)}/statm").split()
    return int(words[1]) * _PAGE_BYTES if len(words) >= 2 else 0


def _proportional_bytes(pid: int) -> int | None:
    """Return the proportional set size; None if unreadable, 0 once the process is gone."""
    for line in read(f"{memory_directory(pid)}/smaps_rollup").split(b"\n"):
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) << 10
    return None if resident_bytes(pid) else 0
