"""File writing: put a submission's files below the working directory of a sandbox."""

from __future__ import annotations

import errno
import os
import stat

SHORTAGES = (errno.EMFILE, errno.ENFILE)
"""Errors of a machine without a free descriptor."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Unfit(Exception):
    """Exception for files that cannot be written; the message gives the reason."""


def is_of_the_machine(error: BaseException) -> bool:
    """Return True for an error that no file of a submission can cause."""
    return isinstance(error, OSError) and error.errno in (*SHORTAGES, errno.EIO)


def write_files(files: dict[str, str]) -> None:
    """Write text files below the working directory and replace existing files."""
    for path, text in files.items():
        write_file(path, to_bytes(text))


def write_file(path: str, data: bytes, mode: int = 0o644) -> None:
    """Write a file. Raises Unfit, and OSError where a submission's files cannot be the cause."""
    try:
        descriptor = _opened(path, mode)
        try:
            while data:
                data = data[os.write(descriptor, data) :]
        finally:
            os.close(descriptor)
    except OSError as error:
        if is_of_the_machine(error):
            raise
        raise Unfit(f"{path}: {error.strerror}") from None


def _opened(path: str, mode: int) -> int:
    if "/" not in path:
        try:
            return os.open(path, _NEW, mode)
        except FileExistsError:  # seldom: `make_way` alone costs a sandbox several pages
            pass
    make_way(path)
    return os.open(path, _NEW, mode)


def make_way(path: str) -> None:
    """Remove the file at `path` and make real directories above.

    A submission may have made links, to redirect a write, or a directory at `path`.
    """
    above = path.split("/")[:-1]
    for count in range(1, len(above) + 1):
        directory = "/".join(above[:count])
        try:
            mode = os.lstat(directory).st_mode
        except FileNotFoundError:
            os.mkdir(directory)
            continue
        if not stat.S_ISDIR(mode):
            os.unlink(directory)
            os.mkdir(directory)
        elif mode & 0o700 != 0o700:
            os.chmod(directory, 0o700)
    remove(path)


def remove(path: str) -> None:
    """Remove a file if present; rename a directory."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        os.rename(path, f"{path}.{os.urandom(8).hex()}")


def to_bytes(text: str) -> bytes:
    """Encode as UTF-8; lone surrogates pass unchanged, as received."""
    return text.encode("utf-8", "surrogatepass")
