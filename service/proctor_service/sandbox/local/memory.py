"""Memory of a sandbox's processes, as far as uncounted by cgroups.

Of sockets, some memory is in no cgroup and in no process (`socket_memory.py`). This memory is measured
while all sockets of the machine together may hold more than the sandbox's limit leaves.

Without a cgroup, two cheap sums come first: the resident memory of each process, in which pages shared by
a fork count once per process, and the mapped memory. If a sum is above the limit, an exact measurement
follows. Private pages are divided among their holders. Shared mappings count once and at full size, since
their pages stay allocated even when resident in no process. Sockets count by number and with the largest
possible buffers, which are kernel memory and appear in no process.

A process with unreadable memory maps counts with its whole address space; otherwise memory could be
hidden there. Exceptions are the first process of a stateful sandbox, which belongs to the service, and,
for a moment, each command started by this process.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from proctor_service.sandbox.linux.procfs import memory_directory, pieces, read
from proctor_service.sandbox.linux.socket_memory import (
    MachineMemory,
    NetworkSockets,
    SocketMemory,
    sent_bytes,
)
from proctor_service.sandbox.local.cgroups import Group

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICK_SECONDS = 1.0 / os.sysconf("SC_CLK_TCK")
_SOCKET_BYTES = 256 << 10  # enforced by `network.Network` and `seccomp.outer`
_FEW_SOCKETS = 128
_FEW_SOCKET_BYTES = 16 << 20  # of all the machine's sockets: no reason to look further
_YOUNG_SECONDS = 0.5
_MOST_SECONDS = 0.5  # of CPU time; 64 processes of an honest program take a fifth
_ANONYMOUS = b"/dev/zero (deleted)"  # name of a shared mapping without a file in /proc/PID/maps


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """Memory limit of a sandbox's processes together; `ours`: a process started by the service.

    `own_network`: the processes have their own network namespace, and own all its sockets.
    """

    megabytes: float
    ours: int | None = None
    own_network: bool = True


@dataclass(frozen=True, slots=True)
class SocketLimit:
    """Memory limit of a sandbox, including sockets' memory outside of its cgroup or its processes.

    `group`: its cgroup; None without a memory group. `before`: memory of the machine at the
    sandbox's start.
    """

    limit_bytes: int
    group: Group | None
    sockets: NetworkSockets
    before: MachineMemory

    def may_exceed(self, machine: MachineMemory) -> bool:
        """Return True if the limit leaves less than the whole machine's sockets may hold."""
        most = max(machine.sockets if self.group else 0, self._grown_bytes(machine))
        return most > _FEW_SOCKET_BYTES and self._held_bytes() + most > self.limit_bytes

    def exceeds(self, pid: int, machine: MachineMemory) -> bool:
        """Return True if the sum is above the limit. Too slow for an event loop.

        `pid`: a process of the sandbox.
        """
        found = self.sockets.memory()
        if found is None:
            sockets = max(0, _sockets(pid) - _FEW_SOCKETS)
            found = SocketMemory(min(sockets * _SOCKET_BYTES, machine.sockets))
        shared = min(found.most_held, self._grown_bytes(machine), sent_bytes(pid))
        beside = max(found.unaccepted if self.group else 0, shared)
        return self._held_bytes() + beside > self.limit_bytes

    def _grown_bytes(self, machine: MachineMemory) -> int:
        return machine.unnamed - self.before.unnamed

    def _held_bytes(self) -> int:
        return 0 if self.group is None else self.group.held_bytes()


def may_exceed(pids: list[int], limit: MemoryLimit) -> bool:
    """Return True if a cheap sum is above the limit; a single small read per process."""
    most = limit.megabytes * (1 << 20)
    spaces = [_space(pid) for pid in pids]
    resident = sum(resident for _, resident, _ in spaces)
    mapped = sum(mapped for _, _, mapped in spaces)
    return resident + _buffers(pids, limit) > most or mapped > most


def exceeds(pids: list[int], limit: MemoryLimit) -> bool:
    """Return True if these processes together hold more than the limit. Too slow for an event loop.

    The sandbox controls the duration. After half a second of CPU time, the remaining processes
    count with their resident memory.
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
    """Return bytes of (address space, resident memory, address space without data segments)."""
    statm = read(f"{memory_directory(pid)}/statm")
    words = [int(word) * _PAGE_BYTES for word in statm.split()]
    if len(words) < 6:
        return 0, 0, 0
    return words[0], words[1], words[0] - words[5]


def _private_bytes(pid: int) -> int | None:
    """Return the proportional share without shared memory; None if unreadable."""
    found = {}
    for line in read(f"{memory_directory(pid)}/smaps_rollup").split(b"\n"):
        name, _, rest = line.partition(b":")
        if name in (b"Pss", b"Pss_Shmem"):
            found[name] = int(rest.split()[0]) << 10
    if b"Pss" in found:
        return found[b"Pss"] - found.get(b"Pss_Shmem", 0)
    return None if _space(pid)[0] else 0


def _shared(pid: int, until: float) -> dict[bytes, int]:
    """Return the size of anonymous shared memory by inode; files in memory count as disk use.

    Stops reading when this thread has used `until` seconds of CPU time.
    """
    found: dict[bytes, int] = {}
    for lines in pieces(f"{memory_directory(pid)}/maps"):
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
        return max(0, size - _space(ours)[0])  # a command being started
    return size


def _age_seconds(pid: int) -> float:
    words = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(words) < 20:
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(words[19]) * _TICK_SECONDS


def _sockets(pid: int) -> int:
    """Return the number of sockets in a process's network namespace, even if unaccepted."""
    words = read(f"{memory_directory(pid)}/net/sockstat").split(None, 3)
    return int(words[2]) if words[:2] == [b"sockets:", b"used"] else 0
