"""Tells whether a program waits for input, by the system calls in which its threads sleep.

Linux shows these in /proc/PID/task/TID/syscall: `0 0x0 0x7ffd5c0 0x1000 …` is read(0, …). Without this
file, as in gVisor, a sleeping program with an empty standard input counts as waiting.
"""

from __future__ import annotations

import os
from types import MappingProxyType

_READS = MappingProxyType({"x86_64": (0, 19), "aarch64": (63, 65)})
"""Numbers of read and readv."""
_POLLS = MappingProxyType(
    {"x86_64": (7, 23, 232, 270, 271, 281, 441), "aarch64": (22, 72, 73, 441)}
)
"""Numbers of poll, select, epoll_wait, pselect6, ppoll, epoll_pwait and epoll_pwait2."""
_MOST_THREADS = 128
_PROGRAM = 2  # the PID of this process, beside the init of a namespace of its own


class Waits:
    """Looks at a program, and at all other processes of its sandbox.

    `pid`: its process. `stdin`: the end of its standard input at which this process writes. Without a PID
    namespace of the sandbox, only children of the program are known.
    """

    def __init__(self, pid: int, stdin: int) -> None:
        machine = os.uname().machine
        self._reads, self._polls = _READS.get(machine, ()), _POLLS.get(machine, ())
        self._pid = pid
        self._pipe = os.readlink(f"/proc/self/fd/{stdin}")
        self._ours = (1, os.getpid())
        self._is_alone = os.getpid() == _PROGRAM

    def are_all(self) -> bool:
        """Return True if the program waits for input: all threads sleep, at least one of them for input."""
        waits, threads = False, 0
        try:
            for pid in self._processes():
                for thread in os.listdir(f"/proc/{pid}/task"):
                    threads += 1
                    its_wait = self._waits(pid, thread)
                    if its_wait is None or threads > _MOST_THREADS:
                        return False
                    waits = waits or its_wait
        except OSError:  # a thread has just ended
            return False
        return waits

    def _processes(self) -> list[int]:
        if self._is_alone:
            pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
            return [pid for pid in pids if pid not in self._ours][:_MOST_THREADS]
        found = [self._pid]
        for pid in found:  # which grows
            with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
                found += map(int, file.read().split())
            if len(found) > _MOST_THREADS:
                break
        return found

    def _waits(self, pid: int, thread: str) -> bool | None:
        """Return True for a thread waiting for input, None for a running thread."""
        folder = f"/proc/{pid}/task/{thread}"
        try:
            with open(f"{folder}/syscall", "rb") as file:
                words = file.read().split()
        except PermissionError:  # of another user, or dumpable no more
            words = []
        except FileNotFoundError:
            if not os.path.exists(folder):
                raise
            words = []
        if not words:
            with open(f"{folder}/stat", "rb") as file:
                return True if file.read().rpartition(b")")[2].split()[0] == b"S" else None
        if words[0] == b"running":
            return None
        number = int(words[0])
        if number in self._polls:
            return True
        return number in self._reads and self._is_stdin(pid, int(words[1], 16))

    def _is_stdin(self, pid: int, descriptor: int) -> bool:
        try:
            return os.readlink(f"/proc/{pid}/fd/{descriptor}") == self._pipe
        except OSError:
            return descriptor == 0
