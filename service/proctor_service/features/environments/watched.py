"""Folders of an environment in use: notices that something in them was removed.

A sandbox of an environment whose files go away under a running service fails programs that are right.
So what such a sandbox did is no verdict.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor_service.errors import StartError
from proctor_service.features.environments.built import BuiltEnvironment, Environments

_Seen = tuple[int, int, frozenset[str]]


@dataclass(frozen=True, slots=True)
class WatchedFolders:
    """What folders had in them at one moment: inode, time of the last change, and names of each."""

    folders: Sequence[Path]
    seen: Mapping[Path, _Seen]

    @classmethod
    def of(cls, folders: Sequence[Path]) -> WatchedFolders:
        """Look into the folders, and into the folders directly in them; blocks. Raises OSError."""
        seen = {}
        for folder in folders:
            seen[folder] = _contents_of(folder)
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        seen[Path(entry.path)] = _contents_of(Path(entry.path))
        return cls(folders, seen)

    def are_whole(self) -> bool:
        """Return False if one of the folders, or something in one, is gone or replaced; blocks."""
        for path, (inode, changed_at, names) in self.seen.items():
            try:
                now = path.stat()
                if now.st_ino != inode:
                    return False
                if now.st_mtime_ns != changed_at and not names <= _names(path):
                    return False
            except OSError:
                return False
        return True

    def renewed(self) -> WatchedFolders:
        """Return these folders as they are now; blocks. Raises StartError for damaged ones.

        Folders that were built again meanwhile have other inodes, and are as good as the first.
        """
        if self.are_whole():
            return self
        try:
            if self.folders[0].stat().st_ino != self.seen[self.folders[0]][0]:
                return self.of(self.folders)
        except OSError:
            pass
        raise StartError(f"files in {self.folders[0]} are gone: build it again")


def watched(environments: Environments) -> dict[str, WatchedFolders]:
    """Return the folders of each environment that has some; blocks. Raises StartError."""
    found = {}
    for name, built in environments.items():
        if folders := _folders_of(built):
            try:
                found[name] = WatchedFolders.of(folders)
            except OSError as error:
                raise StartError(f"environment {name}: its files cannot be read: {error}") from None
    return found


def _folders_of(built: BuiltEnvironment) -> tuple[Path, ...]:
    if built.image is not None:
        inside = built.image.rootfs / "usr"
        is_folder = inside.is_dir() and not inside.is_symlink()
        return (built.image.rootfs, *([inside] if is_folder else []))
    if built.folder is not None:
        return (built.folder, *sorted(built.folder.glob("venv/lib/python*/site-packages")))
    return ()


def _contents_of(folder: Path) -> _Seen:
    about = folder.stat()
    return about.st_ino, about.st_mtime_ns, _names(folder)


def _names(folder: Path) -> frozenset[str]:
    with os.scandir(folder) as entries:
        return frozenset(entry.name for entry in entries)
