"""A layer of the store derived from an image by a service, with the notes of the layer's maker.

    FOLDER/KEY/derived/NAME  the mark of the layer, see `images.py`
    FOLDER/KEY/notes/NAME    its notes

The notes are complete before the layer, and both before the layer is used. One process makes a layer; other
processes on this machine wait for the layer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from proctor_service.errors import StartError
from proctor_service.features.environments.bound import ImageBound
from proctor_service.features.environments.images import DERIVED, NOTES
from proctor_service.features.environments.layers import Layer, Layers
from proctor_service.features.environments.manifest import digest_of
from proctor_service.sandbox.environments import Image, MakeLayer

_LOOK_SECONDS = 0.2
_LOCK_CHARACTERS = 2
_LOCK_MODE = 0o600


class DerivedLayer:
    """The layer of a key over an image. `image_folder`: of the image in the store, `folder`."""

    def __init__(
        self, folder: Path, image_folder: Path, image: Image, key: str, bound: ImageBound | None
    ) -> None:
        self._image, self._bound = image, bound
        self._layers = Layers(folder)
        self._source = f"derived {digest_of([[each.name for each in image.layers], key])}"
        self.name = self._layers.name_of(self._source, image.ids)
        self._mark = image_folder / DERIVED / self.name
        self._notes = image_folder / NOTES / self.name
        # Few files for all layers that there will ever be.
        self._lock = folder / "locks" / f"derived-{self.name[:_LOCK_CHARACTERS]}"

    async def once(self, make: MakeLayer) -> bytes:
        """Return the notes of the layer; make a missing layer first.

        Raises StartError, OSError, and the errors of `make`.
        """
        notes = await asyncio.to_thread(self._used)
        if notes is not None:
            return notes
        async with self._alone():
            notes = await asyncio.to_thread(self._used)
            if notes is None:
                with self._layers.archive() as archive:
                    notes = await make(archive)
                    await asyncio.to_thread(self._add, archive, notes)
        return notes

    def _used(self) -> bytes | None:
        """Note the use of the layer, and return its notes; None without the layer."""
        if self._layers.read(self.name) is None:
            return None
        try:
            notes = self._notes.read_bytes()
            os.utime(self._mark)
        except OSError:
            return None
        return notes

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Wait until all other processes have finished making the layer."""
        self._lock.parent.mkdir(0o700, parents=True, exist_ok=True)
        lock = FileLock(self._lock, mode=_LOCK_MODE, thread_local=False)
        while True:
            try:
                lock.acquire(blocking=False)
                break
            except Timeout:
                await asyncio.sleep(_LOOK_SECONDS)
        try:
            yield
        finally:
            lock.release()

    def _add(self, archive: Path, notes: bytes) -> None:
        """Unpack the layer, and mark the layer as derived from the image. Raises StartError, OSError."""
        below: list[Layer] = []
        for place in self._image.layers:
            layer = self._layers.read(place.name)
            if layer is None:
                raise StartError("the image is damaged")
            below.append(layer)
        if self._bound is not None:
            self._bound.room()(archive.stat().st_size + len(notes))
        for folder in (self._mark.parent, self._notes.parent):
            folder.mkdir(0o700, exist_ok=True)
        part = self._notes.with_name(f".{self.name}")
        part.write_bytes(notes)
        part.replace(self._notes)
        with self._layers.changing():
            self._mark.touch()  # first, since a layer that no image has is removed
            self._layers.discard(
                self.name
            )  # made with other notes, and unused: its mark was removed
        self._layers.unpack(self._source, archive, self._image.ids, below=below)
