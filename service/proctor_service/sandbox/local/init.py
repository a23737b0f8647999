"""Init of a sandbox: process 1 of its PID namespace, so that a program is process 2.

The kernel drops a signal to process 1 that has no handler, and gives it all orphans. An init is a
clone of the fork server that shares its memory, and sleeps in libc's `pause`: it costs no copy of a
page, and the kernel reaps its children since it ignores SIGCHLD. The fork server has all signals
blocked, and so has the init. Runs in the fork server: standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal

from ..linux import kernel

_STACK_BYTES = 1 << 14
_SIGCHLD, _SIGKILL = int(signal.SIGCHLD), int(signal.SIGKILL)
_FLAGS = kernel.VM | kernel.FILES | kernel.SIGCHLD
_EXITING = 0x4  # PF_EXITING in a process' flags, see the kernel's sched.h
# Names of this module: a look into another module touches its objects, too.
_syscall, _perform, _clone_into, _check = (
    kernel.syscall, kernel.perform, kernel.clone, kernel.check,
)  # fmt: skip
_SETNS, _UNSHARE, _WAIT4, _KILL = kernel.numbers_of("setns", "unshare", "wait4", "kill")


class Init:
    """Starts and ends the init of one sandbox at a time."""

    def __init__(self) -> None:
        libc = kernel.libc
        self._namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._clone, self._signal = libc.clone, libc.signal
        self._stack = ctypes.create_string_buffer(_STACK_BYTES)
        top = (ctypes.addressof(self._stack) + _STACK_BYTES) & ~0xF
        self._arguments = libc.pause, ctypes.c_void_p(top), _FLAGS, None
        self._default, self._ignore = ctypes.c_void_p(0), ctypes.c_void_p(1)  # SIG_DFL, SIG_IGN
        self._entering = ((_UNSHARE, kernel.NEWPID),)
        self._leaving = ((_SETNS, self._namespace, kernel.NEWPID),)
        self._pid = 0

    def clone_beside(self, flags: int) -> int:
        """Start an init in a new PID namespace, and clone this process as process 2 there.

        Return 0 in the clone, its PID in the fork server. Raises OSError.
        """
        _perform(self._entering)
        try:
            self._signal(_SIGCHLD, self._ignore)  # an init keeps this
            self._pid = self._clone(*self._arguments)
            self._signal(_SIGCHLD, self._default)
            if self._pid < 0:
                _check(-1, "clone an init")
            try:
                pid = _clone_into(flags)
            except OSError:
                self.kill()
                self.wait()
                raise
            if pid == 0:
                return 0
        except OSError:
            _perform(self._leaving)
            raise
        _perform(self._leaving)
        return pid

    def is_dying(self) -> bool:
        """Return True if somebody outside has killed the init."""
        with open(f"/proc/{self._pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[6]) & _EXITING != 0

    def kill(self) -> None:
        """Kill the init, and thereby all processes of the sandbox."""
        _syscall(_KILL, self._pid, _SIGKILL)

    def wait(self) -> None:
        """Wait until the killed processes are gone."""
        _syscall(_WAIT4, self._pid, None, 0, None)
