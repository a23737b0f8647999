"""Puts a submission's files in place below the working directory of a sandbox."""

from __future__ import annotations

import os
import stat

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Unfit(Exception):
    """The submission's files cannot be put in place; the message says why."""


def write_files(files: dict[str, str]) -> None:
    """Writes text files below the working directory, in place of whatever is there."""
    for path, text in files.items():
        write_file(path, to_bytes(text))


def write_file(path: str, data: bytes, mode: int = 0o644) -> None:
    """Writes one file. Raises Unfit."""
    try:
        make_way(path)
        with open(os.open(path, _NEW, mode), "wb") as file:
            file.write(data)
    except OSError as error:
        raise Unfit(f"{path}: {error.strerror}") from None


def make_way(path: str) -> None:
    """Leaves nothing where a file is to be, and real directories above it.

    A submission may have put links there, so that a write lands elsewhere, or a directory.
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
    """Takes a file away, if there is one; a directory gets another name."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        os.rename(path, f"{path}.{os.urandom(8).hex()}")


def to_bytes(text: str) -> bytes:
    """UTF-8; lone surrogates as they are, since they came so."""
    return text.encode("utf-8", "surrogatepass")
