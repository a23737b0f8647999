"""The changes of a sandbox against its image, as a layer: saved, and applied to another sandbox.

Format: a tar archive as the image specification of the Open Container Initiative has it for layers
(layer.md): `.wh.NAME` for a removed file, and `.wh..wh..opq` in a folder that hides the image's own.
Hard links become copies.

A hostile agent made the changes. What could subvert a grading stays behind (see `retained.py`).
Applying follows no link, and ends in this sandbox.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Any

from .retained import Rule
from .streams import WholeFile, write_all

DESCRIPTOR = 301
"""The folder with all that has changed: descriptor of the first process of an image's sandbox."""
_REMOVED, _HIDES = ".wh.", ".wh..wh..opq"
_CHUNK = 1 << 18
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def is_present() -> bool:
    """Return True in the first process of an image's sandbox, and where it lends the folder."""
    try:
        os.fstat(DESCRIPTOR)
    except OSError:
        return False
    return True


def save(most_bytes: int) -> None:
    """Write the changes to stdout, without files beyond `most_bytes` in total."""
    import tarfile

    vars(tarfile).update(pwd=None, grp=None)  # or it would look up the owners' names
    left = most_bytes
    with open(1, "wb", closefd=False) as out, tarfile.open(
        fileobj=out, mode="w|", format=tarfile.PAX_FORMAT
    ) as archive:
        todo = [""]
        while todo:
            folder = todo.pop()
            try:
                names = sorted(os.listdir(_changed(folder)))
            except OSError:  # the image's user may not read it
                continue
            if folder and set(_names(f"/{folder}")) <= set(names):
                archive.addfile(tarfile.TarInfo(f"{folder}/{_HIDES}"))
            for name in names:
                path = f"{folder}/{name}" if folder else name
                if name.startswith(_REMOVED):
                    continue  # the format has no way to say that a file has such a name
                try:
                    left -= _add(archive, path, left)
                    if _is_folder(_changed(path)):
                        todo.append(path)
                except (OSError, ValueError):  # ValueError: a name that tar cannot store
                    continue
                finally:
                    vars(archive)["members"].clear()  # tarfile would keep all in memory
                    vars(archive)["inodes"].clear()


def _changed(path: str) -> str:
    return f"/proc/self/fd/{DESCRIPTOR}/{path}"


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _is_folder(path: str) -> bool:
    return stat.S_ISDIR(os.lstat(path).st_mode)


def _add(archive: Any, path: str, most_bytes: int) -> int:
    """Add a file of the changes; return its size in bytes."""
    found = os.lstat(_changed(path))
    if stat.S_ISCHR(found.st_mode):  # the overlay's mark of a removed file
        folder, _, name = path.rpartition("/")
        archive.addfile(archive.tarinfo(f"{folder}/{_REMOVED}{name}".lstrip("/")))
        return 0
    member = archive.gettarinfo(_changed(path), path)
    if member is None:
        return 0  # for example a socket
    if member.isreg():
        if member.size > most_bytes:
            return 0
        with WholeFile(_changed(path)) as file:
            archive.addfile(member, file)
        return int(member.size)
    if member.isdir() or member.issym():
        archive.addfile(member)
    return 0


def apply(source: Any, rule: Rule) -> None:
    """Apply those changes of an archive that the rule retains.

    `source`: file object. Raises OSError, ValueError, and for a forged archive the errors of tarfile.
    """
    import tarfile

    with tarfile.open(fileobj=source, mode="r|", bufsize=_CHUNK) as archive:
        while (member := archive.next()) is not None:
            vars(archive)["members"].clear()
            parts = member.name.split("/")
            if {"", ".", ".."}.intersection(parts):
                continue
            *parents, name = parts
            hides = name == _HIDES
            target = name[len(_REMOVED) :] if name.startswith(_REMOVED) else name
            changed = "/" + "/".join(parents if hides else [*parents, target])
            if rule.retains(changed, member.isdir()):
                _apply_one(archive, member, parents, name)
    while source.read(_CHUNK):
        pass


def _apply_one(archive: Any, member: Any, parents: list[str], name: str) -> None:
    here = os.open("/", _FOLDER)
    try:
        for part in parents:
            below = _open_folder(here, part)
            os.close(here)
            here = below
        if name == _HIDES:
            for each in os.listdir(here):
                _remove(here, each)
        elif name.startswith(_REMOVED):
            _remove(here, name[len(_REMOVED) :])
        else:
            _create(archive, member, here, name)
    finally:
        os.close(here)


def _open_folder(here: int, name: str) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=here)
    except FileNotFoundError:
        os.mkdir(name, 0o755, dir_fd=here)
        return os.open(name, _FOLDER, dir_fd=here)


def _create(archive: Any, member: Any, here: int, name: str) -> None:
    mode = member.mode & 0o1777
    if member.isdir():
        try:
            is_folder = stat.S_ISDIR(os.lstat(name, dir_fd=here).st_mode)
        except FileNotFoundError:
            is_folder = False
        if not is_folder:
            _remove(here, name)
            os.mkdir(name, 0o700, dir_fd=here)
        made = os.open(name, _FOLDER, dir_fd=here)
    elif member.isreg():
        _remove(here, name)
        made = os.open(name, _NEW, 0o600, dir_fd=here)
        content = archive.extractfile(member)
        while data := content.read(_CHUNK):
            write_all(made, data)
    elif member.issym():
        _remove(here, name)
        os.symlink(member.linkname, name, dir_fd=here)
        with contextlib.suppress(OSError):
            os.chown(name, member.uid, member.gid, dir_fd=here, follow_symlinks=False)
        return
    else:
        return
    try:
        with contextlib.suppress(OSError):  # an ordinary user's sandbox has one user
            os.fchown(made, member.uid, member.gid)
        os.fchmod(made, mode)
        os.utime(made, (member.mtime, member.mtime))
    finally:
        os.close(made)


def _remove(here: int, name: str) -> None:
    """Remove a file, or a folder with everything in it, if there is one."""
    if _unlink(here, name):
        return
    folder = os.open(name, _FOLDER, dir_fd=here)
    try:
        # One descriptor at a time, since a hostile agent chose the depth.
        way = [(name, os.listdir(folder))]
        while way:
            name, left = way[-1]
            if not left:
                folder = _instead(folder, "..")
                os.rmdir(name, dir_fd=folder)
                way.pop()
            elif not _unlink(folder, child := left.pop()):
                folder = _instead(folder, child)
                way.append((child, os.listdir(folder)))
    finally:
        os.close(folder)


def _unlink(here: int, name: str) -> bool:
    """Remove a file if there is one; False for a folder."""
    try:
        os.unlink(name, dir_fd=here)
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):
        return False
    return True


def _instead(folder: int, name: str) -> int:
    """Open the folder `name` in `folder`, and close `folder`."""
    opened = os.open(name, _FOLDER, dir_fd=folder)
    os.close(folder)
    return opened
