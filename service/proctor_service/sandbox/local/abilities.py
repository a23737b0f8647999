"""Checks for features missing from older kernels, run in a child inside the sandboxes' namespaces.

Without these features a sandbox is still isolated, but reveals more or enforces less than on a
newer kernel.
"""

from __future__ import annotations

import os
import subprocess
import sys

from proctor_service.sandbox.interface import MachineCheck

# Exit code: bit 0 without mount_setattr, bit 1 without subset=pid, bit 2 if no process from outside may
# enter and mount (`read_only.py`). The script imports no part of the service. 442 is mount_setattr on every
# architecture of the filter.
_TRY = """
import ctypes, fcntl, os, socket
libc = ctypes.CDLL(None, use_errno=True)
proc = lambda options: libc.mount(b"proc", b"/proc", b"proc", 15, options)
ours, theirs = socket.socketpair()
def inside():
    if libc.unshare({flags}):
        os._exit(0)
    libc.mount(None, b"/", None, 0x44000, None)
    socket.send_fds(theirs, [b"!"], [os.open("/proc/self/ns/mnt", os.O_RDONLY)])
    lacks = libc.syscall(442, -100, b"/", 0, bytes(32), 32) != 0  # changes nothing
    child = os.fork()
    if child == 0:
        os._exit(proc(b"subset=pid") != 0 and proc(None) == 0)
    os._exit(lacks | os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) << 1)
def enters(mounts):
    owner = fcntl.ioctl(mounts, 0xB701)
    is_own = os.path.samestat(os.fstat(owner), os.stat("/proc/self/ns/user"))
    if not is_own and libc.setns(owner, 0x10000000):
        return False
    return libc.setns(mounts, 0x20000) == 0 and libc.mount(b"/", b"/", None, 0x5000, None) == 0
child = os.fork()
if child == 0:
    inside()
theirs.close()
found = socket.recv_fds(ours, 1, 1)[1]
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
try:
    refused = bool(found) and not enters(found[0])
except OSError:
    refused = True
os._exit(code | refused << 2)
"""


READ_ONLY_TESTS = "read_only_tests"
"""Name of the check whether files of a running sandbox can be made read-only."""


def kernel_checks(flags: int) -> list[MachineCheck]:
    """Return the checks of kernel features.

    `flags`: the unshare(2) flags for creating sandboxes; 0 where namespaces are unavailable.
    """
    lacks = _missing(flags) if flags else 0
    release = os.uname().release
    return [
        MachineCheck(
            "read_only_mounts",
            not lacks & 1,
            f"Linux {release}: "
            + (
                "what is mounted below a directory that sandboxes see is as read-only as that"
                if not lacks & 1
                else "a file system mounted below /usr is guarded by its files' modes alone"
            ),
            "Linux 5.12 or later, or nothing mounted below /usr; a container runtime and its "
            "seccomp profile must allow mount_setattr",
            guards=True,
        ),
        MachineCheck(
            "narrow_proc",
            not lacks & 2,
            f"Linux {release}: "
            + (
                "/proc shows a sandbox's own processes and nothing else"
                if not lacks & 2
                else "sandboxes can read what /proc says of the machine: its load, its settings"
            ),
            "Linux 5.8 or later",
            guards=True,
        ),
        MachineCheck(
            READ_ONLY_TESTS,
            not lacks & 4,
            "tests of a repository are read-only while they run"
            if not lacks & 4
            else "tested code of a repository may rewrite tests before they are read",
            "Linux 4.9 or later; in a container as root the capability SYS_CHROOT",
            guards=True,
        ),
    ]


def _missing(flags: int) -> int:
    command = [sys.executable, "-I", "-S", "-c", _TRY.format(flags=flags)]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode
