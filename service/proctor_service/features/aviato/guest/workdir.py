"""Workdir of a program in a remote sandbox: /box, with work/, home/ and tmp/, and an empty /tmp.

Runs in the remote sandbox, in the supervisor: standard library only. Mounts are unavailable there,
and with them a tmpfs of limited size; instead, the supervisor counts the written bytes.
"""

from __future__ import annotations

import os
import shutil
import stat

BOX = "/box"
_OWN = ("work", "home")
_SHARED = ("/tmp", "/var/tmp", "/dev/shm")
_ENTRIES = 16_384  # limit on the number of files, for any size
_BLOCK_BYTES = 512  # unit of st_blocks, see stat(2)


def prepare(uid: int | None, fresh: bool) -> str:
    """Create or find the workdir for `uid`, and return its path. Raises OSError.

    `uid` is None for the current user.
    """
    box = BOX
    try:
        os.mkdir(box, 0o755)
    except FileExistsError:
        pass
    except OSError:  # not root, or a read-only root file system
        box = f"/var/tmp/box-{os.geteuid()}"
        os.makedirs(box, 0o755, exist_ok=True)
    if fresh:
        _wipe(box)
    for name in _OWN:
        path = f"{box}/{name}"
        os.makedirs(path, 0o755, exist_ok=True)
        if uid is not None:
            os.chown(path, uid, uid, follow_symlinks=False)
    os.makedirs(f"{box}/tmp", exist_ok=True)
    os.chmod(f"{box}/tmp", 0o1777)
    _claim_tmp(box)
    return box


def exceeds(box: str, disk_mb: int) -> bool:
    """Return True if the workdir holds more than `disk_mb`, or too many files."""
    left, entries, todo = disk_mb << 20, _ENTRIES, [box]
    while todo:
        try:
            with os.scandir(todo.pop()) as found:
                for entry in found:
                    status = entry.stat(follow_symlinks=False)
                    left -= status.st_blocks * _BLOCK_BYTES
                    entries -= 1
                    if left < 0 or entries < 0:
                        return True
                    if stat.S_ISDIR(status.st_mode):
                        todo.append(entry.path)
        except OSError:
            continue
    return False


def _claim_tmp(box: str) -> None:
    """Replace /tmp by a link to the workdir's tmp/, if /tmp is empty."""
    try:
        if not os.path.islink("/tmp") and not os.listdir("/tmp"):
            os.rmdir("/tmp")
            os.symlink(f"{box}/tmp", "/tmp")
    except OSError:
        pass  # a mount point, or owned by another user: TMPDIR names the directory for writing


def _wipe(box: str) -> None:
    """Remove an earlier program's files from all writable places. Raises OSError on failure."""
    for name in (*_OWN, "tmp"):
        if os.path.lexists(f"{box}/{name}"):
            shutil.rmtree(f"{box}/{name}")
    for directory in _SHARED:
        if not os.path.isdir(directory):
            continue
        for entry in list(os.scandir(directory)):
            if entry.stat(follow_symlinks=False).st_uid == 0 or entry.path == box:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
