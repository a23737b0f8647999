"""The changes of a sandbox against its image, as a layer: saved, and applied to another sandbox.

Format: a tar archive by the image specification of the Open Container Initiative for layers (layer.md),
with `.wh.NAME` for a removed file or folder. `.wh..wh..opq`, in a folder which hides all of the image's
own, is applied but never written: `retained.py` decides about each missing name. Hard links become
copies. Lost are pipes and sockets, names with the prefix `.wh.`, the bits for another user or group,
extended attributes, times of links, and paths above 4096 bytes.

A hostile agent made the changes. Files able to subvert a grading stay behind (see `retained.py`).
Applying follows no link, and ends in this sandbox.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from typing import Any

from .retained import Rule
from .streams import WholeFile, write_all

DESCRIPTOR = 301
"""The folder with all changes: descriptor of the first process of an image's sandbox."""
LOWER = 302
"""Another: the image without changes."""
_REMOVED, _HIDES = ".wh.", ".wh..wh..opq"
_MODE = 0o1777
_CHUNK = 1 << 18
_BLOCK = 1 << 14  # tarfile copies a whole block for each small member
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def is_present() -> bool:
    """Return True in the first process of an image's sandbox, and in processes lent the folder."""
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
        todo = [("", True)]
        while todo:
            folder, is_in_image = todo.pop()
            try:
                names = sorted(os.listdir(_changed(folder)))
            except OSError:  # unreadable for the image's user
                continue
            for name in _removed(folder, names) if is_in_image else ():
                with contextlib.suppress(ValueError):
                    archive.addfile(tarfile.TarInfo(_path(folder, _REMOVED + name)))
            for name in names:
                path = _path(folder, name)
                if name.startswith(_REMOVED):
                    continue  # the format cannot express a file with such a name
                try:
                    left -= _add(archive, path, left)
                    if _is_folder(_changed(path)):
                        todo.append((path, is_in_image and _is_folder(_in_image(path))))
                except (OSError, ValueError):  # ValueError: a name that tar cannot store
                    continue
                finally:
                    vars(archive)["members"].clear()  # tarfile would keep all in memory
                    vars(archive)["inodes"].clear()


def _changed(path: str) -> str:
    return f"/proc/self/fd/{DESCRIPTOR}/{path}"


def _in_image(path: str) -> str:
    """Return the place of a path in the image, if all folders on the way are folders there, too."""
    return f"/proc/self/fd/{LOWER}/{path}"


def _path(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _removed(folder: str, changed: list[str]) -> list[str]:
    """Return the names of the image which a changed folder lost without a mark of their own.

    The folder, or a folder above, was removed and made again. The overlay's mark for this is an attribute
    readable by root of the machine alone, so the image and the sandbox's own view are compared.
    """
    try:
        gone = set(os.listdir(_in_image(folder))).difference(changed)
        gone = gone.difference(os.listdir(f"/{folder}")) if gone else gone
    except OSError:  # in doubt, the file stays
        return []
    return sorted(name for name in gone if not name.startswith(_REMOVED))


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _add(archive: Any, path: str, most_bytes: int) -> int:
    """Add a file of the changes; return its size in bytes."""
    member = archive.gettarinfo(_changed(path), path)
    if member is not None and member.isreg():
        if member.size > most_bytes:
            return 0
        with WholeFile(_changed(path)) as file:
            archive.addfile(member, file)
        return int(member.size)
    if member is None or not (member.isdir() or member.issym()):
        # The overlay's mark of a removed file, or a pipe or socket: one of the image is gone.
        folder, _, name = path.rpartition("/")
        member = archive.tarinfo(_path(folder, _REMOVED + name))
    archive.addfile(member)
    return 0


def apply(source: Any, rule: Rule) -> None:
    """Apply the changes of an archive which the rule retains.

    `source`: file object. Raises OSError, ValueError, and for a forged archive the errors of tarfile.
    """
    import tarfile

    folders: dict[tuple[str, ...], Any] = {}
    with tarfile.open(fileobj=source, mode="r|", bufsize=_BLOCK) as archive:
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
                if member.isdir():
                    folders[tuple(parts)] = member
    while source.read(_CHUNK):
        pass
    for path, member in reversed(folders.items()):
        _finish_folder(path, member)


def _apply_one(archive: Any, member: Any, parents: list[str], name: str) -> None:
    here = _way_to(parents)
    try:
        if name == _HIDES:
            for each in os.listdir(here):
                _remove(here, each)
        elif name.startswith(_REMOVED):
            _remove(here, name[len(_REMOVED) :])
        else:
            _create(archive, member, here, name)
    finally:
        os.close(here)


def _way_to(path: Iterable[str]) -> int:
    """Open a folder; make all missing folders on the way."""
    here = os.open("/", _FOLDER)
    try:
        for part in path:
            below = _open_folder(here, part)
            os.close(here)
            here = below
    except OSError:
        os.close(here)
        raise
    return here


def _finish_folder(path: tuple[str, ...], member: Any) -> None:
    """Set mode and time of a folder, which hold only when the folder is full.

    Equal values are left: the image's user may set them only as the folder's owner.
    """
    made = _way_to(path)
    try:
        mode = os.fstat(made).st_mode
        if (mode ^ member.mode) & _MODE:
            os.fchmod(made, member.mode & _MODE)
        with contextlib.suppress(PermissionError):
            os.utime(made, (member.mtime, member.mtime))
    finally:
        os.close(made)


def _open_up(folder: int) -> None:
    """Let the owner change the folder."""
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        with contextlib.suppress(PermissionError):
            os.fchmod(folder, mode | stat.S_IRWXU)


def _open_folder(here: int, name: str) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=here)
    except FileNotFoundError:
        os.mkdir(name, 0o755, dir_fd=here)
        return os.open(name, _FOLDER, dir_fd=here)


def _create(archive: Any, member: Any, here: int, name: str) -> None:
    if member.isdir():
        try:
            is_folder = stat.S_ISDIR(os.lstat(name, dir_fd=here).st_mode)
        except FileNotFoundError:
            is_folder = False
        if not is_folder:
            _remove(here, name)
            os.mkdir(name, 0o700, dir_fd=here)
        made = os.open(name, _FOLDER, dir_fd=here)
        _open_up(made)
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
        if member.isreg():
            os.fchmod(made, member.mode & _MODE)
            os.utime(made, (member.mtime, member.mtime))
    finally:
        os.close(made)


def _remove(here: int, name: str) -> None:
    """Remove a file, or a folder with its contents, if present."""
    if _unlink(here, name):
        return
    folder = os.open(name, _FOLDER, dir_fd=here)
    try:
        _open_up(folder)
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
                _open_up(folder)
                way.append((child, os.listdir(folder)))
    finally:
        os.close(folder)


def _unlink(here: int, name: str) -> bool:
    """Remove a file if present; False for a folder."""
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
