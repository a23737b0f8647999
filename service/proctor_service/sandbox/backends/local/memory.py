"""How much memory a sandbox's processes hold, where no cgroup counts it.

The cheap sums are of what each process has resident, which counts pages that a fork shares once for
each, and of what it has mapped. What may be over the limit by them is looked at again: private pages
divided among their holders, and mappings that processes share once for all, as large as they are,
since pages of those stay when no process has them resident any more. Sockets count by number, as full
as they may get: their buffers are the kernel's memory, and nobody's.

A process that nobody may look into counts with all its address space, or it would hide there. The first
process of a stateful sandbox is such a one, and is ours; so is, for a moment, each command it starts.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from proctor_service.sandbox.backends.local.procfs import pieces, read

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICK_SECONDS = 1.0 / os.sysconf("SC_CLK_TCK")
_SOCKET_BYTES = 256 << 10  # see `jail.settle_namespaces` and `seccomp.outer`, which see to it
_FEW_SOCKETS = 128
_YOUNG_SECONDS = 0.5
_MOST_SECONDS = 0.5  # of CPU time; 64 processes of an honest program take a fifth of it
_ANONYMOUS = b"/dev/zero (deleted)"  # how maps names what is shared and is no file


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """How much a sandbox's processes may hold together; `ours` is one that we started.

    `own_network`: they have a network namespace, and all sockets in it are theirs.
    """

    megabytes: float
    ours: int | None = None
    own_network: bool = True


def may_exceed(pids: list[int], limit: MemoryLimit) -> bool:
    """Whether the cheap sums are over the limit; for each process it takes one read of constant size."""
    most = limit.megabytes * (1 << 20)
    spaces = [_space(pid) for pid in pids]
    resident = sum(resident for _, resident, _ in spaces)
    mapped = sum(mapped for _, _, mapped in spaces)
    return resident + _buffers(pids, limit) > most or mapped > most


def exceeds(pids: list[int], limit: MemoryLimit) -> bool:
    """Whether these processes together hold more than the limit. Not for an event loop.

    How long it takes, the processes choose. After half a second of CPU time what is not yet looked at
    counts as what it has resident.
    """
    if not may_exceed(pids, limit):
        return False
    until = time.thread_time() + _MOST_SECONDS
    shared: dict[bytes, int] = {}
    private = 0
    for pid in pids:
        if time.thread_time() > until:
            private += _space(pid)[1]
            continue
        share = _private_bytes(pid)
        if share is not None:
            private += share
            shared.update(_shared(pid, until))
        elif pid != limit.ours:
            private += _hidden_bytes(pid, limit.ours)
    held = private + sum(shared.values()) + _buffers(pids, limit)
    return held > limit.megabytes * (1 << 20)


def _buffers(pids: list[int], limit: MemoryLimit) -> int:
    sockets = _sockets(pids[0]) if pids and limit.own_network else 0
    return max(0, sockets - _FEW_SOCKETS) * _SOCKET_BYTES


def _space(pid: int) -> tuple[int, int, int]:
    """Bytes of a process: its address space, what is resident, what is mapped and not its own data."""
    words = [int(word) * _PAGE_BYTES for word in read(f"/proc/{pid}/statm").split()]
    if len(words) < 6:
        return 0, 0, 0
    return words[0], words[1], words[0] - words[5]


def _private_bytes(pid: int) -> int | None:
    """What is no shared memory, pages that forks share divided among them; None when it is hidden."""
    found = {}
    for line in read(f"/proc/{pid}/smaps_rollup").split(b"\n"):
        name, _, rest = line.partition(b":")
        if name in (b"Pss", b"Pss_Shmem"):
            found[name] = int(rest.split()[0]) << 10
    if b"Pss" in found:
        return found[b"Pss"] - found.get(b"Pss_Shmem", 0)
    return None if _space(pid)[0] else 0


def _shared(pid: int, until: float) -> dict[bytes, int]:
    """Shared memory that has no name, by inode; files in memory count against the disk.

    As far as it is read when this thread has used `until` seconds of CPU time.
    """
    found: dict[bytes, int] = {}
    for lines in pieces(f"/proc/{pid}/maps"):
        if _ANONYMOUS in lines:
            for line in lines.split(b"\n"):
                if line.endswith(_ANONYMOUS):
                    span, _, _, _, inode, *_ = line.split()
                    start, _, end = span.partition(b"-")
                    found[inode] = found.get(inode, 0) + int(end, 16) - int(start, 16)
        if time.thread_time() > until:
            break
    return found


def _hidden_bytes(pid: int, ours: int | None) -> int:
    size = _space(pid)[0]
    if ours is not None and _age_seconds(pid) < _YOUNG_SECONDS:
        return max(0, size - _space(ours)[0])  # a command that is being started
    return size


def _age_seconds(pid: int) -> float:
    words = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(words) < 20:
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(words[19]) * _TICK_SECONDS


def _sockets(pid: int) -> int:
    """All in the network namespace of a process, also those that nobody has accepted yet."""
    words = read(f"/proc/{pid}/net/sockstat").split(None, 3)
    return int(words[2]) if words[:2] == [b"sockets:", b"used"] else 0
