"""Unpacks a layer into a folder, in the form of overlayfs.

Formats: layer.md of the image specification of the Open Container Initiative, and overlayfs.rst of Linux for
removed files (a character device 0/0) and for folders hiding the folders of lower layers (an attribute).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import stat
import subprocess
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any

from .confinement import FOLDER, Ids, Refused, confine, path_parts

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_REMOVED, _HIDES, _OWN = ".wh.", ".wh..wh..opq", ".wh..wh."
_CHUNK = 1 << 20
_MODE = 0o7777
_BLOCK_BYTES = 4096
_FILE_BYTES = 1024  # of an inode and a name, roughly
_MOST_FILES = 2_000_000
_REPORT_BYTES = 16 << 20  # between two lines about the progress
_MAGIC_GZIP, _MAGIC_ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class _Member(tarfile.TarInfo):
    """A member with an error for a damaged header; to tarfile alone, the header would end the archive."""

    @classmethod
    def fromtarfile(cls, archive: Any) -> Any:
        """Read the next header. Raises Refused."""
        try:
            return super().fromtarfile(archive)
        except (tarfile.EOFHeaderError, tarfile.EmptyHeaderError):  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise Refused(f"a layer's archive is damaged: {error}") from None


class _Hashed:
    """A stream for tarfile; counts and hashes its bytes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes."""
        data = self._stream.read(size)
        self.digest.update(data)
        return data


class _Unpacking:
    """A layer's folder during filling. The process's root is the folder."""

    def __init__(self, ids: Ids, attribute: str, most_bytes: int) -> None:
        self._ids = ids
        self._attribute = attribute
        self._most_bytes = most_bytes
        self.bytes = 0
        self.files = 0
        self._reported_bytes = 0
        self.implicit: dict[str, None] = {}
        """Folders which no member names: those of the layers below decide about mode and owner."""
        self.links: list[tuple[str, str]] = []
        """Hard links to files of the layers below, each with its target."""
        self._folders: dict[str, tuple[int, float]] = {}  # mode and time hold when all is written
        self._parent: tuple[str, int] = ("", -1)

    def add(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Add a member. Raises Refused, OSError."""
        parts = path_parts(member.name)
        self.files += 1
        self.bytes += _BLOCK_BYTES if member.isdir() else _FILE_BYTES
        self._report()
        if self.files > _MOST_FILES:
            raise Refused(f"a layer has more than {_MOST_FILES} files")
        if not parts:
            if member.isdir():
                self._folders["."] = (member.mode, member.mtime)
                self._ids.give(member.uid, member.gid, self._folder(()), ".")
            return
        *parents, name = parts
        if name == _HIDES:
            self._hide(self._folder(parents))
        elif any(part.startswith(_OWN) for part in parts):
            return  # of aufs
        elif name.startswith(_REMOVED):
            self._mark_removed(parents, _one_name(name[len(_REMOVED) :]))
        else:
            self._create(archive, member, parents, name)

    def _report(self) -> None:
        """Tell the bytes so far, from time to time. Raises Refused beyond the bound."""
        if self.bytes > self._most_bytes:
            raise Refused("a layer is too large")
        if self.bytes - self._reported_bytes > _REPORT_BYTES:
            self._reported_bytes = self.bytes
            print(json.dumps({"bytes": self.bytes}), flush=True)

    def finish(self) -> None:
        """Set modes and times of folders, which hold only when all is written."""
        for path, (mode, mtime) in self._folders.items():
            with suppress(FileNotFoundError, NotADirectoryError):
                folder = self._opened(path)
                try:
                    os.fchmod(folder, mode & _MODE | self._ids.least(is_folder=True))
                    _set_time(folder, mtime)
                finally:
                    os.close(folder)

    def _opened(self, path: str) -> int:
        here = os.open("/", FOLDER)
        for part in path.split("/"):
            below = os.open(part, FOLDER | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
        return here

    def _folder(self, parts: Sequence[str]) -> int:
        """Return a descriptor of a folder, which stays valid until the next call."""
        path = "/".join(parts)
        if self._parent[1] >= 0 and self._parent[0] == path:
            return self._parent[1]
        here, done = os.open("/", FOLDER), ""
        for part in parts:
            done = f"{done}/{part}" if done else part
            try:
                below = self._below(here, part, done)
            except NotADirectoryError:
                raise Refused(f"{path!r}: a file is on the way there") from None
            finally:
                os.close(here)
            here = below
        self._forget_parent()
        self._parent = (path, here)
        return here

    def _below(self, here: int, part: str, path: str) -> int:
        """Open a folder on the way to a member. Links are followed: they end in this process's root."""
        removed = _is_removed(here, part)
        if removed:
            os.unlink(part, dir_fd=here)
        else:
            with suppress(FileNotFoundError):
                return os.open(part, FOLDER, dir_fd=here)
        try:
            os.mkdir(part, 0o755, dir_fd=here)
        except FileExistsError:
            raise Refused(f"{path!r}: a link that leads nowhere is on the way") from None
        self._ids.give(0, 0, here, part)
        self.implicit[path] = None
        below = os.open(part, FOLDER | os.O_NOFOLLOW, dir_fd=here)
        if removed:
            self._hide(below)
        return below

    def _forget_parent(self) -> None:
        if self._parent[1] >= 0:
            os.close(self._parent[1])
        self._parent = ("", -1)

    def _hide(self, folder: int) -> None:
        os.setxattr(folder, self._attribute, b"y")

    def _mark_removed(self, parents: Sequence[str], name: str) -> None:
        here = self._folder(parents)
        try:
            found = os.lstat(name, dir_fd=here)
        except FileNotFoundError:
            os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=here)
            return
        if stat.S_ISDIR(found.st_mode):  # the layer has another in its place
            folder = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=here)
            self._hide(folder)
            os.close(folder)

    def _create(
        self, archive: tarfile.TarFile, member: tarfile.TarInfo, parents: Sequence[str], name: str
    ) -> None:
        here, path = self._folder(parents), "/".join((*parents, name))
        if member.isdir():
            self._create_folder(here, name)
            self.implicit.pop(path, None)
            self._folders[path] = (member.mode, member.mtime)
        elif member.islnk():
            self._link(here, name, path, member.linkname)
            return
        elif member.isreg():
            self._remove(here, name)
            self._write(archive, member, here, name)
        elif member.issym():
            self._remove(here, name)
            os.symlink(member.linkname, name, dir_fd=here)
        elif member.isfifo():
            self._remove(here, name)
            os.mkfifo(name, 0o600, dir_fd=here)
        else:
            return  # a device
        self._ids.give(member.uid, member.gid, here, name)
        if member.isreg() or member.isfifo():
            mode = member.mode & _MODE | self._ids.least(is_folder=False)
            os.chmod(name, mode, dir_fd=here)  # it is no link: this process made it
            times = (_time(member.mtime), _time(member.mtime))
            os.utime(name, times, dir_fd=here, follow_symlinks=False)

    def _create_folder(self, here: int, name: str) -> None:
        removed = _is_removed(here, name)
        try:
            is_folder = stat.S_ISDIR(os.lstat(name, dir_fd=here).st_mode)
        except FileNotFoundError:
            is_folder = False
        if is_folder:
            return
        self._remove(here, name)
        os.mkdir(name, 0o700, dir_fd=here)
        if removed:
            folder = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=here)
            self._hide(folder)
            os.close(folder)

    def _link(self, here: int, name: str, path: str, target: str) -> None:
        *parents, last = path_parts(target) or [""]
        if not last:
            raise Refused(f"{path!r}: a hard link without a file")
        source = "/".join((*parents, last))
        if source == path:
            return
        self._remove(here, name)
        own = os.dup(here)
        try:
            folder = os.open("/", FOLDER)
            for part in parents:
                below = os.open(part, FOLDER, dir_fd=folder)
                os.close(folder)
                folder = below
            if _is_removed(folder, last):
                raise FileNotFoundError
            os.link(last, name, src_dir_fd=folder, dst_dir_fd=own, follow_symlinks=False)
            os.close(folder)
        except (FileNotFoundError, NotADirectoryError):
            self.links.append((path, source))
        finally:
            os.close(own)

    def _write(
        self, archive: tarfile.TarFile, member: tarfile.TarInfo, here: int, name: str
    ) -> None:
        made = os.open(name, _NEW, 0o600, dir_fd=here)
        content = archive.extractfile(member)
        assert content is not None
        with open(made, "wb", buffering=0) as file:
            while data := content.read(_CHUNK):
                self.bytes += len(data)
                self._report()
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
        self.bytes += -member.size % _BLOCK_BYTES

    def _remove(self, here: int, name: str) -> None:
        """Remove the file or folder of an earlier member of the same layer."""
        try:
            os.unlink(name, dir_fd=here)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            _remove_tree(here, name)
            self._parent = ("\0", self._parent[1])  # what lies there may have been removed with it


def _one_name(name: str) -> str:
    if name in ("", ".", ".."):
        raise Refused(f"a layer removes a file without a name: {name!r}")
    return name


def _is_removed(here: int, name: str) -> bool:
    try:
        found = os.lstat(name, dir_fd=here)
    except OSError:
        return False
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _remove_tree(here: int, name: str) -> None:
    """Remove a folder with its contents, one descriptor at a time: a hostile layer is deep."""
    folder = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=here)
    way = [(name, os.listdir(folder))]
    while way:
        name, left = way[-1]
        if not left:
            above = os.open("..", FOLDER, dir_fd=folder)
            os.close(folder)
            folder = above
            os.rmdir(name, dir_fd=folder)
            way.pop()
            continue
        child = left.pop()
        try:
            os.unlink(child, dir_fd=folder)
        except (IsADirectoryError, PermissionError):
            below = os.open(child, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = below
            way.append((child, os.listdir(folder)))
    os.close(folder)


def _time(seconds: float) -> float:
    return min(max(seconds, 0), 2**33)


def _set_time(folder: int, seconds: float) -> None:
    os.utime(folder, (_time(seconds), _time(seconds)))


def unpack(order: dict[str, Any]) -> dict[str, Any]:
    """Unpack a layer's archive into a folder. Raises Refused, OSError."""
    stream, program = _opened_archive(order["archive"])
    confine(order["folder"])
    hashed = _Hashed(stream)
    unpacking = _Unpacking(Ids(order["ids"]), order["attribute"], order["most_bytes"])
    with tarfile.open(
        fileobj=hashed,
        mode="r|",
        tarinfo=_Member,
        bufsize=1 << 16,  # type: ignore[call-overload]
    ) as archive:
        while (member := archive.next()) is not None:
            vars(archive)["members"].clear()
            unpacking.add(archive, member)
    while hashed.read(_CHUNK):
        pass
    if program is not None and program.wait() != 0:
        raise Refused("a layer cannot be decompressed")
    unpacking.finish()
    return {
        "diff_id": f"sha256:{hashed.digest.hexdigest()}",
        "bytes": unpacking.bytes,
        "files": unpacking.files,
        "implicit": list(unpacking.implicit),
        "links": unpacking.links,
    }


def _opened_archive(path: str) -> tuple[IO[bytes], subprocess.Popen[bytes] | None]:
    file = open(path, "rb")
    magic = file.read(4)
    file.seek(0)
    if magic.startswith(_MAGIC_GZIP):
        return gzip.GzipFile(fileobj=file), None  # type: ignore[return-value]
    if magic != _MAGIC_ZSTD:
        return file, None
    os.lseek(file.fileno(), 0, os.SEEK_SET)  # `seek` moves within what was read ahead
    try:
        program = subprocess.Popen(["zstd", "-dc"], stdin=file, stdout=subprocess.PIPE)
    except FileNotFoundError:
        raise Refused("zstd is missing, which a layer needs: apt-get install zstd") from None
    assert program.stdout is not None
    return program.stdout, program
