"""Output of a command: its result, or a stream of NDJSON lines with the result at the end.

A failure before the first output is an ordinary error response, since the status line is sent with
that output. A slow reader delays only itself: the command continues, and the sandbox's output limit
bounds the unsent output.
"""

from __future__ import annotations

import asyncio
import codecs
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from proctor_service.errors import Failure, Refusal
from proctor_service.http.json import encode
from proctor_service.http.problems import within_stream
from proctor_service.http.responses import NDJSON, StreamedResponse
from proctor_service.sandbox.interface import Hear, StreamName
from proctor_service.sandboxes import Execution

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


def streamed_execution(execute: Execute) -> StreamedResponse:
    """Return a streamed response to exec; the command starts when the response is sent.

    The command ends when the client disconnects.
    """
    return StreamedResponse(_pieces(execute), NDJSON)


async def _pieces(execute: Execute) -> AsyncGenerator[bytes]:
    output = Output()
    heard = done = False
    running = asyncio.ensure_future(execute(output.hear))
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


def exec_body(execution: Execution) -> dict[str, Any]:
    """Return the result of a command in its wire form."""
    ended = execution.ended
    usage = ended.usage
    return {
        "exit_code": ended.exit_code if ended.ending == "exited" else None,
        "stdout": ended.stdout.decode("utf-8", "replace"),
        "stderr": ended.stderr.decode("utf-8", "replace"),
        "ending": ended.ending,
        "truncated": ended.truncated,
        "usage": {
            "cpu_seconds": round(usage.cpu_seconds, 6),
            "wall_seconds": round(usage.wall_seconds, 6),
            "queue_seconds": round(execution.queue_seconds, 6),
            "peak_memory_mb": round(usage.peak_memory_mb, 3),
        },
    }
