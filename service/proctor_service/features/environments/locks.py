"""Locks of the store: one builder for each environment, and no removal of one that is in use."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proctor_service.features.environments.packages import Progress

_FILE_MODE = 0o600


@contextmanager
def exclusive(file: Path, progress: Progress) -> Iterator[None]:
    """Hold a lock file; wait for another process that holds it. Raises OSError."""
    descriptor = _locked(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if descriptor is None:
        progress("another process is building it: waiting")
        descriptor = _locked(file, fcntl.LOCK_EX)
    assert descriptor is not None
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def exclusive_if_free(file: Path) -> Iterator[bool]:
    """Hold a lock file if no other process does; the value says so. Raises OSError."""
    descriptor = _locked(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def shared(folder: Path) -> Iterator[bool]:
    """Hold a folder against its removal; the value is False for one that is being removed.

    Raises OSError.
    """
    with _folder_lock(folder, fcntl.LOCK_SH) as locked:
        yield locked is not None and _is_same(folder, locked)


@contextmanager
def unused(folder: Path) -> Iterator[bool]:
    """Hold a folder for its removal; the value is False for one that is in use. Raises OSError."""
    with _folder_lock(folder, fcntl.LOCK_EX) as locked:
        yield locked is not None


@contextmanager
def _folder_lock(folder: Path, kind: int) -> Iterator[int | None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)


def _locked(file: Path, kind: int) -> int | None:
    """Return a descriptor that holds the lock; None if `kind` does not wait and another holds it."""
    while True:
        descriptor = os.open(
            file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _FILE_MODE
        )
        try:
            fcntl.flock(descriptor, kind)
            if _is_same(file, descriptor):  # whoever held it before may have removed the file
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_same(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
