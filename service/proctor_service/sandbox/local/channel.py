"""Service side of the connection to a sandbox's program: whole lines, without blocking.

Lines from the program are hostile: this module only bounds them, and other modules parse them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence

from proctor_service.sandbox.linux.turn_clock import TurnClock
from proctor_service.sandbox.local.fork_server import LOCKED

_CHUNK = 1 << 16
_UNREAD_BYTES = 64 << 20  # the encoding limits values to less
_UNREAD_LINES = 100_000
_UNSENT_BYTES = 1 << 20  # above this, a sender waits in `drain`


class Channel:
    """Line channel; calls `on_flood` when the sandbox sends more than the service will read."""

    def __init__(self, descriptor: int, on_flood: Callable[[], None]) -> None:
        self.open = True
        self.locked = False
        self.turns: TurnClock | None = None
        self._on_flood = on_flood
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._received = bytearray()
        self._unread_bytes = 0
        self._lines: deque[bytes] = deque()
        self._hung_up = False
        self._wanted: asyncio.Future[None] | None = None
        self._unsent: deque[tuple[memoryview, list[int]]] = deque()
        self._unsent_bytes = 0
        self._drained: asyncio.Future[None] | None = None

    def listen(self) -> None:
        """Start reading."""
        self._loop.add_reader(self._socket.fileno(), self.read)

    def send(self, line: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send a line; data beyond the socket's buffer is queued.

        The channel takes ownership of `descriptors` and closes them after sending.
        """
        given = list(descriptors)
        if self.turns is not None:
            self.turns.given()
        if not self.open:
            _close_all(given)
            return
        view = memoryview(line)
        if not self._unsent:
            view = view[self._write(view, given) :]
        if view:
            if not self._unsent:
                self._loop.add_writer(self._socket.fileno(), self._on_writable)
            self._unsent.append((view, given))
            self._unsent_bytes += len(view)

    async def drain(self) -> None:
        """Yield to the event loop, and wait while the queue is long."""
        await asyncio.sleep(0)
        while self._unsent_bytes > _UNSENT_BYTES and self.open:
            self._drained = self._loop.create_future()
            await self._drained

    def hang_up(self) -> None:
        """Close the sending side; queued lines still arrive."""
        self._hung_up = True
        if self.turns is not None:
            self.turns.left_alone()
        if self.open and not self._unsent:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    async def receive(self) -> bytes | None:
        """Return the next line, or None after the last."""
        while not self._lines:
            if not self.open:
                return None
            self._wanted = self._loop.create_future()
            try:
                await self._wanted
            finally:
                self._wanted = None
        line = self._lines.popleft()
        self._unread_bytes -= len(line)
        return line

    def read(self) -> bool:
        """Read a chunk; True if more may be readable at once."""
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self._take(data)
        else:
            self._stop()
        if self._wanted is not None and (self._lines or not self.open):
            _wake(self._wanted)
        return bool(data)

    def unfinished(self) -> str:
        """Return text sent without a newline: a sandbox reports failed isolation in this form."""
        return bytes(self._received[:300]).decode("utf-8", "replace")

    def close(self) -> None:
        """Close the socket; idempotent."""
        if self._socket.fileno() >= 0:
            self._stop()
            self._socket.close()

    def _take(self, data: bytes) -> None:
        if not self.locked:
            self.locked = data.startswith(LOCKED)
            data = data[len(LOCKED) :] if self.locked else data
        if self.turns is not None:
            self.turns.heard(data, behind=bool(self._unsent))
        self._unread_bytes += len(data)
        # Each byte is searched once and copied twice, for any length of line.
        end, *others = data.split(b"\n")
        self._received += end
        if others:
            self._unread_bytes -= len(others)
            self._lines.append(bytes(self._received))
            self._received = bytearray(others.pop())
            self._lines.extend(others)
        if self._unread_bytes > _UNREAD_BYTES or len(self._lines) > _UNREAD_LINES:
            self._on_flood()
            self._stop()

    def _on_writable(self) -> None:
        while self._unsent:
            view, given = self._unsent[0]
            count = self._write(view, given)
            self._unsent_bytes -= count
            if self._drained is not None and self._unsent_bytes <= _UNSENT_BYTES:
                _wake(self._drained)
            if count < len(view):
                self._unsent[0] = view[count:], given
                return
            self._unsent.popleft()
        self._loop.remove_writer(self._socket.fileno())
        if self._hung_up:
            self.hang_up()

    def _write(self, view: memoryview, given: list[int]) -> int:
        """Return the number of bytes sent; `given` goes with the first byte and is then emptied."""
        try:
            sent = (
                socket.send_fds(self._socket, [view], given) if given else self._socket.send(view)
            )
        except BlockingIOError:
            return 0
        except OSError:
            sent = len(view)  # the program closed its end; the ending will show the reason
        _close_all(given)
        return sent

    def _stop(self) -> None:
        if self.open:
            self.open = False
            self._loop.remove_reader(self._socket.fileno())
            if self._unsent:
                for _, given in self._unsent:
                    _close_all(given)
                self._unsent.clear()
                self._loop.remove_writer(self._socket.fileno())
            for waiter in (self._wanted, self._drained):
                if waiter is not None:
                    _wake(waiter)


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
