"""Read-only files of a running sandbox: mounts that a short-lived child of the zygote adds from outside.

Each file is bound onto itself, read-only: no program of the sandbox can write it, remove it, or put another
in its place, nor take the mount away. A folder on the way that could be renamed is bound onto itself, too,
and stays writable; a folder of an image's own layers cannot be renamed anyhow. The mounts are in the
sandbox's own mount namespace and vanish with it. Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import socket
import stat
from typing import NoReturn

from ..linux import kernel

ORDER = b"read_only"
"""Order for the zygote, with descriptors: socket for the answer, mount namespace, file with the request."""
DONE = b"+"
"""Begins the answer before the number of files; any other answer is an error."""
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ENTRY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_NS_GET_USERNS = 0xB701  # ioctl_ns(2)
_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
_NO_RENAME = (errno.EXDEV, errno.EBUSY, errno.EROFS)
(_SETNS,) = kernel.numbers_of("setns")


def request(directory: bytes, paths: list[bytes]) -> bytes:
    """Return the content of the file with a request. `paths`: below `directory`, which is absolute."""
    return json.dumps([os.fsdecode(each) for each in (directory, *paths)]).encode("ascii")


def answer(descriptors: list[int]) -> NoReturn:
    """In a child of the zygote: fulfil a request, send the answer, and exit."""
    sending, namespace, listing = descriptors[:3]
    try:
        with open(listing, "rb") as file:
            directory, *paths = map(os.fsencode, json.load(file))
        _enter(namespace)
        text = DONE + b"%d" % _make_read_only(directory, paths)
    except BaseException as error:
        text = f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:1000]
    socket.socket(fileno=sending).send(text)
    os._exit(0)


def _enter(namespace: int) -> None:
    """Enter a mount namespace, and the user namespace that owns it."""
    owner = fcntl.ioctl(namespace, _NS_GET_USERNS)
    if not os.path.samestat(os.fstat(owner), os.stat("/proc/self/ns/user")):
        kernel.perform([(_SETNS, owner, kernel.NEWUSER)])
    kernel.perform([(_SETNS, namespace, kernel.NEWNS)])


def _make_read_only(directory: bytes, paths: list[bytes]) -> int:
    """Bind the files that are there, and return their number."""
    above = [each for each in directory.split(b"/") if each]
    by_folder: dict[tuple[bytes, ...], list[bytes]] = {}
    for path in paths:
        *folder, name = path.split(b"/")
        if not {b"", b".", b".."}.intersection((*folder, name)):
            by_folder.setdefault((*above, *folder), []).append(name)
    held: set[tuple[bytes, ...]] = set()
    count = 0
    for way, names in sorted(by_folder.items()):
        try:
            for depth in range(1, len(way) + 1):
                if way[:depth] not in held:
                    held.add(way[:depth])
                    _hold_folder(_opened(way[: depth - 1]), way[depth - 1])
            here = _opened(way)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                continue  # the file is not there: below a link, or removed
            raise
        os.fchdir(here)
        os.close(here)
        count += sum(map(_bind_file, names))
    return count


def _opened(way: tuple[bytes, ...]) -> int:
    """Return the descriptor of a folder by the names on the way to it. Follows no link."""
    here = os.open("/", _FOLDER)
    for part in way:
        try:
            below = os.open(part, _FOLDER, dir_fd=here)
        finally:
            os.close(here)
        here = below
    return here


def _hold_folder(above: int, name: bytes) -> None:
    """Bind a folder onto itself, unless the file system lets nobody rename it."""
    os.fchdir(above)
    os.close(above)
    os.close(os.open(name, _FOLDER))  # no link
    draft = b".%s" % os.urandom(16).hex().encode()
    try:
        os.rename(name, draft)
    except OSError as error:
        if error.errno in _NO_RENAME:
            return
    else:
        os.rename(draft, name)
    _mount(name, kernel.MS_BIND)


def _bind_file(name: bytes) -> bool:
    """Bind a regular file of the working directory onto itself, read-only; False for anything else."""
    try:
        entry = os.open(name, _ENTRY)
    except FileNotFoundError:
        return False
    is_file = stat.S_ISREG(os.fstat(entry).st_mode)
    os.close(entry)
    if is_file:
        flags = os.statvfs(name).f_flag & _FLAGS  # a user namespace may not take them away
        _mount(name, kernel.MS_BIND)
        _mount(name, kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY | flags)
    return is_file


def _mount(name: bytes, flags: int) -> None:
    place = b"./" + name
    result = kernel.libc.mount(place, place, None, ctypes.c_ulong(flags), None)
    kernel.check(result, "mount")
