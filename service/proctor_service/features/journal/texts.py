"""Compressed texts, and which of them are known to be stored."""

from __future__ import annotations

import zlib
from collections import OrderedDict

LEAST_COMPRESSED = 120
MOST_KNOWN = 50_000


def packed(value: bytes) -> bytes:
    """Return the bytes, compressed if that may be worth it; the first byte says which."""
    if len(value) < LEAST_COMPRESSED:
        return b"0" + value
    return b"1" + zlib.compress(value, 1)


def unpacked(value: bytes) -> bytes:
    """Return the bytes of `packed`."""
    return value[1:] if value[:1] == b"0" else zlib.decompress(value[1:])


class Texts:
    """Digests of the texts that were written lately, with the time of use that is stored."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, float] = OrderedDict()

    def has(self, digest: bytes, used_at: float) -> bool:
        """Return True if the text is stored with this time of use; note it if not."""
        if self._known.get(digest) == used_at:
            self._known.move_to_end(digest)
            return True
        self._known[digest] = used_at
        self._known.move_to_end(digest)
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return False

    def forget(self) -> None:
        """Forget all: what is stored is no longer known."""
        self._known.clear()
