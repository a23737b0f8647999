"""The size of the store of images: the images by name with the oldest use make room for others.

An image is removed together with its derived layers, and with its layers not shared with other images. Images
of the environments file stay, and so do images and layers used by a sandbox, a waiting submission or a fetch.
All functions block.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from proctor_service.errors import StartError
from proctor_service.features.environments.folders import Folders, unused
from proctor_service.features.environments.images import DERIVED, NOTES, USED, used_layers
from proctor_service.features.environments.layers import Layers, Room

_STEP_BYTES = 1 << 30
_SPARE_BYTES, _SPARE_FILES = 256 << 20, 0.05
"""Of a disk, for all other files there: bytes, and a share of the files that it can have."""


class TooLarge(StartError):
    """An image is larger than the store may be."""


class NoRoom(StartError):
    """All images of the store are in use, or the disk is full."""


class ImageBound:
    """Keeps the layers of a store within `most_bytes`."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._folders = Folders(folder)
        self._layers = Layers(folder)

    def images(self) -> list[tuple[str, int]]:
        """Return name and bytes of each image by name, the last used first."""
        found: list[tuple[float, str, int]] = []
        for folder in self._folders.finished():
            with suppress(OSError, ValueError, KeyError):
                used_at = (folder / USED).stat().st_mtime
                name = json.loads((folder / "image.json").read_text())["reference"]
                layers = (self._layers.read(each) for each in used_layers(folder))
                size_bytes = sum(layer.bytes for layer in layers if layer is not None)
                found.append((-used_at, name, size_bytes))
        return [(name, size_bytes) for _, name, size_bytes in sorted(found)]

    def room(self) -> Room:
        """Return a check of the number of bytes to be written; the check makes room as needed."""
        free_bytes = 0

        def check(size_bytes: int) -> None:
            nonlocal free_bytes
            if size_bytes > free_bytes:  # in steps, since each look at the store takes time
                self.make_room(size_bytes)
                left_bytes = self._most_bytes - self._layers.size_bytes()
                free_bytes = min(max(size_bytes, left_bytes), size_bytes + _STEP_BYTES)

        return check

    def size_bytes(self) -> int:
        """Return the size of all layers."""
        return self._layers.size_bytes()

    def make_room(self, size_bytes: int) -> None:
        """Remove images and derived layers, the oldest use first, until the further bytes have room.

        Raises TooLarge, NoRoom, OSError.
        """
        if size_bytes > self._most_bytes:
            raise TooLarge(f"it is larger than PROCTOR_IMAGES_GB, {self._most_bytes / 1e9:g} GB")
        with self._layers.changing():
            oldest, in_use = self._candidates(), False
            while (short := self._short_of(size_bytes)) is not None:
                for file in oldest:
                    if self._remove(file):
                        break
                    in_use = True
                else:
                    if in_use or "disk" in short or self._count_of_fetches() > 1:
                        raise NoRoom(f"{short}, and all images there are in use")
                    raise TooLarge(f"{short}, even without all other images by name")
                used = {name for each in self._folders.all() for name in used_layers(each)}
                self._layers.remove_unused(used)

    def _count_of_fetches(self) -> int:
        return sum(bool(used_layers(each)) for each in self._folder.glob("*.part"))

    def _short_of(self, size_bytes: int) -> str | None:
        if self._layers.size_bytes() + size_bytes > self._most_bytes:
            return f"the store of images is full (PROCTOR_IMAGES_GB, {self._most_bytes / 1e9:g} GB)"
        place = self._folder if self._folder.exists() else self._folder.parent
        if not place.exists():
            return None
        disk = os.statvfs(place)
        is_full = disk.f_bavail * disk.f_frsize < size_bytes + _SPARE_BYTES
        has_few_files = disk.f_files > 0 and disk.f_favail < disk.f_files * _SPARE_FILES
        return f"the disk of {self._folder} is full" if is_full or has_few_files else None

    def _candidates(self) -> Iterator[Path]:
        """Yield images by name and derived layers, the oldest first."""
        found: list[tuple[float, Path]] = []
        for folder in self._folders.finished():
            for file in (folder / USED, *(folder / DERIVED).glob("*")):
                with suppress(OSError):
                    found.append((file.stat().st_mtime, file))
        yield from (file for _, file in sorted(found))

    def _remove(self, file: Path) -> bool:
        """Remove an image or the mark of a derived layer; return False if in use."""
        try:
            if file.name == USED:
                with unused(file.parent) as is_unused:
                    if is_unused:
                        self._folders.remove(file.parent)
                    return is_unused
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (file.parents[1] / NOTES / file.name).unlink(missing_ok=True)
                file.unlink()
            finally:
                os.close(descriptor)
        except FileNotFoundError:  # gone with its image
            return True
        except BlockingIOError:
            return False
        return True
