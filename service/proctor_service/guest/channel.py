"""The line between a sandbox and the judge: whole lines of JSON in both directions.

Names are bound when this is loaded, so a submission that replaces `os.write` only fools itself.
"""

from __future__ import annotations

import os

_read, _write, _getpid = os.read, os.write, os.getpid
_CHUNK = 1 << 16
_MOST_AT_ONCE = 1 << 20
BEGAN = b"!began\n"
"""Said right before the first statement of the submission runs, or before anything looks at its text.

Until then, whatever fails is a failure of ours (`judge/run.py`).
"""


class Channel:
    """Blocking; both directions over one descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._received = bytearray()
        # Bytes before this place are handed out; none before the other is a newline.
        self._start = 0
        self._searched = 0
        self._owner = _getpid()

    def send(self, line: bytes) -> None:
        """Sends a line that ends in a newline.

        A child that the submission forked stays silent: it would speak in its parent's place.
        """
        if _getpid() != self._owner:
            os._exit(0)
        view = memoryview(line)
        while view:
            view = view[_write(self._descriptor, view) :]

    def detach(self) -> int:
        """The descriptor, for a program that speaks in its own way; nothing may be unread."""
        return self._descriptor

    def receive(self) -> bytes | None:
        """The next line without its newline, or None when the judge hung up.

        Takes time linear in what arrives: each byte is searched once and moved a few times.
        """
        chunk = _CHUNK
        while True:
            received = self._received
            end = received.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(memoryview(received)[self._start : end])
                self._start = self._searched = end + 1
                if self._start == len(received):
                    self._forget()
                return line
            self._searched = len(received)
            if self._start:
                self._forget()
            data = _read(self._descriptor, chunk)
            if not data:
                return None
            self._received += data
            chunk = min(2 * chunk, _MOST_AT_ONCE)

    def read(self, most_bytes: int) -> bytes:
        """Bytes that follow a line which announced them; none when the judge hung up."""
        if self._start == len(self._received):
            return _read(self._descriptor, most_bytes)
        data = bytes(self._received[self._start : self._start + most_bytes])
        self._start += len(data)
        self._searched = max(self._searched, self._start)
        if self._start == len(self._received):
            self._forget()
        return data

    def _forget(self) -> None:
        """Drops what was handed out."""
        del self._received[: self._start]
        self._searched -= self._start
        self._start = 0
