"""Checks for features missing from older kernels, run in a child inside the sandboxes' namespaces.

Without these features a sandbox is still isolated, but reveals more or enforces less than on a
newer kernel.
"""

from __future__ import annotations

import os
import subprocess
import sys

from proctor_service.sandbox.interface import MachineCheck

# Exit code: bit 0 without mount_setattr, bit 1 without subset=pid. The script imports no part of
# the service. 442 is mount_setattr on every architecture of the filter.
_TRY = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
proc = lambda options: libc.mount(b"proc", b"/proc", b"proc", 15, options)
if libc.unshare({flags}):
    os._exit(0)
libc.mount(None, b"/", None, 0x44000, None)
lacks = libc.syscall(442, -100, b"/", 0, bytes(32), 32) != 0  # changes nothing
child = os.fork()
if child == 0:
    os._exit(proc(b"subset=pid") != 0 and proc(None) == 0)
os._exit(lacks | os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) << 1)
"""


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
    ]


def _missing(flags: int) -> int:
    command = [sys.executable, "-I", "-S", "-c", _TRY.format(flags=flags)]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode
