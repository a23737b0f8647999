"""Resources counted by user in the kernel, as held by the processes of a sandbox; see `shortages`.

The sandbox controls how long these reads take, so they stop at a quarter of the user's limit, and watches
of epoll(7), of which there may be millions, are estimated.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from proctor_service.sandbox.linux import kernel, procfs
from proctor_service.sandbox.local.kernel_users import sysctl
from proctor_service.sandbox.local.shortage_probe import (
    EPOLL,
    IN_TRANSIT,
    INOTIFY,
    PIPES,
    PROCESSES,
)

T = TypeVar("T")

_ENOUGH = 0.25
_EXCESS = 1 / 16
_LEAST_EXCESS = 1 / 64
_PIPE_PAGES = 16
_MOST_SECONDS = 0.2  # of CPU time
_WATCH_BYTES = 200  # a watch and its entry in a wait queue
_SMALL_PIPE_PAGES = 2  # of a pipe above the soft limit
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PIDFD_GETFD, _KCMP_FILES = 438, 2
_LIMITS = {
    PIPES: ("fs/pipe-user-pages-soft", 16_384),
    EPOLL: ("fs/epoll/max_user_watches", 1 << 20),
    INOTIFY: ("fs/inotify/max_user_instances", 128),
}
_KINDS = (PIPES, IN_TRANSIT, EPOLL, INOTIFY, PROCESSES)
_EPOLL, _INOTIFY = "anon_inode:[eventpoll]", "anon_inode:inotify"


@dataclass(frozen=True, slots=True)
class UserLimits:
    """Limits of a user by kind; a kind without limit is absent, or 0."""

    by_kind: Mapping[int, int]

    def part(self, kind: int, number: int) -> float:
        """Return `number` of a kind as a part of the limit; 0 without limit."""
        most = self.by_kind.get(kind, 0)
        return number / most if most > 0 else 0.0


def user_limits(open_files: int) -> UserLimits:
    """Return the limits of this process's user. `open_files`: limit of a sandbox's process."""
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    return UserLimits(
        {
            IN_TRANSIT: open_files,
            PROCESSES: processes if processes > 0 else sysctl("kernel/threads-max", 1 << 15),
            **{kind: sysctl(*which) for kind, which in _LIMITS.items()},
        }
    )


@dataclass(frozen=True, slots=True)
class Candidate(Generic[T]):
    """A sandbox in use: the PID of its first process, and the short kinds of resources.

    `is_repeatable`: its run can be repeated in another sandbox.
    """

    sandbox: T
    pid: int
    kinds: int
    is_repeatable: bool


@dataclass(frozen=True, slots=True)
class Holder(Generic[T]):
    """A sandbox to be ended. `is_excess`: the sandbox holds more than a program can need."""

    sandbox: T
    is_excess: bool


def holders(candidates: Sequence[Candidate[T]], limits: UserLimits) -> list[Holder[T]]:
    """Return the sandboxes to be ended in a shortage. Too slow for an event loop.

    Sandboxes with an excess, and at least half as much as the largest holder; else the largest holder
    alone. Neither where all together hold little: other processes of the user then hold the rest. In any
    case small holders with a smaller pipe than usual from the kernel: their programs may wait for ever.
    """
    counts: list[tuple[float, Candidate[T]]] = []
    found: list[Holder[T]] = []
    for each in candidates:
        with contextlib.suppress(procfs.Unread):
            holdings = _Holdings(each.kinds, limits)
            holdings.count(each.pid)
            counts.append((holdings.part(), each))
            is_small = holdings.part() < _LEAST_EXCESS
            if holdings.has_small_pipe and is_small and each.is_repeatable:
                found.append(Holder(each.sandbox, False))
    if sum(part for part, _ in counts) >= _ENOUGH:
        most, first = max(counts, key=lambda each: each[0])
        excess = [each.sandbox for part, each in counts if part >= max(_EXCESS, most / 2)]
        if not excess and most >= _LEAST_EXCESS:
            found.append(Holder(first.sandbox, False))
        found = [Holder(each, True) for each in excess] + found
    return found


def watches_exceed(pid: int, megabytes: float) -> bool:
    """Return True if watches of epoll(7) of `pid` and its descendants take more kernel memory.

    Where no cgroup counts memory. Too slow for an event loop. Raises procfs.Unread.
    """
    limits = UserLimits({EPOLL: int(megabytes * (1 << 20) / _WATCH_BYTES)})
    holdings = _Holdings(EPOLL, limits)
    holdings.count(pid)
    return holdings.part() >= 1.0


class _Holdings:
    """Resources held by the processes of a sandbox. `kinds`: bits of `shortage_probe`."""

    def __init__(self, kinds: int, limits: UserLimits) -> None:
        self.has_small_pipe = False
        self._kinds = kinds
        self._limits = limits
        self._found = dict.fromkeys(_KINDS, 0)
        self._pipes: set[str] = set()
        self._polls: list[str] = []

    def part(self) -> float:
        """Return the largest part of a limit; from a quarter on, a lower bound."""
        return max(
            (
                self._limits.part(kind, number)
                for kind, number in self._found.items()
                if kind & self._kinds
            ),
            default=0.0,
        )

    def count(self, pid: int) -> None:
        """Add the resources of `pid` and its descendants. Raises procfs.Unread."""
        self._count_all(pid)
        self._estimate_watches()

    def _count_all(self, pid: int) -> None:
        for process, threads in (procfs.walk(pid) or {}).items():
            self._found[PROCESSES] += len(threads)
            for table in _tables(process, threads):
                for name in self._descriptors(table):
                    self._count_descriptor(process, table, name)
                    if self.part() >= _ENOUGH:
                        return

    def _descriptors(self, table: str) -> list[str]:
        """Return the descriptors of a table; another user's are known from their lines alone."""
        with contextlib.suppress(OSError):
            try:
                return os.listdir(f"{table}/fd")
            except PermissionError:
                self._polls += [f"{table}/fdinfo/{name}" for name in os.listdir(f"{table}/fdinfo")]
        return []

    def _estimate_watches(self) -> None:
        """Count the watches of some instances of epoll(7), chosen by chance, and conclude on all."""
        until = time.thread_time() + _MOST_SECONDS
        random.shuffle(self._polls)
        watches = 0
        for number, path in enumerate(self._polls, 1):
            watches += sum(lines.count(b"tfd:") for lines in procfs.pieces(path))
            if time.thread_time() > until or number == len(self._polls):
                self._found[EPOLL] = watches * len(self._polls) // number
                return

    def _count_descriptor(self, process: int, table: str, name: str) -> None:
        try:
            what = os.readlink(f"{table}/fd/{name}")
        except OSError:
            return
        if what.startswith("pipe:") and self._kinds & PIPES:
            if what not in self._pipes:
                self._pipes.add(what)
                pages = _pipe_pages(process, int(name))
                self._found[PIPES] += pages
                self.has_small_pipe |= 0 < pages <= _SMALL_PIPE_PAGES
        elif what.startswith("socket:") and self._kinds & (IN_TRANSIT | PIPES):
            # What is in transit may be a pipe.
            in_transit = sum(
                int(line[8:]) for line in _info(table, name) if line[:8] == b"scm_fds:"
            )
            self._found[IN_TRANSIT] += in_transit
            self._found[PIPES] += in_transit * _PIPE_PAGES
        elif what == _EPOLL and self._kinds & EPOLL:
            self._polls.append(f"{table}/fdinfo/{name}")
        elif what == _INOTIFY:
            self._found[INOTIFY] += 1


def _tables(process: int, threads: list[int]) -> Iterator[str]:
    """Yield the directory of each table of descriptors: a thread may have a table of its own."""
    [kcmp] = kernel.numbers_of("kcmp")
    for number, thread in enumerate(threads):
        if number == 0 or kernel.syscall(kcmp, threads[0], thread, _KCMP_FILES, 0, 0) != 0:
            yield f"/proc/{process}/task/{thread}"


def _info(table: str, name: str) -> list[bytes]:
    return procfs.read(f"{table}/fdinfo/{name}").split(b"\n")


def _pipe_pages(process: int, descriptor: int) -> int:
    """Return the pages of a pipe; the usual number for an inaccessible pipe."""
    try:
        pidfd = os.pidfd_open(process)
    except OSError:
        return 0
    try:
        copy = kernel.syscall(_PIDFD_GETFD, pidfd, descriptor, 0)
        if copy < 0:
            return _PIPE_PAGES
        try:
            return fcntl.fcntl(copy, fcntl.F_GETPIPE_SZ) // _PAGE_BYTES
        finally:
            os.close(copy)
    except OSError:
        return _PIPE_PAGES
    finally:
        os.close(pidfd)
