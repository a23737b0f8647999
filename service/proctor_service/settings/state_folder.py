"""The journal's default place: a file in the user's state folder for each address of a service.

The folder is `proctor` in `$XDG_STATE_HOME`, by default `~/.local/state`, as the base directory
specification of freedesktop.org has it.
"""

from __future__ import annotations

import os
import re
from os import environ
from pathlib import Path

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
MOUNTS = Path("/proc/self/mountinfo")
REMOTE = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "fuse.sshfs", "fuse.glusterfs", "glusterfs", "gpfs"}
    | {"lustre", "nfs", "nfs4", "orangefs", "panfs", "smb3", "smbfs", "wekafs"}
)
"""Types of file systems for several machines: there SQLite damages a file in use."""


class NoStateFolder(Exception):
    """The folder or the file cannot be used; the message says why."""


def journal_path(address: str) -> Path:
    """Return the file of the service at this URL, or `host:port`. Raises NoStateFolder without a home."""
    bare = address.lower().rpartition("://")[2]
    # "://" and "/" of a URL, ":" before a port
    return state_folder() / f"journal-{re.sub('[^a-z0-9.]+', '-', bare).strip('-.')}.db"


def state_folder() -> Path:
    """Return Proctor's folder. Raises NoStateFolder without a home."""
    base = environ.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):  # to be ignored, by the specification
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            raise NoStateFolder("neither HOME nor XDG_STATE_HOME names a folder")
        base = f"{home}/.local/state"
    return Path(base) / "proctor"


def make_private(path: Path, mounts: Path = MOUNTS) -> None:
    """Create a file and its folder for their owner alone, or give them these modes.

    Raises NoStateFolder for files of another user, and in a read-only folder or a folder shared
    with other machines.
    """
    folder = path.parent
    try:
        _check_owner(folder)
        for each in (folder.parent, folder):
            each.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        if _type_of_file_system(folder, mounts) in REMOTE:
            raise NoStateFolder(f"{folder} is in a file system that other machines may use too")
        folder.chmod(PRIVATE_FOLDER)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags, PRIVATE_FILE)
        try:
            os.fchmod(descriptor, PRIVATE_FILE)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise NoStateFolder(f"{error.filename or path}: {error.strerror}") from None


def _check_owner(folder: Path) -> None:
    """Raise NoStateFolder for another user's folder, or home; root would leave files there."""
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    owner, own = existing.stat().st_uid, os.geteuid()
    if owner != own and (existing == folder or owner != 0):
        raise NoStateFolder(f"{existing} belongs to another user")


def _type_of_file_system(folder: Path, mounts: Path) -> str:
    """Return the type, such as `ext4`; empty if the table of mounts lacks the folder."""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.read_text(errors="replace").splitlines():
        fields = line.split()
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return ""
