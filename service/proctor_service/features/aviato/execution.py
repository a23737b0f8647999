"""Service side of a supervisor's run: data to the program, data from the program, and the ending.

All data passes through the stdin and stdout of a single SDK command. Data from a program is
hostile: the sandbox and this module bound the data, and other modules parse the lines. An ending is
trusted only in a report with the secret word known only to the supervisor. A stream ending without
this report is a failure of the service, for any exit code.
"""

from __future__ import annotations

import asyncio
import binascii
import contextlib
import json
import secrets
from collections import deque
from collections.abc import Callable
from typing import Any

import cwsandbox

from proctor_service.errors import Failure, InvalidTask, SandboxLost, SandboxUnavailable
from proctor_service.features.aviato.failures import failure_of
from proctor_service.sandbox.interface import Ended, Hear, Limits, Usage
from proctor_service.sandbox.linux.channel import UNPREPARED, Evidence, Lines, ended_by

_AT_ONCE_BYTES = 1 << 18
_PIECE_BYTES = 48 << 10
_FRAME_BYTES = 1 << 20  # a supervisor's frame holds the data of a single read, and is far smaller
_NAMES = {"o": "stdout", "e": "stderr"}


class RemoteExecution(Lines):
    """Connection to a supervisor; create after the start of its command, and close after use."""

    def __init__(self, process: cwsandbox.Process, on_failure: Callable[[str], None]) -> None:
        super().__init__()
        self._process = process
        self._on_failure = on_failure
        self._word = secrets.token_hex(16)
        self._limits: Limits | None = None
        self._hear: Hear | None = None
        self._rest = ""
        self._output: dict[str, list[bytes]] = {"o": [], "e": []}
        self._reported = False
        self._flooded = False
        self._unsent: deque[tuple[memoryview, bool]] = deque()  # bool: raw data, not yet a frame
        self._sending: asyncio.Task[None] | None = None
        self._goodbye: asyncio.Task[None] | None = None
        self._hello: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._ended: asyncio.Future[Ended] = self._loop.create_future()
        self._reading = self._loop.create_task(self._read())

    # ------------------------------------------------------------ messages

    async def hello(self, seconds: float) -> dict[str, Any]:
        """Return the supervisor's report of the isolation.

        Raises SandboxUnavailable if the program has not run.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self._hello
        except TimeoutError:
            raise SandboxUnavailable("timeout: the supervisor did not answer") from None

    def begin(
        self,
        limits: Limits,
        flood_bytes: int,
        keep_stdout_bytes: int = 0,
        timeout_seconds: float | None = None,
        hear: Hear | None = None,
        still: bool = False,
        takes_turns: bool = False,
    ) -> None:
        """Send the supervisor the limits, which count from this call, and the word for its report.

        `still`: all other processes of the program's user stop until the program has ended.
        `takes_turns`: see `GuestMessage`.
        """
        self._limits = limits
        self._hear = hear
        order = {
            "word": self._word,
            "still": still,
            "takes_turns": takes_turns,
            "keep_stdout_bytes": max(limits.output_kb << 10, keep_stdout_bytes),
            "limits": {
                "cpu_seconds": limits.cpu_seconds,
                "wall_seconds": limits.wall_seconds,
                "all_cpu_seconds": limits.all_cpu_seconds,
                "all_wall_seconds": limits.all_wall_seconds,
                "timeout_seconds": timeout_seconds,
                "memory_mb": limits.memory_mb,
                "output_kb": limits.output_kb,
                "processes": limits.processes,
                "disk_mb": limits.disk_mb,
                "flood_bytes": flood_bytes,
            },
        }
        self.send(b"c" + json.dumps(order).encode() + b"\n")

    def pass_on(self, data: bytes) -> None:
        """Send bytes to the program: a line, or other expected data."""
        if len(data) <= _PIECE_BYTES and data.find(b"\n") == len(data) - 1:
            self.send(b"l" + data)
            return
        view = memoryview(data)
        for start in range(0, len(view), _PIECE_BYTES):
            self._queue(view[start : start + _PIECE_BYTES], True)

    def send(self, frame: bytes) -> None:
        """Send a complete frame to the supervisor, including the newline."""
        self._queue(memoryview(frame), False)

    def _queue(self, piece: memoryview, raw: bool) -> None:
        if not self.open:
            return
        self._unsent.append((piece, raw))
        self._unsent_bytes += len(piece)
        if self._sending is None or self._sending.done():
            self._sending = self._loop.create_task(self._send())

    def report(self) -> bytes:
        """Return all data from the program's channel not yet received."""
        lines = b"".join(line + b"\n" for line in self._lines)
        self._lines.clear()
        return lines + self._line

    async def ended(self) -> Ended:
        """Return the ending of the program. Raises SandboxLost."""
        return await asyncio.shield(self._ended)

    def give_up(self) -> None:
        """Stop waiting for the report; without a report the ending is `killed`."""
        self._set_result(Ended("killed", None, None, b"", b"", False, Usage()))

    @property
    def begun(self) -> bool:
        """True if a program may have run."""
        return self._limits is not None

    @property
    def reported(self) -> bool:
        """True if the supervisor completed its run and cleaned up the sandbox."""
        return self._reported

    async def close(self, settle_seconds: float = 0.0) -> None:
        """Release the command; processes still running after `settle_seconds` may be killed."""
        if self._reported and settle_seconds:
            await asyncio.wait({self._reading}, timeout=settle_seconds)
        self._process.cancel()
        every = (self._reading, self._sending, self._goodbye)
        tasks = [task for task in every if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.give_up()

    # ------------------------------------------------------------ to the supervisor

    async def _send(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            while self._unsent:
                data, taken = bytearray(), 0
                while self._unsent and len(data) < _AT_ONCE_BYTES:
                    piece, raw = self._unsent.popleft()
                    data += b"b" + binascii.b2a_base64(piece) if raw else piece
                    taken += len(piece)
                await stdin.write(bytes(data))
                self._unsent_bytes -= taken
                self._wake()
        except cwsandbox.CWSandboxError:
            self._unsent.clear()  # the supervisor closed its end; the ending will show the reason
            self._unsent_bytes = 0
            self._wake()

    async def _hang_up(self) -> None:
        """Close this side of the call first; otherwise the SDK would have to abort the call."""
        assert self._process.stdin is not None
        with contextlib.suppress(cwsandbox.CWSandboxError):
            await self._process.stdin.close()

    # ------------------------------------------------------------ from the supervisor

    async def _read(self) -> None:
        try:
            async for text in self._process.stdout:
                self._take(text)
            result = await self._process
        except Exception as error:
            # Before `begin`, no program has run.
            self._fail(failure_of(error, "start" if self._limits is None else "run"))
            return
        why = f"the supervisor ended with code {result.returncode} and without a report"
        tail = result.stderr.strip()[-300:]
        self._fail(SandboxLost(f"no_report: {why}: {tail}" if tail else f"no_report: {why}"))

    def _take(self, text: str) -> None:
        *frames, self._rest = (self._rest + text).split("\n")
        for frame in frames:
            self._understand(frame[:1], binascii.a2b_base64(frame[1:]))
        if len(self._rest) > _FRAME_BYTES:
            raise ValueError("not a frame of the supervisor")
        self._wake()

    def _understand(self, kind: str, data: bytes) -> None:
        if kind == "l":
            if self._flooded:
                return
            if not self._split(data):
                self._flooded = True
                self.send(b"f\n")
        elif kind in _NAMES:
            self._output[kind].append(data)
            if self._hear is not None:
                self._hear("stdout" if kind == "o" else "stderr", data)
        elif kind == "+" and not self._hello.done():
            self._hello.set_result(json.loads(data))
        elif kind == "-":
            why = f"unhealthy: {data.decode('utf-8', 'replace')[:300]}"
            self._fail(SandboxLost(why) if self.begun else SandboxUnavailable(why))
        elif kind == "." and self._limits is not None:
            report = json.loads(data)
            if secrets.compare_digest(str(report.get("word")), self._word):
                self._reported = self.open
                self._goodbye = self._loop.create_task(self._hang_up())
                self._finish(report)

    def _finish(self, report: dict[str, Any]) -> None:
        ended = _ended(report, self._output)
        if not report["begun"] and ended.ending in ("cpu_limit", "wall_limit"):
            self._fail((SandboxLost if report["untaken"] else InvalidTask)(UNPREPARED))
        else:
            self._set_result(ended)

    def _set_result(self, ended: Ended) -> None:
        if self.open:
            self._ended.set_result(ended)
            self._close_lines()

    def _fail(self, failure: Failure) -> None:
        if not self.open:
            return
        self._on_failure(failure.message.partition(":")[0])
        for future in (self._hello, self._ended):
            if not future.done():
                future.set_exception(failure)
                future.exception()  # retrieved here, or asyncio would log a warning
        self._close_lines()


def _ended(report: dict[str, Any], chunks: dict[str, list[bytes]]) -> Ended:
    evidence = Evidence(
        status=report["status"],
        stopped_for=report["stopped_for"],
        out_of_memory_kills=report["out_of_memory_kills"],
        cpu_exceeded=report["cpu_exceeded"],
    )
    stdout, stderr = b"".join(chunks["o"]), b"".join(chunks["e"])
    return ended_by(
        evidence,
        stdout=stdout,
        stderr=stderr,
        truncated=report["stdout_bytes"] > len(stdout) or report["stderr_bytes"] > len(stderr),
        usage=Usage(
            cpu_seconds=report["cpu_seconds"],
            wall_seconds=report["wall_seconds"],
            peak_memory_mb=report["peak_memory_mb"],
            idle_seconds=report["idle_seconds"],
            active_seconds=report["active_seconds"],
        ),
    )
