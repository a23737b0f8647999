"""Puts the files of a stateful sandbox in place, as they were when it was graded.

They come as a tar archive that follows the job's line on the channel, so that the whole of it is never
in memory. A hostile agent made it, and it is unpacked as the sandbox's user, behind the walls, before
anything of the submission runs. Nothing is written through a link, or outside of work/, home/ and
tmp/; devices, pipes and sockets are left out. What does not fit, or is no archive, raises
`work_files.Unfit`, which is a verdict: nobody but the agent can have caused it.
"""

import os
import stat
import sys
from typing import Any

from .. import work_files
from ..channel import Channel

_PLACES = ("work", "home", "tmp")
_CHUNK = 1 << 18
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def restore(channel: Channel, size_bytes: int) -> None:
    """Unpacks the archive of that size beside the working directory. Raises `work_files.Unfit`."""
    loaded = set(sys.modules)
    import tarfile  # dear, and only this needs it

    incoming = _Incoming(channel, size_bytes)
    try:
        with tarfile.open(fileobj=incoming, mode="r|", bufsize=_CHUNK) as archive:  # type: ignore[call-overload]
            _unpack(archive, os.path.dirname(os.getcwd()))
    except Exception as error:  # a forged archive breaks the parser in more ways than it documents
        raise work_files.Unfit(f"{type(error).__name__}: {error}") from None
    while incoming.read(_CHUNK):
        pass
    # The submission finds what a fresh interpreter has: it may have modules of these names itself.
    for name in sys.modules.keys() - loaded:
        del sys.modules[name]


class _Incoming:
    """The archive as a file that can only be read forward."""

    def __init__(self, channel: Channel, size_bytes: int) -> None:
        self._channel = channel
        self._left = size_bytes

    def read(self, size: int) -> bytes:
        data = self._channel.read(min(size, self._left)) if self._left else b""
        self._left -= len(data)
        return data


def _unpack(archive: Any, box: str) -> None:
    places = {f"{box}/{name}" for name in _PLACES}
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
        os.chmod(path, _mode(member))


def _way_to(name: str, box: str, places: set[str]) -> str | None:
    """Where a member belongs, with real directories above it; None when it belongs nowhere.

    `places` holds the directories that are known to be real.
    """
    top, *parts = name.split("/")
    if top not in _PLACES or not parts or {"", ".", ".."}.intersection(parts):
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
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        os.fchmod(descriptor, _mode(member))
        os.utime(descriptor, (member.mtime, member.mtime))
    finally:
        os.close(descriptor)


def _mode(member: Any) -> int:
    mode: int = member.mode
    return mode & 0o777
