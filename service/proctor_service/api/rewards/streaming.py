"""Stream of a command's output: NDJSON lines, and at the end the result or the error.

A failure before the first output is an ordinary error response, since the status line is sent with
that output. A slow reader delays only itself: the command continues, and the sandbox's output limit
bounds the unsent output.
"""

from __future__ import annotations

import asyncio
import codecs
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from proctor_service.api.connection import while_connected
from proctor_service.api.problems import within_stream
from proctor_service.api.rewards.examples import NDJSON
from proctor_service.api.rewards.results import encode
from proctor_service.api.sandboxes.wire import exec_body
from proctor_service.errors import Failure, Refusal
from proctor_service.sandbox.interface import Hear, StreamName
from proctor_service.sessions import Execution

MOST_PIECES = 256
LINE_BYTES = 1 << 16

Execute = Callable[[Hear], Awaitable[Execution]]


class Output:
    """Unread output of a command, in order."""

    def __init__(self) -> None:
        self.more = asyncio.Event()
        self._pieces: deque[tuple[StreamName, bytearray]] = deque()
        # The same decoding as in the result, so the pieces add up to the result's texts.
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}

    def hear(self, name: StreamName, data: bytes) -> None:
        """Add output, if possible to an earlier piece: single-byte pieces waste memory."""
        pieces = self._pieces
        # Above MOST_PIECES pieces, the order between stdout and stderr is lost.
        open_pieces = 2 if len(pieces) > MOST_PIECES else min(1, len(pieces))
        for index in range(1, open_pieces + 1):
            known, piece = pieces[-index]
            if known == name:
                piece += data
                break
        else:
            pieces.append((name, bytearray(data)))
        self.more.set()

    def next_line(self) -> bytes | None:
        """Return the next line, None if all received output is taken."""
        while self._pieces:
            name, piece = self._pieces[0]
            text = self._decoders[name].decode(piece[:LINE_BYTES])
            del piece[:LINE_BYTES]
            if not piece:
                self._pieces.popleft()
            if text:
                return encode({name: text}) + b"\n"
        return None

    def rest(self) -> bytes:
        """Return lines with the incomplete characters, once the output is complete."""
        ends = ((name, each.decode(b"", True)) for name, each in self._decoders.items())
        return b"".join(encode({name: text}) + b"\n" for name, text in ends if text)


class StreamedExecution(Response):
    """A streamed response to exec; the command starts when the response is sent."""

    def __init__(self, execute: Execute) -> None:
        super().__init__(media_type=NDJSON)
        del self.headers["content-length"]
        self._execute = execute

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the command and send its output; the command ends when the client disconnects."""
        with suppress(ClientDisconnect):
            await while_connected(self._send(send), receive)

    async def _send(self, send: Send) -> None:
        started = False
        async for piece in self._pieces():
            if not started:
                started = True
                start: dict[str, Any] = {"status": 200, "headers": self.raw_headers}
                await send({"type": "http.response.start", **start})
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pieces(self) -> AsyncIterator[bytes]:
        output = Output()
        heard = done = False
        running = asyncio.ensure_future(self._execute(output.hear))
        running.add_done_callback(lambda _: output.more.set())
        try:
            while not done:
                await output.more.wait()
                output.more.clear()
                done = running.done()
                while (line := output.next_line()) is not None:
                    heard = True
                    yield line
            try:
                ending = {"result": exec_body(running.result())}
            except (Refusal, Failure) as error:
                if not heard:
                    raise
                ending = {"error": within_stream(error)}
            yield output.rest() + encode(ending) + b"\n"
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
