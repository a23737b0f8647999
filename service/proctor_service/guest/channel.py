"""Channel between a sandbox and the service: a JSON value per line, in both directions.

Functions of `os` are bound when this module loads, so a submission that replaces `os.write` cannot
change the channel.
"""

from __future__ import annotations

import os
import time

_read, _write, _getpid = os.read, os.write, os.getpid
_process_time, _monotonic = time.process_time, time.monotonic
_CHUNK = 1 << 12
_MOST_AT_ONCE = 1 << 20
BEGAN = b"!began "
"""Start of the line of `Channel.began`.

A failure before this line is a failure of the service or of the task (`judge/run.py`).
"""

TIMED = b"!timed "
"""The same where the tests' setup comes next, which may import files of the submission.

The limits of time count from here, since these files could send any line. The line with BEGAN follows.
"""

LOADED = b"!loaded\n"
"""Line sent after the submission's top level, if that took long: the limits of the first call begin.

The leading `!` marks a line without a reply.
"""


class Channel:
    """Blocking channel for reading and writing a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._received = bytearray()
        # Bytes before `_start` are consumed. No newline lies before `_searched`.
        self._start = 0
        self._searched = 0
        self._owner = _getpid()
        self._cpu_seconds = 0.0  # of the process that this one is a fork of

    def send(self, line: bytes) -> None:
        """Send a line with its trailing newline.

        In a process forked by the submission, exit: only the original process may use the channel.
        """
        if _getpid() != self._owner:
            os._exit(0)
        view = memoryview(line)
        while view:
            view = view[_write(self._descriptor, view) :]

    def began(self, word: bytes = BEGAN) -> None:
        """Send `!began C M` right before the first statement of the submission, or its parsing.

        C: CPU time of the sandbox until now, which is ours, M: the monotonic clock, both in
        microseconds. The limits of time count from here (`time_limits.began`).
        """
        cpu_seconds = self._cpu_seconds + _process_time()
        self.send(b"%s%d %d\n" % (word, cpu_seconds * 1e6, _monotonic() * 1e6))

    def adopt(self, cpu_seconds: float) -> None:
        """Make this process, a fork of ours, the owner of the channel.

        `cpu_seconds`: CPU time of its parent.
        """
        self._owner, self._cpu_seconds = _getpid(), cpu_seconds

    def detach(self) -> int:
        """Return the descriptor, for direct use: to read, the read buffer must be empty."""
        return self._descriptor

    def receive(self) -> bytes | None:
        """Return the next line without its newline, or None when the service closed the channel.

        The time is linear in the number of bytes: each byte is searched once and moved a few times.
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

    @property
    def has_line(self) -> bool:
        """True if `receive` returns a line without a read."""
        return self._received.find(b"\n", self._searched) >= 0

    def read(self, most_bytes: int) -> bytes:
        """Return at most `most_bytes` bytes after a line; empty at the end of the channel."""
        if self._start == len(self._received):
            return _read(self._descriptor, most_bytes)
        data = bytes(self._received[self._start : self._start + most_bytes])
        self._start += len(data)
        self._searched = max(self._searched, self._start)
        if self._start == len(self._received):
            self._forget()
        return data

    def _forget(self) -> None:
        """Remove the consumed bytes from the buffer."""
        del self._received[: self._start]
        self._searched -= self._start
        self._start = 0
