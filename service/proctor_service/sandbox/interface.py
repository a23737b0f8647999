"""What the judge asks of a sandbox: a few Protocols and frozen values, and no backend.

A sandbox runs one program, once. The judge speaks with the program over a channel of JSON lines, and
learns afterwards how it ended. What the program says on the channel is worth no more than what
hostile code may say; how it ended comes from the kernel and is to be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

Ending = Literal[
    "exited", "signalled", "cpu_limit", "wall_limit", "memory_limit", "output_limit", "killed"
]
"""How a process in a sandbox ended. `killed`: by us, because nobody needed it any more."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one sandbox may use: seconds of CPU over all its processes, and so on."""

    cpu_seconds: float
    wall_seconds: float
    memory_mb: int
    output_kb: int
    processes: int
    disk_mb: int
    network: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """What a sandbox used. Seconds, and megabytes at its peak.

    `idle_seconds`: of the wall time, that in which it neither ran nor waited for a core.
    `active_seconds`: that in which it did not wait for a core, which is what a command's timeout
    bounds; 0 where it was over before anybody looked, or where that is not told.
    """

    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_memory_mb: float = 0.0
    idle_seconds: float = 0.0
    active_seconds: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.cpu_seconds + other.cpu_seconds,
            self.wall_seconds + other.wall_seconds,
            max(self.peak_memory_mb, other.peak_memory_mb),
            self.idle_seconds + other.idle_seconds,
            self.active_seconds + other.active_seconds,
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """How a sandbox's program ended, and what it wrote, kept up to `Limits.output_kb`."""

    ending: Ending
    exit_code: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    truncated: bool
    usage: Usage


@dataclass(frozen=True, slots=True)
class Traits:
    """What a backend is, and which protections this machine cannot give it.

    `allows_network`: whether a sandbox can be given a way out. The local backend has none to give that
    would not lead to the service itself.
    `tools`: directories inside a sandbox that hold what a Python environment may lack (pytest).
    """

    name: str
    degraded: tuple[str, ...] = ()
    languages: tuple[str, ...] = ("python",)
    allows_network: bool = False
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """What a sandbox is to do: the first line on the channel, and the limits.

    `message` is a JSON line for the program that waits inside. `keep_stdout_bytes` raises what is kept
    of stdout above `Limits.output_kb`, where stdout is the answer. `takes_turns`: after each line that
    the program says, it waits for one, and until that is sent its idling is nobody's fault; a line that
    begins with `!` is said aside.
    """

    message: bytes
    limits: Limits
    keep_stdout_bytes: int = 0
    takes_turns: bool = False


class Sandbox(Protocol):
    """One fresh sandbox, for one program."""

    @property
    def id(self) -> str:
        """Its name in logs and results: `sb_…`."""

    def begin(self, job: Job) -> None:
        """Starts the program. Limits count from here."""

    def send(self, line: bytes) -> None:
        """Sends a line to the program, or bytes that a line announced.

        Nothing happens when it no longer listens.
        """

    async def drain(self) -> None:
        """Waits until most of what was sent is on its way, or can no longer be."""

    def hang_up(self) -> None:
        """Tells the program that no more lines will come."""

    async def receive(self) -> bytes | None:
        """The next line from the program, None after the last."""

    async def ended(self) -> Ended:
        """Waits until the program and all its children are gone; lines stay readable after it.

        Raises SandboxLost when the sandbox went away through no act of the program.
        """

    def kill(self) -> None:
        """Ends the program at once; `ended` tells when it is gone."""


StreamName = Literal["stdout", "stderr"]
Hear = Callable[[StreamName, bytes], None]
"""Told of output as it comes, as far as it is kept."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to run in a stateful sandbox: an argv, or Python code; one of them.

    `timeout_seconds` bounds its time less the time it waited for a core. Without it the sandbox's own
    `cpu_seconds` and `wall_seconds` (idle time) hold, as for a submission.
    """

    argv: tuple[str, ...] = ()
    code: str | None = None
    stdin: bytes = b""
    timeout_seconds: float | None = None


class StatefulSandbox(Protocol):
    """A sandbox for many commands, one after the other or at once.

    Files, background processes and what Python code changes in its environment stay from one command
    to the next. Paths are relative to the working directory, or absolute. Every method raises
    SandboxEnded once the sandbox is gone through its own act or was killed, and SandboxLost when it
    went away through none.
    """

    @property
    def id(self) -> str:
        """Its name: `sb_…`."""

    async def exec(self, command: Command, hear: Hear | None = None) -> Ended:
        """Runs a command to its end; when this is cancelled, its processes are killed.

        A command that cannot be started ends with code 127 (not found) or 126, as in a shell.
        """

    async def write_file(self, path: str, data: bytes) -> None:
        """Writes a whole file, making directories. Raises FileRefused."""

    async def read_file(self, path: str, max_bytes: int) -> bytes:
        """A whole regular file. Raises FileMissing, and FileRefused when it is larger or no file."""

    async def snapshot(self) -> bytes:
        """All its files as they are now: a tar archive of work/, home/ and tmp/, without processes."""

    async def ended(self) -> Ended:
        """Waits until it is gone: how its life ended. Raises SandboxLost."""

    def kill(self) -> None:
        """Ends it and all that runs in it, at once; `ended` tells when it is gone."""


class Backend(Protocol):
    """A place where sandboxes come from."""

    @property
    def traits(self) -> Traits:
        """Known after `open`."""

    async def open(self) -> None:
        """Makes it ready. Raises StartError when it cannot be."""

    def lease(self, limits: Limits) -> AbstractAsyncContextManager[Sandbox]:
        """Lends a fresh sandbox; at the end it is gone, with all that ran in it.

        Raises SandboxUnavailable when none can be had.
        """

    def keep(
        self, limits: Limits, tags: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[StatefulSandbox]:
        """Lends a sandbox that keeps its state; at the end it is gone, with all that ran in it.

        Memory, processes and disk are limited over all its commands together, CPU and wall time for
        each. Raises SandboxUnavailable when none can be had.
        """

    async def close(self) -> None:
        """Ends every sandbox and everything that made them."""

    def when_asleep(self, tell: Callable[[int, int], None]) -> None:
        """Calls `tell(yielding, lent)` when it changes how many of the lent sandboxes leave their core.

        They are asleep, or have run for so long that programs which have just begun come first.
        """

    def census(self) -> dict[str, int]:
        """How many sandboxes there are, by status, for the metrics."""


@dataclass(frozen=True, slots=True)
class Check:
    """One protection or ability, for `proctor doctor`: whether it is there, and how to get it.

    `guards`: it is a protection, and every result says when it is missing. `required`: without it
    there is no isolation worth the name.
    """

    name: str
    ok: bool
    detail: str
    mend: str = ""
    required: bool = False
    guards: bool = False
