"""Where a program lives in a remote sandbox: /box, with work/, home/ and tmp/, and an empty /tmp.

Runs in the remote sandbox, as the warden: standard library only. There is no mount to be had there, so
no tmpfs with a size of its own; how much is written is counted instead.
"""

from __future__ import annotations

import os
import shutil
import stat

BOX = "/box"
_OWN = ("work", "home")
_SHARED = ("/tmp", "/var/tmp", "/dev/shm")
_ENTRIES = 16_384  # more than this in a box is too much, whatever its size
_BLOCK_BYTES = 512  # of st_blocks, see stat(2)


def prepare(uid: int | None, fresh: bool) -> str:
    """Makes the box for `uid` (None: for whoever we are), or finds it; its path. Raises OSError."""
    box = BOX
    try:
        os.mkdir(box, 0o755)
    except FileExistsError:
        pass
    except OSError:  # not root, or a read-only root
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
    """Whether more than that is written in the box."""
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
    """Makes /tmp the box's own, as long as nobody has put anything there."""
    try:
        if not os.path.islink("/tmp") and not os.listdir("/tmp"):
            os.rmdir("/tmp")
            os.symlink(f"{box}/tmp", "/tmp")
    except OSError:
        pass  # a mount of its own, or not ours: TMPDIR says where to write


def _wipe(box: str) -> None:
    """Removes what an earlier program left, wherever all may write. Raises OSError when it cannot."""
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
