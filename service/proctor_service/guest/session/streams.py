"""Whole files and whole writes, for archives and file operations."""

from __future__ import annotations

import io
import os


class WholeFile(io.FileIO):
    """File padded with zeros to its announced size; a shrunk file would corrupt the archive."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size).ljust(size or 0, b"\0")


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the data. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
