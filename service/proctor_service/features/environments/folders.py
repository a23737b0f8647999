"""Folders of the store: each is named by a key, and complete once named so.

Locks admit one builder for each key, and protect folders in use from removal. A build holds a lock
file. A user holds the folder itself, so its removal needs the folder alone: `filelock` locks files
only, exclusively.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from proctor_service.errors import StartError
from proctor_service.features.environments.packages import Progress

_KEY = re.compile(r"[0-9a-f]{32}")  # "0f" sixteen times
_FOLDER = re.compile(r"([0-9a-f]{32})(\.\w{1,16}\.part)?")  # a key; a key and ".k3x9.part"
_FOLDER_MODE, _PARENT_MODE, _LOCK_MODE = 0o755, 0o700, 0o600


class Folders:
    """Folders with contents, below one folder. Several processes may change them at the same time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def all(self) -> list[Path]:
        """Return the folders of finished and of unfinished builds. Raises StartError."""
        try:
            return sorted(each for each in self.folder.iterdir() if each.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StartError(f"{self.folder} cannot be read: {reason(error)}") from None

    def finished(self) -> list[Path]:
        """Return the folders of finished builds. Raises StartError."""
        return [each for each in self.all() if _KEY.fullmatch(each.name)]

    def unwanted(self, keep: Callable[[str], bool]) -> dict[str, list[Path]]:
        """Return, by key, the folders with names to remove. Raises StartError, OSError."""
        found: dict[str, list[Path]] = {}
        for file in (self.folder / "locks").glob("*"):
            if _KEY.fullmatch(file.name):
                found[file.name] = []
        for folder in self.all():
            match = _FOLDER.fullmatch(folder.name)
            if match is not None and not keep(folder.name):
                found.setdefault(match[1], []).append(folder)
        return found

    def lock(self, key: str) -> FileLock:
        """Return the lock of the builds of a key."""
        return FileLock(self.folder / "locks" / key, mode=_LOCK_MODE)

    @contextmanager
    def building(self, key: str, progress: Progress) -> Iterator[None]:
        """Hold the lock of this key's builds, and remove the remains of killed builds.

        Raises OSError.
        """
        self.folder.parent.mkdir(_PARENT_MODE, parents=True, exist_ok=True)
        if not self.folder.exists():
            self.folder.mkdir(exist_ok=True)
            self.folder.chmod(_FOLDER_MODE)
        (self.folder / "locks").mkdir(_PARENT_MODE, exist_ok=True)
        lock = self.lock(key)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            progress("another process is building it: waiting")
            lock.acquire()
        try:
            for each in self.all():
                match = _FOLDER.fullmatch(each.name)
                if match is not None and match[1] == key and match[2]:
                    shutil.rmtree(each, ignore_errors=True)
            yield
        finally:
            lock.release()

    @contextmanager
    def filling(self, key: str, name: str) -> Iterator[Path]:
        """Make a temporary folder for environment `name`; after the block, the folder gets the name of its
        key.

        `building` is held. Raises StartError if the folder before is in use, and OSError.
        """
        part = Path(tempfile.mkdtemp(prefix=f"{key}.", suffix=".part", dir=self.folder))
        try:
            yield part
            os.sync()  # the name must not survive a crash without the contents
            folder = self.folder / key
            if folder.exists():
                with unused(folder) as is_unused:
                    if not is_unused:
                        raise StartError(
                            f"environment {name} is in use by a service: stop it first"
                        )
                    self.remove(folder)
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def remove(self, folder: Path) -> None:
        """Remove a folder; after an interruption, its name marks the folder as incomplete."""
        if _KEY.fullmatch(folder.name):
            part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".part", dir=self.folder))
            folder = folder.rename(part)
        shutil.rmtree(folder)


def reason(error: OSError) -> str:
    """Return the file and the reason of an error."""
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)


@contextmanager
def shared(folder: Path) -> Iterator[bool]:
    """Hold a folder against its removal; the value is False during a removal.

    Raises OSError.
    """
    with _folder_lock(folder, fcntl.LOCK_SH) as descriptor:
        yield descriptor is not None and _is_at(folder, descriptor)


@contextmanager
def unused(folder: Path) -> Iterator[bool]:
    """Hold a folder for its removal; the value is False for a folder in use. Raises OSError."""
    with _folder_lock(folder, fcntl.LOCK_EX) as descriptor:
        yield descriptor is not None


@contextmanager
def _folder_lock(folder: Path, kind: int) -> Iterator[int | None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
