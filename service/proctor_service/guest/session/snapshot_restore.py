"""Snapshot restore: unpack the files of a stateful sandbox, as saved when its grading began.

The snapshot is a tar archive that follows the job's line on the channel; only parts of the archive
are in memory. A hostile agent made the archive. This process unpacks as the sandbox's user, inside
the isolation, before any code of the submission runs. Writes never follow links and stay inside
work/, home/ and tmp/; devices, pipes and sockets are skipped. An archive that is invalid or too
large raises `work_files.Unfit`, which leads to a verdict, since only the agent can have caused the
error.
"""

import os
import stat
import sys
from typing import Any

from .. import work_files
from ..channel import Channel
from .file_operations import SAVED, write_all

_CHUNK = 1 << 18
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def restore(channel: Channel, size_bytes: int) -> None:
    """Unpack an archive of `size_bytes` beside the working directory. Raises `work_files.Unfit`."""
    loaded = set(sys.modules)
    import tarfile  # imported here: slow to import, and only this function needs tarfile

    incoming = _Incoming(channel, size_bytes)
    try:
        with tarfile.open(fileobj=incoming, mode="r|", bufsize=_CHUNK) as archive:  # type: ignore[call-overload]
            _unpack(archive, os.path.dirname(os.getcwd()))
    except Exception as error:  # forged archives raise more exceptions than tarfile documents
        raise work_files.Unfit(f"{type(error).__name__}: {error}") from None
    while incoming.read(_CHUNK):
        pass
    # The submission must find the modules of a fresh interpreter: it may have modules with these
    # names.
    for name in sys.modules.keys() - loaded:
        del sys.modules[name]


class _Incoming:
    """File object that reads the archive forward only."""

    def __init__(self, channel: Channel, size_bytes: int) -> None:
        self._channel = channel
        self._left = size_bytes

    def read(self, size: int) -> bytes:
        data = self._channel.read(min(size, self._left)) if self._left else b""
        self._left -= len(data)
        return data


def _unpack(archive: Any, box: str) -> None:
    places = {f"{box}/{name}" for name in SAVED}
    directories: dict[str, Any] = {}
    while (member := archive.next()) is not None:
        archive.members.clear()
        path = _way_to(member.name, box, places)
        if path is None:
            continue
        if member.isdir():
            _make_directory(path, places)
            directories[path] = member
        elif member.isreg():
            _write(path, archive.extractfile(member), member)
        elif member.issym():
            os.symlink(member.linkname, path)
            os.utime(path, (member.mtime, member.mtime), follow_symlinks=False)
        elif member.islnk():
            target = _way_to(member.linkname, box, places)
            if target is not None and os.path.lexists(target):
                os.link(target, path, follow_symlinks=False)
    for path, member in reversed(directories.items()):
        os.utime(path, (member.mtime, member.mtime))
        os.chmod(path, member.mode & 0o777)


def _way_to(name: str, box: str, places: set[str]) -> str | None:
    """Return the path of a member, after making its parent directories; None for an invalid name.

    `places` holds the directories known to be real.
    """
    top, *parts = name.split("/")
    if top not in SAVED or not parts or {"", ".", ".."}.intersection(parts):
        return None
    path = f"{box}/{top}"
    for part in parts[:-1]:
        path += "/" + part
        if path not in places:
            _make_directory(path, places)
    return f"{path}/{parts[-1]}"


def _make_directory(path: str, places: set[str]) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise
    places.add(path)


def _write(path: str, source: Any, member: Any) -> None:
    descriptor = os.open(path, _NEW, 0o600)
    try:
        while data := source.read(_CHUNK):
            write_all(descriptor, data)
        os.fchmod(descriptor, member.mode & 0o777)
        os.utime(descriptor, (member.mtime, member.mtime))
    finally:
        os.close(descriptor)
