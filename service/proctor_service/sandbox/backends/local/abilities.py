"""What an older kernel lacks, tried out where sandboxes will stand: in namespaces, in a child.

Without these a sandbox has its walls, and they show more or hold less than a newer kernel's would.
"""

from __future__ import annotations

import os
import subprocess
import sys

from proctor_service.sandbox.interface import Check

# Exit code: 1 for each ability that is missing, by its bit. Runs by itself: no part of the service is on
# its path. 442 is mount_setattr on every architecture that the filter knows.
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


def kernel_checks(flags: int) -> list[Check]:
    """`flags`: those of unshare(2) with which sandboxes are made; 0 where none can be."""
    lacks = _missing(flags) if flags else 0
    release = os.uname().release
    return [
        Check(
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
        Check(
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
