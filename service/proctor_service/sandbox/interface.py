"""Protocols and frozen values between the judge and a sandbox, independent of the backend.

A sandbox runs a single program once. The judge exchanges JSON lines with the program over a channel
and afterwards reads the ending of the program. The lines may come from hostile code and are
untrusted. The ending comes from the kernel and is trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from proctor_service.errors import NotLayered
from proctor_service.sandbox.code_bundle import HASH_SEEDS as HASH_SEEDS
from proctor_service.sandbox.environments import DerivedEnvironment as DerivedEnvironment
from proctor_service.sandbox.environments import Environments, MakeLayer
from proctor_service.sandbox.environments import HoldEnvironment as HoldEnvironment
from proctor_service.sandbox.environments import hold_nothing as hold_nothing
from proctor_service.sandbox.linux.time_limits import TESTS as TESTS
from proctor_service.settings import Settings, Share
from proctor_service.settings.environments import DEFAULT as DEFAULT

Spent: TypeAlias = Callable[[tuple[str, str], float, float], None]
"""Called with tenant and job, seconds of a sandbox since the last call for this sandbox, and dollars."""
Asleep: TypeAlias = Callable[[int, int, Mapping[tuple[str, str], int]], None]
"""Called with the counts of yielding and of all leased sandboxes, and the long runners by tenant and job."""
PAYER: ContextVar[tuple[str, str]] = ContextVar("PAYER", default=("", ""))
"""Tenant and job of the sandboxes leased in this context."""


def charge_nobody(_: float) -> None:
    """Charge no job with core seconds."""


CHARGE: ContextVar[Callable[[float], None]] = ContextVar("CHARGE", default=charge_nobody)
"""Called with core seconds since the last call, used by the sandboxes of this context."""

FLOOD_BYTES = 64 << 20  # output beyond this ends a program with output_limit
MAX_FILE_BYTES = 32 << 20  # of a stateful sandbox's file: the service holds it in memory
ENVIRONMENT_IDLE_SECONDS = 600.0  # an environment without use ends; the next use starts it again
_ARCHIVE_OVERHEAD = 1.5  # size of a tar archive relative to its files, for many small files
_ARCHIVE_BYTES = 16 << 20
_MOST_ARCHIVE_BYTES = 2000 << 20  # messages of judge processes are below 2 GiB

Ending = Literal[
    "exited", "signalled", "cpu_limit", "wall_limit", "memory_limit", "output_limit", "killed"
]
"""Endings of a sandboxed process. `killed`: stopped by the service as no longer needed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of a sandbox.

    `cpu_seconds` is the sum over all processes; `wall_seconds` bounds idle time. Both are of a single
    test, from a `Sandbox.begin_test` to the next. `total_…`: of all tests together; None for the default.
    The work of our code before the program is left out.
    """

    cpu_seconds: float
    wall_seconds: float
    memory_mb: int
    output_kb: int
    processes: int
    disk_mb: int
    network: bool = False
    total_cpu_seconds: float | None = None
    total_wall_seconds: float | None = None

    @property
    def all_cpu_seconds(self) -> float:
        """CPU seconds of all tests together in a sandbox."""
        total = self.total_cpu_seconds
        return TESTS * self.cpu_seconds if total is None else total

    @property
    def all_wall_seconds(self) -> float:
        """Idle seconds of all tests together in a sandbox."""
        total = self.total_wall_seconds
        return TESTS * self.wall_seconds if total is None else total

    @property
    def are_used_up(self) -> bool:
        """True if the time for tests is used up."""
        return min(self.all_cpu_seconds, self.all_wall_seconds) <= 0

    def with_time(self, seconds: float) -> Limits:
        """Return these limits with `seconds` of CPU time, and as much idle time, for a single purpose."""
        return replace(
            self,
            cpu_seconds=seconds,
            wall_seconds=seconds,
            total_cpu_seconds=None,
            total_wall_seconds=None,
        )

    @property
    def archive_bytes(self) -> int:
        """Most size of the archive of a sandbox's files."""
        size = int((self.disk_mb << 20) * _ARCHIVE_OVERHEAD) + _ARCHIVE_BYTES
        return min(size, _MOST_ARCHIVE_BYTES)


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources used by a sandbox's program: seconds since the program's start, and peak megabytes.

    `idle_seconds`: wall time in which the sandbox neither ran nor waited for a core. `active_seconds`:
    wall time minus run-queue wait, bounded by a command's timeout; 0 if unknown, for example when the
    command ended before the first sample. `compile_seconds`: the compiler's part of `cpu_seconds`.
    `control_seconds`: CPU time of the negative control, in addition to `cpu_seconds`.
    """

    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_memory_mb: float = 0.0
    idle_seconds: float = 0.0
    active_seconds: float = 0.0
    compile_seconds: float = 0.0
    control_seconds: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.cpu_seconds + other.cpu_seconds,
            self.wall_seconds + other.wall_seconds,
            max(self.peak_memory_mb, other.peak_memory_mb),
            self.idle_seconds + other.idle_seconds,
            self.active_seconds + other.active_seconds,
            self.compile_seconds + other.compile_seconds,
            self.control_seconds + other.control_seconds,
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """Ending of a sandbox's program, and its output up to `Limits.output_kb`.

    `doubt`: why a failure may have an outside cause; empty without doubt.
    """

    ending: Ending
    exit_code: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    truncated: bool
    usage: Usage
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of a backend, and the protections missing on this machine.

    `degraded`: names of the missing protections. `allows_network`: a sandbox can get network access. The
    local backend always refuses network access, since the only route would lead to the service itself.
    `tools`: directories inside a sandbox with packages missing from some Python environments (pytest).
    `missing_languages`: by environment, the languages found missing in its image; known once the
    environment is in use. `judged_with`: influences on verdicts here, texts by part and name, for the
    replica's fingerprint. `has_operations`: see `StatefulSandbox.operate`.
    """

    name: str
    degraded: tuple[str, ...] = ()
    languages: tuple[str, ...] = ("python",)
    allows_network: bool = False
    tools: tuple[str, ...] = ()
    missing_languages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    judged_with: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    has_operations: bool = False


@dataclass(frozen=True, slots=True)
class GuestMessage:
    """First message to the program in a sandbox, and the limits.

    `line` is JSON, and names the work of the program. `keep_stdout_bytes` raises the number of stored
    stdout bytes above `Limits.output_kb`, for work with the answer on stdout. `takes_turns`: after each
    line sent, the program waits for a reply, and this wait is excluded from idle time. A line starting
    with `!` is an out-of-band message, which expects no reply. `on_line` is called in the event loop with
    each line as it arrives; `receive` returns the line, too.
    """

    line: bytes
    limits: Limits
    keep_stdout_bytes: int = 0
    takes_turns: bool = False
    on_line: Callable[[bytes], None] | None = None


class Sandbox(Protocol):
    """A fresh sandbox for a single program."""

    @property
    def id(self) -> str:
        """Name of the sandbox in logs and results: `sb_…`."""

    def begin(self, message: GuestMessage) -> None:
        """Start the program. Its limits of time count from the line `!began` of our code inside."""

    def send(self, line: bytes) -> None:
        """Send a line to the program, or the bytes announced by an earlier line.

        Ignored after the program closed its end.
        """

    def begin_test(self) -> None:
        """Begin the next test: the limits of a single test count from now on."""

    async def drain(self) -> None:
        """Wait until most of the queued data is sent, or the program has closed its end."""

    def hang_up(self) -> None:
        """Close the sending side: the program receives no more lines."""

    async def receive(self) -> bytes | None:
        """Return the next line from the program, or None after the last."""

    async def ended(self) -> Ended:
        """Wait until the program and all its children are gone; lines stay readable afterwards.

        Raises SandboxLost when the sandbox disappeared for a reason outside the program, and
        InvalidTask when the work before the program took too long.
        """

    def kill(self) -> None:
        """Kill the program at once; `ended` returns when the program is gone."""


StreamName = Literal["stdout", "stderr"]
Hear = Callable[[StreamName, bytes], None]
"""Callback for output as it arrives, limited to the stored part."""


@dataclass(frozen=True, slots=True)
class Command:
    """Command for a stateful sandbox: either an argv or Python code.

    `timeout_seconds` bounds wall time minus run-queue wait. Without a timeout, the sandbox's own
    `cpu_seconds` and `wall_seconds` (idle time) apply, as for a submission.
    """

    argv: tuple[str, ...] = ()
    code: str | None = None
    stdin: bytes = b""
    timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """Code of the service, run by its own interpreter inside of a stateful sandbox.

    `source`: Python of the standard library, with a function `main`; a sandbox of an image has the
    modules loaded by its fork server. `arguments` of `main`: JSON values. `stdin`, `stdout`: paths of
    files of the service, which `main` reads as descriptor 0 and appends to as 1, up to
    `most_written_bytes`. `freezes`: all other processes are stopped during the run.
    """

    source: str
    arguments: tuple[Any, ...] = ()
    stdin: str | None = None
    stdout: str | None = None
    freezes: bool = False
    most_written_bytes: int = 1 << 40


class StatefulSandbox(Protocol):
    """Sandbox for many commands, sequential or concurrent.

    Files, background processes and the environment changes of Python code persist between commands.
    Paths are relative to the working directory, or absolute. Every method raises SandboxEnded after
    the sandbox ended by its own act or was killed, and SandboxLost after the sandbox disappeared
    for an outside reason.
    """

    @property
    def id(self) -> str:
        """Name of the sandbox: `sb_…`."""

    async def exec(self, command: Command, hear: Hear | None = None) -> Ended:
        """Run a command to its end; cancelling this call kills the command's processes.

        A command with a failed start ends with code 127 (not found) or 126, as in a shell.
        """

    async def write_file(self, path: str, data: bytes) -> None:
        """Write a whole file and create missing directories. Raises FileRefused."""

    async def read_file(self, path: str, max_bytes: int) -> bytes:
        """Return a whole regular file.

        Raises FileMissing, and FileRefused for a file larger than `max_bytes` or a path to anything
        but a regular file.
        """

    async def snapshot(self) -> bytes:
        """Return a tar archive of all files in work/, home/ and tmp/, without processes.

        In an image: of all differences from the image, as a layer of the OCI image format.
        """

    async def restore(
        self, archive: bytes, kept_paths: Sequence[str] = (), left_out: Sequence[str] = ()
    ) -> None:
        """Apply the snapshot of another sandbox of the same image.

        Changes from which a grading could take code are left out: an agent made them
        (`guest/session/retained.py`). Paths in `kept_paths` are applied in any case; paths in `left_out`
        are left out, but below a longer path in `kept_paths`. Raises FileRefused.
        """

    async def operate(self, operation: Operation, most_bytes: int = 1 << 16) -> bytes:
        """Run code of the service in the sandbox, as its user, and return its output.

        Its processes cannot be traced by the sandbox's programs. Raises FileRefused where `main` fails,
        or prints more than `most_bytes`. Backends without `Traits.has_operations` lack this method.
        """

    async def set_command_defaults(self, directory: str, variables: Mapping[str, str]) -> None:
        """Let later commands and relative paths start in a directory, and set variables of commands.

        Backends without `Traits.has_operations` lack this method.
        """

    async def make_read_only(self, directory: str, paths: Sequence[bytes]) -> int:
        """Keep files below a directory from being written, removed, renamed or replaced; return their number.

        No later program can, as long as the sandbox lives; nor can it rename the folders above these files.
        New files beside them work. A folder above that was made in the sandbox, not by its image, counts as
        a file system of its own from then on, for renames and hard links. Paths are relative; links, and what
        is no regular file, are left out. Backends without `Traits.has_operations` lack this method.
        """

    async def ended(self) -> Ended:
        """Wait until the sandbox is gone and return its ending. Raises SandboxLost."""

    def kill(self) -> None:
        """Kill the sandbox and all its processes at once; `ended` returns when all are gone."""


class Sandboxes(Protocol):
    """Source of sandboxes: a judge's view of a backend."""

    @property
    def traits(self) -> Traits:
        """Properties of the backend, known after `Backend.start`."""

    def lease(
        self, limits: Limits, environment: str = DEFAULT, hash_seed: int = HASH_SEEDS[0]
    ) -> AbstractAsyncContextManager[Sandbox]:
        """Lease a fresh sandbox; leaving the context removes the sandbox and all its processes.

        `hash_seed`: of its Python, from HASH_SEEDS. Raises SandboxUnavailable.
        """

    def open(
        self, limits: Limits, environment: str = DEFAULT, tags: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[StatefulSandbox]:
        """Lease a stateful sandbox; leaving the context removes the sandbox and all its processes.

        Memory, processes and disk are limited for all commands together, CPU and wall time for each
        command. Raises SandboxUnavailable.
        """


OpenSandbox = Callable[
    [Sandboxes, Limits, str, Mapping[str, str], Sequence[str]],
    AbstractAsyncContextManager[StatefulSandbox],
]
"""Opens a sandbox, with limits, environment, files by path, and tags."""


@runtime_checkable
class EndsIdle(Protocol):
    """Backend with environments kept ready for their next use."""

    def end_idle(self) -> None:
        """End the environments without users at the moment, beside the default."""


@runtime_checkable
class DerivingSandboxes(Protocol):
    """Sandboxes of images, to which layers can be added."""

    async def derive(self, environment: str, key: str, make: MakeLayer) -> DerivedEnvironment:
        """See `LayeredEnvironments.derived`."""


async def derived_environment(
    sandboxes: Sandboxes, environment: str, key: str, make: MakeLayer
) -> DerivedEnvironment:
    """Return an environment with another layer over an environment with an image.

    The layer of a key is made once: `make` gets the path of a new file, and writes an archive of tar
    there, as from `StatefulSandbox.snapshot`. Folders missing in the archive keep the mode and owner of
    the image's. Raises SandboxUnavailable, NotLayered for an environment without an image, and the errors
    of `make`.
    """
    if not isinstance(sandboxes, DerivingSandboxes):
        raise NotLayered(f"environment {environment}: nothing can be added to it here")
    return await sandboxes.derive(environment, key, make)


class PassedSandboxes:
    """Source of sandboxes passing all questions on: base class for sources with some changes."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes

    @property
    def traits(self) -> Traits:
        """See `Sandboxes`."""
        return self._sandboxes.traits

    def lease(
        self, limits: Limits, environment: str = DEFAULT, hash_seed: int = HASH_SEEDS[0]
    ) -> AbstractAsyncContextManager[Sandbox]:
        """See `Sandboxes`."""
        return self._sandboxes.lease(limits, environment, hash_seed)

    def open(
        self, limits: Limits, environment: str = DEFAULT, tags: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[StatefulSandbox]:
        """See `Sandboxes`."""
        return self._sandboxes.open(limits, environment, tags)

    async def derive(self, environment: str, key: str, make: MakeLayer) -> DerivedEnvironment:
        """See `DerivingSandboxes`."""
        return await derived_environment(self._sandboxes, environment, key, make)


class Backend(Sandboxes, Protocol):
    """Source of sandboxes, with its life."""

    async def start(self) -> None:
        """Prepare the backend. Raises StartError on failure."""

    async def close(self) -> None:
        """Stop every sandbox and all processes behind the sandboxes."""

    def when_asleep(self, callback: Asleep) -> None:
        """Call `callback(yielding, lent, long_runners)` when sandboxes yield their cores to other programs.

        `yielding`: leased sandboxes asleep, or running long enough for other programs to begin beside
        them. `lent`: all leased sandboxes. `long_runners`: the long running sandboxes, by tenant and job.
        """

    def census(self) -> dict[str, int]:
        """Return the number of sandboxes by status, for the metrics."""


class BackendSource(Protocol):
    """Makes a backend of its kind for the service and for each judge process."""

    def make(self, settings: Settings, share: Share, environments: Environments) -> Backend:
        """Return the backend for a part of the machine. Raises StartError for an unavailable backend."""

    def examine(self, settings: Settings) -> list[MachineCheck]:
        """Return the checks of `proctor doctor`; blocks. Raises StartError."""


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """Result of a `proctor doctor` check: a protection or feature, its presence, and the remedy.

    `mend`: how to obtain the missing feature. `guards`: this is a protection, and every result
    reports its absence. `required`: sandboxes are not isolated without this protection.
    """

    name: str
    ok: bool
    detail: str
    mend: str = ""
    required: bool = False
    guards: bool = False
