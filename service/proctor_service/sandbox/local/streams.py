"""Bounded storage for an output stream of a sandbox."""

from __future__ import annotations


class Stream:
    """Stores the first bytes of an output stream, counts the rest, and continues to drain."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.kept: list[bytes] = []
        self.room = 0
        self.total = 0
        self.open = True

    @property
    def cut(self) -> bool:
        """True if more bytes arrived than are stored."""
        return self.total > sum(map(len, self.kept))

    def add(self, data: bytes) -> None:
        """Count `data`, and store as many bytes as still fit."""
        self.total += len(data)
        if self.room > 0:
            self.kept.append(data[: self.room])
            self.room -= len(data)

    def text(self) -> bytes:
        """Return the stored bytes."""
        return b"".join(self.kept)
