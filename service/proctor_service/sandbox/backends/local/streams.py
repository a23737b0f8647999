"""One of a sandbox's output streams, as far as it is kept."""

from __future__ import annotations


class Stream:
    """Keeps the first bytes of an output stream, counts the rest, and keeps draining."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.kept: list[bytes] = []
        self.room = 0
        self.total = 0
        self.open = True

    @property
    def cut(self) -> bool:
        """Whether more came than is kept."""
        return self.total > sum(map(len, self.kept))

    def add(self, data: bytes) -> None:
        """Takes what was read."""
        self.total += len(data)
        if self.room > 0:
            self.kept.append(data[: self.room])
            self.room -= len(data)

    def text(self) -> bytes:
        """What is kept."""
        return b"".join(self.kept)
