"""File operations of the service in a stateful sandbox: read a file, write a file, save all files.

Each operation runs in its own process as the sandbox's user, after the isolation is active, so a
path can reach only files that the sandbox's own programs can reach. A failure is an exit code and a
line on stderr.
"""

import io
import os
import stat
import sys
from collections.abc import Callable
from typing import NoReturn

_CHUNK = 1 << 18
REFUSED, MISSING = 2, 3
SAVED = ("work", "home", "tmp")


def read(path: str, most_bytes: int) -> None:
    """Write a regular file of at most `most_bytes` to stdout."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            _fail(REFUSED, f"{path}: is a directory")
        if not stat.S_ISREG(found.st_mode):
            _fail(REFUSED, f"{path}: is no regular file")
        if found.st_size > most_bytes:
            _fail(
                REFUSED, f"{path}: holds {found.st_size} bytes, and {most_bytes} are read at most"
            )
        while data := os.read(descriptor, _CHUNK):
            write_all(1, data)
    except (OSError, ValueError) as error:
        _fail_for(error, path)


def write(path: str) -> None:
    """Write stdin to a file, replace an existing file, and make missing directories."""
    try:
        target = os.path.realpath(path)
        if path.endswith("/") or os.path.isdir(target):
            _fail(REFUSED, f"{path}: is a directory")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        mode = stat.S_IMODE(os.stat(target).st_mode) if os.path.isfile(target) else 0o644
        draft = f"{os.path.dirname(target)}/.{os.getpid()}.{os.urandom(6).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(draft, flags, 0o600)
        try:
            while data := os.read(0, _CHUNK):
                write_all(descriptor, data)
            os.fchmod(descriptor, mode)
            os.rename(draft, target)
        except BaseException:
            os.unlink(draft)
            raise
    except (OSError, ValueError) as error:
        _fail_for(error, path)


def save(most_bytes: int) -> None:
    """Write a tar archive of all files of the sandbox to stdout.

    Paths are relative to the working directory's parent. Only files, links and directories are
    archived. Unreadable entries are skipped, and so are files beyond `most_bytes`, a total that
    only sparse files can reach.
    """
    import tarfile  # imported here: slow to import, and only save() needs tarfile

    # Otherwise tarfile would look up the owner's name in /etc/passwd for every file.
    vars(tarfile).update(pwd=None, grp=None)
    left = most_bytes
    os.chdir("..")
    with (
        open(1, "wb", closefd=False) as out,
        tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        todo = [name for name in SAVED if os.path.isdir(name)]
        while todo:
            path = todo.pop()
            try:
                member = archive.gettarinfo(path)
                if member is None:
                    continue  # for example a socket
                if member.isreg():
                    if member.size > left:
                        continue
                    with _Whole(path) as file:
                        archive.addfile(member, file)
                    left -= member.size
                elif member.isdir():
                    archive.addfile(member)
                    todo += [f"{path}/{name}" for name in os.listdir(path)]
                elif member.issym() or member.islnk():
                    archive.addfile(member)
            except (OSError, ValueError):  # ValueError: a name or a time that tar cannot store
                continue
            finally:
                vars(archive)["members"].clear()  # tarfile would keep all members in memory


class _Whole(io.FileIO):
    """File padded with zeros to its announced size; a shrunk file would corrupt the archive."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size).ljust(size or 0, b"\0")


KINDS: dict[str, Callable[..., None]] = {"read": read, "write": write, "save": save}


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes to a descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _fail_for(error: Exception, path: str) -> NoReturn:
    missing = isinstance(error, FileNotFoundError | NotADirectoryError)
    _fail(MISSING if missing else REFUSED, f"{path}: {getattr(error, 'strerror', None) or error}")


def _fail(code: int, message: str) -> NoReturn:
    sys.stderr.flush()
    os.write(2, message.encode("utf-8", "surrogateescape")[:2000])
    os._exit(code)
