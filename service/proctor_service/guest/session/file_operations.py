"""What the service itself does in a stateful sandbox: read a file, write one, save all of them.

Each runs in a process of its own, as the sandbox's user, after the walls came up: a path can lead
nowhere that the sandbox's own programs cannot go. Failures are an exit code and a line on stderr.
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
    """Writes a regular file to stdout."""
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
            _write_all(1, data)
    except (OSError, ValueError) as error:
        _fail_for(error, path)


def write(path: str) -> None:
    """Makes a file of stdin, in the place of what is there; directories are made."""
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
                _write_all(descriptor, data)
            os.fchmod(descriptor, mode)
            os.rename(draft, target)
        except BaseException:
            os.unlink(draft)
            raise
    except (OSError, ValueError) as error:
        _fail_for(error, path)


def save(most_bytes: int) -> None:
    """Writes a tar archive of all the sandbox's files to stdout, paths relative to the box.

    What cannot be read or is no file, link or directory is left out; and so is what lies beyond
    `most_bytes`, which only files with holes can reach.
    """
    import tarfile  # dear, and only this needs it

    # It would look the owner's name up in /etc/passwd for every file.
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
                    continue  # a socket
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
            except (OSError, ValueError):  # ValueError: a name or a time that no archive can hold
                continue
            finally:
                vars(archive)["members"].clear()  # it would keep them all


class _Whole(io.FileIO):
    """A file that is never shorter than it was: else all that follows in the archive would be lost."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size).ljust(size or 0, b"\0")


KINDS: dict[str, Callable[..., None]] = {"read": read, "write": write, "save": save}


def _write_all(descriptor: int, data: bytes) -> None:
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
