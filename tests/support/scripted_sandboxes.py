"""Stateful sandboxes that do as a test says, and note what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from harness import NoBackend

from proctor_service.errors import FileMissing, FileRefused, ProctorServiceError, SandboxEnded
from proctor_service.sandbox.interface import (
    DEFAULT,
    Command,
    Ended,
    Ending,
    Hear,
    Limits,
    Operation,
    StatefulSandbox,
    Traits,
    Usage,
)

ROOMY = Limits(cpu_seconds=10, wall_seconds=60, memory_mb=64, output_kb=64, processes=8, disk_mb=1)


def ended(
    ending: Ending = "exited", code: int | None = 0, out: bytes = b"", err: bytes = b""
) -> Ended:
    """How a command ended."""
    return Ended(ending, code, None, out, err, False, Usage(0.5, 1.0, 2.0))


class ScriptedSandbox:
    """Files in a dict, and a few commands.

    `true`, `false`, `overrun` (a limit ends it), `say WORD…` (each word a piece of output, those that
    begin with `!` on stderr), `wait NAME` (until `release`), and `suicide`, which ends the sandbox.
    """

    def __init__(self, number: int, limits: Limits, tags: Sequence[str]) -> None:
        self.id = f"sb_{number}"
        self.limits = limits
        self.tags = tuple(tags)
        self.files: dict[str, bytes] = {}
        self.waiting: set[str] = set()
        self.cancelled: list[str] = []
        self.stdin = b""
        self.snapshots = 0
        self.full = False
        self._gates: dict[str, asyncio.Event] = {}
        self._end: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()

    async def exec(self, command: Command, hear: Hear | None = None) -> Ended:
        """Runs a command of the list above."""
        self._check()
        self.stdin = command.stdin
        if command.code is not None:
            return self._say(command.code.split(), hear)
        match command.argv:
            case ("true",):
                return ended()
            case ("false",):
                return ended(code=1)
            case ("overrun",):
                return ended("wall_limit", None)
            case ("say", *words):
                return self._say(words, hear)
            case ("say-and-wait", *words):
                said = self._say(words, hear)
                await self._wait("said")
                return said
            case ("wait", name):
                await self._wait(name)
                return ended()
            case ("suicide",):
                self.end("memory_limit")
                self._check()
        return ended(code=127)

    async def write_file(self, path: str, data: bytes) -> None:
        """A file that is called `full` finds no room."""
        self._check()
        if path == "full":
            raise FileRefused("full: no room")
        self.files[path] = data

    async def read_file(self, path: str, max_bytes: int) -> bytes:
        """What was written."""
        self._check()
        if path not in self.files:
            raise FileMissing(f"{path}: no such file")
        if len(self.files[path]) > max_bytes:
            raise FileRefused(f"{path}: larger than {max_bytes} bytes")
        return self.files[path]

    async def snapshot(self) -> bytes:
        """No archive, but the names."""
        self._check()
        self.snapshots += 1
        if self.full:
            raise FileRefused("the sandbox has no means left for it")
        return " ".join(sorted(self.files)).encode()

    async def restore(
        self, archive: bytes, kept: Sequence[str] = (), left_out: Sequence[str] = ()
    ) -> None:
        """Refused: only sandboxes of an image take changes over."""
        raise FileRefused("no image")

    async def operate(self, operation: Operation, most_bytes: int = 1 << 16) -> bytes:
        """Refused: nothing of the service runs in it."""
        raise FileRefused("no code of the service")

    async def set_command_defaults(self, directory: str, variables: Mapping[str, str]) -> None:
        """Nothing: its commands run nowhere."""

    async def make_read_only(self, directory: str, paths: Sequence[bytes]) -> int:
        """Nothing: no program would write them."""
        return 0

    async def ended(self) -> Ended:
        """Waits for `end` or `lose`."""
        return await asyncio.shield(self._end)

    def kill(self) -> None:
        """Ends it."""
        self.end("killed")

    def end(self, ending: Ending) -> None:
        """It ends by its own act."""
        if not self._end.done():
            self._end.set_result(ended(ending, None))

    def lose(self, failure: ProctorServiceError) -> None:
        """It goes away."""
        self._end.set_exception(failure)

    def release(self, name: str) -> None:
        """Lets a command that waits go on."""
        self._gates[name].set()

    def _say(self, words: Sequence[str], hear: Hear | None) -> Ended:
        texts = {"stdout": b"", "stderr": b""}
        for word in words:
            name = "stderr" if word.startswith("!") else "stdout"
            data = word.encode("latin-1", "replace")
            texts[name] += data
            if hear is not None:
                hear("stderr" if name == "stderr" else "stdout", data)
        return ended(out=texts["stdout"], err=texts["stderr"])

    async def _wait(self, name: str) -> None:
        self.waiting.add(name)
        try:
            await self._gates.setdefault(name, asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        finally:
            self.waiting.discard(name)

    def _check(self) -> None:
        if self._end.done():
            raise SandboxEnded("it ended by its own act")


class FakeBackend(NoBackend):
    """A backend of such sandboxes. `guests` are those that are there, `left` those that were.

    While `door` is closed none comes in, and while `exit` is closed none gets out. A `deaf` one
    loses cancellations at the door, as `asyncio.wait_for` does where it meets a result.
    """

    def __init__(self, traits: Traits | None = None) -> None:
        super().__init__(traits)
        self.guests: list[ScriptedSandbox] = []
        self.left: list[ScriptedSandbox] = []
        self.coming = 0
        self.deaf = False
        self.refusals: list[ProctorServiceError] = []
        self.door = asyncio.Event()
        self.door.set()
        self.exit = asyncio.Event()
        self.exit.set()

    @asynccontextmanager
    async def open(
        self, limits: Limits, environment: str = DEFAULT, tags: Sequence[str] = ()
    ) -> AsyncIterator[StatefulSandbox]:
        """Lets one in, unless there is a refusal to hand out."""
        self.coming += 1
        try:
            await self._wait_at_the_door()
            if self.refusals:
                raise self.refusals.pop(0)
        finally:
            self.coming -= 1
        guest = ScriptedSandbox(len(self.guests) + len(self.left), limits, tags)
        self.guests.append(guest)
        try:
            yield guest
        finally:
            guest.kill()
            await self.exit.wait()
            self.guests.remove(guest)
            self.left.append(guest)

    async def _wait_at_the_door(self) -> None:
        try:
            await self.door.wait()
        except asyncio.CancelledError:
            if not self.deaf:
                raise
