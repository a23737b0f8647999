"""A program with pipes to the service as standard input and output, while the program runs.

The lines between the service and the sandbox are in `guest/interaction.py`. The lines of a sandbox are
hostile: a line of another form is ignored, and a number can hurt its own program alone.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from proctor_service.guest.channel import BEGAN
from proctor_service.guest.interaction import CREDIT_BYTES, MAX_REPORT_BYTES, PIECE_BYTES
from proctor_service.judge.run import Run, begin, check_outcome
from proctor_service.sandbox.interface import GuestMessage, Limits, Sandbox

_LINE = re.compile(rb'!?\["([a-z]+)"(?:,([0-9]{1,18}))?(?:,"([A-Za-z0-9+/=]*)")?\]')
"""`["out",0,"NQo="]`, `["waits",12]`, `!["closed"]`."""
_STATES = (b"out", b"waits", b"blocked", b"busy")


def nothing() -> None:
    """Ignore a change."""


@dataclass(slots=True)
class PipedProgram:
    """The service's side of a program in a leased sandbox.

    `on_output`: called in the event loop with each piece of output, of at most 64 KB. After
    `CREDIT_BYTES` (128 KB) the program must wait for `allow`. `on_change`: called when the program begins
    to wait, has taken input, or has closed its standard output.

    `said_bytes`: printed output. `given_bytes`: sent input; `taken_bytes`: the part of the input in the
    program's pipe or read. `needs_input`: the program has read all its input and waits for more.
    `is_blocked`: the program waits for `allow`.
    """

    sandbox: Sandbox
    on_output: Callable[[bytes], None]
    on_change: Callable[[], None] = nothing
    said_bytes: int = 0
    given_bytes: int = 0
    taken_bytes: int = 0
    needs_input: bool = False
    is_blocked: bool = False
    is_closed: bool = False
    _read_bytes: int | None = None
    is_hung_up: bool = False
    is_over: bool = False
    _first_lines: list[bytes] = field(default_factory=list)
    _reports: bytearray = field(default_factory=bytearray)
    _owed_bytes: int = 0
    _has_turn: bool = True
    _taken: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(
        self, job: bytes, limits: Limits, data: bytes = b"", state: bytes | None = None
    ) -> None:
        """Start an `interactive` job with the bytes behind the job."""
        begin(self.sandbox, GuestMessage(job, limits, takes_turns=True), state)
        if data:
            self.sandbox.send(data)

    async def listen(self) -> None:
        """Hear the program until its sandbox ends."""
        while (line := await self.sandbox.receive()) is not None:
            if len(self._first_lines) < 1 or not self._first_lines[-1].startswith(BEGAN):
                self._first_lines.append(line)
            else:
                self._hear(line)
        self.is_over = True
        self._taken.set()
        self._forget_wait()
        self.on_change()

    async def finished(self) -> Run:
        """Wait for the end; return the run with the lines of the program's interpreter. Raises as `run`."""
        ended = await self.sandbox.ended()
        reports = bytes(self._reports).split(b"\n")[:-1]
        lines = (*self._first_lines, *reports)
        return check_outcome(Run(lines, ended, self.sandbox.id))

    # ------------------------------------------------------------ to the program

    async def give(self, data: bytes) -> None:
        """Send input of any size, as fast as the program reads."""
        view = memoryview(data)
        for start in range(0, len(view), PIECE_BYTES):
            while self.given_bytes - self.taken_bytes >= CREDIT_BYTES and not self.is_over:
                self._taken.clear()
                await self._taken.wait()
            self.send(view[start : start + PIECE_BYTES])

    def send(self, piece: bytes | memoryview) -> None:
        """Send input; the caller bounds the size of input waiting for the program."""
        if self.is_hung_up or self.is_over:
            return
        self.given_bytes += len(piece)
        self._send(b'["in","%s"]\n' % base64.b64encode(piece))

    def allow(self, size_bytes: int) -> None:
        """Let the program print so much more; small amounts are collected into a single message."""
        self._owed_bytes += size_bytes
        if self._owed_bytes >= CREDIT_BYTES // 2 and not (self.is_hung_up or self.is_over):
            self._send(b'["credit",%d]\n' % self._owed_bytes)
            self._owed_bytes = 0

    def own_wait(self) -> None:
        """Count the program's present wait as its own idle time."""
        self._has_turn = True
        self.sandbox.send(b'["alone"]\n')

    def end_input(self) -> None:
        """End its input; its output goes on as before."""
        if not (self.is_hung_up or self.is_over):
            self._send(b'["end"]\n')

    def hang_up(self) -> None:
        """End the talk: the program's input ends, and its output is no longer limited by `allow`."""
        if not self.is_hung_up:
            self.is_hung_up = self._has_turn = True
            self._forget_wait()
            self.sandbox.hang_up()

    def _send(self, line: bytes) -> None:
        self._has_turn = True
        self._forget_wait()
        self.sandbox.send(line)

    def _forget_wait(self) -> None:
        self.needs_input = self.is_blocked = False

    @property
    def has_turn(self) -> bool:
        """True while its idle time counts as its own."""
        return self._has_turn

    @property
    def is_waiting(self) -> bool:
        """True for a program waiting for its peer."""
        return self.needs_input or self.is_blocked

    @property
    def has_read(self) -> bool:
        """True if the program has read some of its input, or its end, or may have."""
        read = self.given_bytes if self._read_bytes is None else self._read_bytes
        return self.is_hung_up or read > 0

    # ------------------------------------------------------------ from the program

    def _hear(self, line: bytes) -> None:
        found = _LINE.fullmatch(line)
        if found is None:
            return
        word, number, text = found.groups()
        if number is not None and word != b"read":
            self.taken_bytes = max(self.taken_bytes, min(int(number), self.given_bytes))
            self._taken.set()
        keeps_turn = line.startswith(b"!")
        self._mark_turn(word, ends=not keeps_turn)
        if word == b"out":
            data = _decoded(text)
            self.said_bytes += len(data)
            self.on_output(data)
        elif word == b"report" and len(self._reports) < MAX_REPORT_BYTES:
            self._reports += _decoded(text)
        elif word == b"closed":
            self.is_closed = True
        elif word == b"read":
            self._read_bytes = int(number or 0)
        if word == b"closed" or number is not None:
            self.on_change()

    def _mark_turn(self, word: bytes, *, ends: bool) -> None:
        """Update whose turn follows a line; give a turn ended too early back to the program."""
        is_behind = self.taken_bytes < self.given_bytes  # new input is on its way
        if word in _STATES:
            self.is_blocked = word == b"blocked"
            self.needs_input = word == b"waits" and not is_behind
            is_behind = is_behind and not self.is_blocked
        if ends:
            self._has_turn = False
        speaks_on = word == b"out" and not ends
        if (is_behind or speaks_on or word == b"busy") and not self._has_turn:
            self._has_turn = True
            if not self.is_hung_up:
                self.sandbox.send(b'["again"]\n')


def _decoded(text: bytes | None) -> bytes:
    try:
        return base64.b64decode(text or b"")
    except ValueError:
        return b""
