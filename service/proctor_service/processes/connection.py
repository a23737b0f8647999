"""Connection between the listening process and a child process: groups of messages on a socket.

A message is a tuple of plain values: text, numbers, bytes, None, and tuples, lists and dicts of
these. All messages of an iteration of the event loop travel together as one frame: eight bytes with
the length, then the list of messages in the format of `marshal`. Both ends run the same
interpreter, `marshal` takes a third of a microsecond for a message, keeps lone surrogates, and
gives plain values only: to read a frame is safe.
"""

from __future__ import annotations

import asyncio
import logging
import marshal
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any, cast

log = logging.getLogger(__name__)

Message = tuple[Any, ...]
Receive = Callable[[Message], None]

REQUEST, CANCEL, REPLY, FAILED, HEARD, NOTE = range(6)
"""Kinds, the first value of each message, with the values that follow.

- REQUEST: number of the request, method, arguments
- CANCEL: number of the request
- REPLY: number of the request, result
- FAILED: number of the request, name of the error, message
- HEARD: number of the request, stream, bytes that a command wrote
- NOTE: name, arguments; has no answer
"""
LATER_SECONDS = 0.05
MOST_TOGETHER = 32
_LENGTH = struct.Struct("<Q")
_FORMAT = 4


def frame_of(messages: list[Message]) -> tuple[bytes, bytes]:
    """Return a frame in two parts. Raises ValueError for a value beyond plain data."""
    content = marshal.dumps(messages, _FORMAT)
    return _LENGTH.pack(len(content)), content


def take_messages(incoming: bytearray) -> Iterator[Message]:
    """Yield the messages of all complete frames, and remove these frames."""
    while len(incoming) >= _LENGTH.size:
        [length] = _LENGTH.unpack_from(incoming)
        end = _LENGTH.size + length
        if len(incoming) < end:
            return
        # A frame may hold the files of a sandbox, so only `loads` copies frames.
        with memoryview(incoming) as view, view[_LENGTH.size : end] as frame:
            messages = marshal.loads(frame)
        del incoming[:end]
        yield from messages


class Connection(asyncio.Protocol):
    """One end of the connection. `lost`: called once, when the other end is gone."""

    def __init__(self, receive: Receive, lost: Callable[[], None]) -> None:
        self._receive = receive
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._incoming = bytearray()
        self._outgoing: list[Message] = []
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def over(
        cls, end: socket.socket, receive: Receive, lost: Callable[[], None]
    ) -> Connection:
        """Return the connection over a connected stream socket, and own the socket."""
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_unix_connection(lambda: cls(receive, lost), sock=end)
        return protocol

    def send(self, *message: Any) -> None:
        """Send a message, together with all of this iteration of the event loop."""
        self._outgoing.append(message)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._flush)

    def send_later(self, *message: Any) -> None:
        """Send a message together with further messages, within `LATER_SECONDS`."""
        self._outgoing.append(message)
        if len(self._outgoing) >= MOST_TOGETHER and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._flush)
        elif self._timer is None:
            self._timer = self._loop.call_later(LATER_SECONDS, self._flush)

    def close(self) -> None:
        """Send the rest, and close the connection."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def finish(self) -> None:
        """Send the rest, and then the end; the other end may still send."""
        self._flush()
        if self._transport is not None:
            self._transport.write_eof()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Receive all complete messages."""
        self._incoming += data
        for message in take_messages(self._incoming):
            self._receive(message)

    def connection_lost(self, error: Exception | None) -> None:
        """Report the loss."""
        self._transport = None
        self._lost()

    def _flush(self) -> None:
        messages, self._outgoing = self._outgoing, []
        self._is_due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if messages and self._transport is not None:
            try:
                frame = frame_of(messages)
            except Exception:
                # All messages of the group are lost, so waits for their answers must end.
                log.exception("a message cannot be sent")
                self._transport.abort()
                raise
            self._transport.writelines(frame)
