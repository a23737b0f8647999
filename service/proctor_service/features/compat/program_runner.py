"""Program runner: admit a request, open a stateful sandbox, run a program, return its result.

The runner serves requests about the output of a program, without a grader or a verdict. The time
limit works as for any command in a stateful sandbox and excludes the wait for a core. A lost
sandbox is a failure of the service, never a result of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from proctor_service.errors import (
    FileMissing,
    FileRefused,
    JudgeFailed,
    SandboxEnded,
    SandboxLost,
)
from proctor_service.sandbox.interface import (
    CHARGE,
    DEFAULT,
    Backend,
    Command,
    Ended,
    Limits,
    StatefulSandbox,
)
from proctor_service.scheduling.queue import FairQueue, attempted
from proctor_service.settings.languages import Language

Tell = Callable[[str, float], None]
"""Receiver of each command's outcome (`success`, `failure` or `error`) and seconds."""


@dataclass(frozen=True, slots=True)
class Program:
    """Program to run. Paths are relative to the working directory, or absolute in the sandbox.

    `fetch`: files to read after the run, at most `fetch_bytes` in total.
    """

    source: str
    limits: Limits
    run_seconds: float
    compile_seconds: float = 10.0
    language: str = "python"
    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    fetch: tuple[str, ...] = ()
    fetch_bytes: int = 0
    environment: str = DEFAULT


@dataclass(frozen=True, slots=True)
class Asker:
    """Request context: the owner, and the deadline (monotonic clock)."""

    tenant: str
    job: str
    deadline: float


@dataclass(frozen=True, slots=True)
class Ran:
    """Result of a program: compile result, run result if the compilation succeeded, and files."""

    sandbox_id: str
    compiled: Ended | None
    ran: Ended | None
    files: Mapping[str, bytes]


class Runner:
    """Runner of programs, each in its own sandbox, through the common queue.

    `named`: returns a language with the class names of a source.
    """

    def __init__(
        self,
        backend: Backend,
        queue: FairQueue,
        languages: Mapping[str, Language],
        named: Callable[[Language, str], Language],
        record: Tell,
    ) -> None:
        self._backend = backend
        self._queue = queue
        self._languages = languages
        self._named = named
        self._record = record

    async def run(self, program: Program, asker: Asker) -> Ran:
        """Return the result of the program, in an installed language.

        Raises Busy, Draining and FileRefused, which are refusals; SandboxUnavailable, SandboxLost,
        Cancelled and DeadlinePassed, which are failures.
        """
        places = self._queue.reserve(1, (asker.tenant, asker.job))
        try:
            turn = self._queue.admit(asker.tenant, asker.job, asker.deadline)
            async with turn as ticket:
                CHARGE.set(ticket.charge)
                work = partial(self._in_sandbox, program)
                return await attempted(work, ticket, deadline=asker.deadline, doing="ran")
        finally:
            places.close()

    async def _in_sandbox(self, program: Program) -> Ran:
        language = None
        if program.language != "python":
            language = self._named(self._languages[program.language], program.source)
            language = language.within(program.limits.memory_mb)
        files = dict(program.files)
        run = Command((), program.source, program.stdin, program.run_seconds)
        if language is not None:
            source = language.whole(program.source)
            files[language.source] = source.encode("utf-8", "surrogatepass")
            run = Command(language.run, None, program.stdin, program.run_seconds)
        async with self._backend.open(program.limits, program.environment) as sandbox:
            # An image far away says so at its first use.
            missing_languages = self._backend.traits.missing_languages
            if program.language in missing_languages.get(program.environment, ()):
                where = f"the image of {program.environment}"
                raise JudgeFailed(f"{where} has not all programs of {program.language}")
            await _place(sandbox, files)
            compiled = None
            if language is not None and language.compile is not None:
                compile_it = Command(language.compile, timeout_seconds=program.compile_seconds)
                compiled = await self._command(sandbox, compile_it)
                if compiled.ending != "exited" or compiled.exit_code != 0:
                    return Ran(sandbox.id, compiled, None, {})
            ran = await self._command(sandbox, run)
            return Ran(sandbox.id, compiled, ran, await _fetched(sandbox, program))

    async def _command(self, sandbox: StatefulSandbox, command: Command) -> Ended:
        clock = self._queue.clock
        begun = clock()
        ended: Ended | None = None
        try:
            ended = await sandbox.exec(command)
        except SandboxEnded:
            ended = await sandbox.ended()  # ended by its own act, for example by its memory use
            if ended.ending == "killed":
                raise SandboxLost("the sandbox was ended under a running program") from None
        finally:
            self._record(_outcome(ended), clock() - begun)
        if ended.doubt:  # only the caller can tell whether the program has failed
            raise SandboxLost(ended.doubt)
        return ended


async def _place(sandbox: StatefulSandbox, files: Mapping[str, bytes]) -> None:
    try:
        for path, data in files.items():
            await sandbox.write_file(path, data)
    except SandboxEnded as ended:
        raise SandboxLost(f"before anything ran: {ended.message}") from None


async def _fetched(sandbox: StatefulSandbox, program: Program) -> dict[str, bytes]:
    """Return the requested files that exist, within the size limit."""
    found: dict[str, bytes] = {}
    left = program.fetch_bytes
    for path in dict.fromkeys(program.fetch):
        try:
            found[path] = await sandbox.read_file(path, left)
        except (FileMissing, FileRefused):
            continue
        except SandboxEnded:
            break
        left -= len(found[path])
    return found


def _outcome(ended: Ended | None) -> str:
    if ended is None or ended.ending not in ("exited", "signalled"):
        return "error"
    return "success" if ended.exit_code == 0 else "failure"
