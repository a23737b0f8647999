"""A process confining itself to a folder, and users of an image on this machine."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence

_NEWNS, _NEWUSER, _NEWNET = 0x0002_0000, 0x1000_0000, 0x4000_0000
_PRIVATE_TREE = 1 << 18 | 16384  # MS_PRIVATE and MS_REC of mount(2)
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LONGEST_PATH = 4095


class Refused(Exception):
    """The image breaks a rule, or exceeds a bound."""


class Unable(Exception):
    """This machine lacks an ability needed by the order."""


class Ids:
    """User ids of an image on this machine; without a range an ordinary user owns all files."""

    def __init__(self, id_range: Sequence[int] | None) -> None:
        self._range = id_range

    def give(self, uid: int, gid: int, folder: int, name: str) -> None:
        """Give a file in a folder to users of the image."""
        if self._range is not None:
            owner = (self._mapped(uid), self._mapped(gid))
            os.chown(name, *owner, dir_fd=folder, follow_symlinks=False)

    def least(self, is_folder: bool) -> int:
        """Return the bits of a mode needed by the owner for reading all of his files."""
        if self._range is not None:
            return 0
        return 0o700 if is_folder else 0o400

    def _mapped(self, number: int) -> int:
        assert self._range is not None
        first, count = self._range
        return first + min(max(number, 0), count - 1)


def path_parts(name: str) -> list[str]:
    """Return the names of a member's path. Raises Refused for a path out of its folder."""
    if len(os.fsencode(name)) > _LONGEST_PATH or "\0" in name:
        raise Refused("a layer has a path that is too long")
    parts = [each for each in name.split("/") if each not in ("", ".")]
    if ".." in parts:
        raise Refused(f"a layer has a path with ..: {name[:200]!r}")
    return parts


def confine(folder: str) -> None:
    """Make a folder the root of this process, in namespaces of its own."""
    separate(os.geteuid() != 0)
    enter(folder)


def separate(is_user: bool) -> None:
    """Enter new namespaces; for an ordinary user, also a user namespace with this user as root."""
    ids = (os.geteuid(), os.getegid())
    call("unshare", _NEWNS | _NEWNET | (_NEWUSER if is_user else 0))
    if is_user:
        for name, text in (
            ("setgroups", "deny"), ("uid_map", f"0 {ids[0]} 1"), ("gid_map", f"0 {ids[1]} 1")
        ):  # fmt: skip
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    call("mount", None, b"/", None, _PRIVATE_TREE, None)


def enter(folder: str) -> None:
    os.umask(0)
    sys.path.clear()  # nothing is imported from an image
    os.chroot(folder)
    os.chdir("/")


def call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
