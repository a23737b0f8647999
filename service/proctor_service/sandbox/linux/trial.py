"""The steps of making a sandbox, each tried once: which of them the kernel refuses, and why.

A program: `python -m proctor_service.sandbox.linux.trial UID root|user`. The trial prints a line
for each step reached: the step and the errno, 0 for success. All its effects end with the process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from proctor_service.sandbox.linux import kernel

UNSHARE, USER_IDS, MOUNT = "unshare", "user_ids", "mount"
PROC, PIVOT_ROOT, LOOPBACK = "proc", "pivot_root", "loopback"
STEPS = (UNSHARE, USER_IDS, MOUNT, PROC, PIVOT_ROOT, LOOPBACK)
_NEW = "/sys"  # as `build_root` does: a directory present in every container
_NAMESPACES = kernel.NEWNS | kernel.NEWUTS | kernel.NEWIPC | kernel.NEWPID | kernel.NEWNET


def main() -> None:
    """Try all steps, up to the first failure which prevents the rest."""
    uid, as_root = int(sys.argv[1]), sys.argv[2] == "root"
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    flags = _NAMESPACES if as_root else _NAMESPACES | kernel.NEWUSER
    if not _succeeds(UNSHARE, lambda: kernel.unshare(flags)):
        return
    if not as_root and not _succeeds(USER_IDS, lambda: _map_ids(uid, outer_uid, outer_gid)):
        return
    child = os.fork()  # the first process of the new pid namespace
    if child:
        os.waitpid(child, 0)
        return
    _succeeds(LOOPBACK, kernel.bring_loopback_up)
    if _succeeds(MOUNT, _mount_root):
        _succeeds(PROC, _mount_proc)
        _succeeds(PIVOT_ROOT, lambda: kernel.pivot_root(_NEW))


def _map_ids(uid: int, outer_uid: int, outer_gid: int) -> None:
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {outer_uid} 1"),
        ("gid_map", f"{uid} {outer_gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _mount_root() -> None:
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", _NEW, "tmpfs", kernel.MS_NOSUID, "size=1m,mode=755")
    os.mkdir(f"{_NEW}/proc")


def _mount_proc() -> None:
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("proc", f"{_NEW}/proc", "proc", flags)


def _succeeds(step: str, take: Callable[[], None]) -> bool:
    """Take a step, and print its ending."""
    code = 0
    try:
        take()
    except OSError as error:
        code = error.errno or -1
    os.write(1, f"{step} {code}\n".encode())
    return code == 0


if __name__ == "__main__":
    main()
