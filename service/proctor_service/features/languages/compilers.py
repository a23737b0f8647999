"""Programs made by a compiler in a sandbox of its own, for the sandboxes in which they run.

The files of a compiler are stored by content, so that equal programs are compiled once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from proctor_service.codec.values import Malformed, loads
from proctor_service.errors import JudgeFailed
from proctor_service.features.languages.prepared_files import PreparedFiles, Scripts
from proctor_service.guest.command import MAX_MADE_BYTES
from proctor_service.judge.graders.programs import NOT_STARTED, Made, Program
from proctor_service.judge.run import LIMITS, Run, RunnerFailed, message, of_silence, run, text_of
from proctor_service.judge.stored_results import StoredResults
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import PAYER, Limits, Sandboxes, Usage

_PROCESSES = 64  # at once, at least
_SECONDS = 30.0  # at least, of CPU time and of waiting
_MEMORY_MB = 512  # at least
_MOST_KEPT = 2000
_MOST_KEPT_BYTES = 256 << 20
_KEPT_OVERHEAD_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiler's output for a program: its files, and the command to run them."""

    argv: tuple[str, ...] | None
    made: Made


class Compilers:
    """Compiles programs, and stores the compilers' outputs by content."""

    def __init__(self, prepared: PreparedFiles) -> None:
        self._prepared = prepared
        self._results: StoredResults[Compiled | Judgement] = StoredResults(
            _MOST_KEPT, _MOST_KEPT_BYTES, _size_bytes
        )

    async def compiled(
        self,
        submission: Submission,
        backend: Sandboxes,
        argv: tuple[str, ...],
        files: Mapping[str, str],
        program: Program,
    ) -> Program | Judgement:
        """Return as `compiled`, of now or of an equal program before; the latter used no time.

        Programs and errors of compilers ended by themselves are stored, for the same tenant. The files
        of a snapshot are unknown here, so a submission with a snapshot is compiled each time.
        """
        if submission.state is not None:  # its sandbox may have an agent's files anywhere
            return await compiled(submission, backend, argv, files, program)
        scripts = await self._prepared.scripts(argv, backend.traits.name)
        own: Program | Judgement | None = None

        async def make() -> Compiled | Judgement:
            nonlocal own
            own = await compiled(submission, backend, argv, files, program, scripts=scripts)
            return own if isinstance(own, Judgement) else Compiled(own.argv, own.made)

        key = _key(submission, argv, files, program)
        found = await self._results.once(key, make, _is_stored)
        if own is not None:
            return own
        if isinstance(found, Judgement):
            return replace(found, usage=Usage(), sandbox_id=None)
        return replace(program, argv=found.argv, made=found.made)


def _key(
    submission: Submission,
    argv: tuple[str, ...],
    files: Mapping[str, str],
    program: Program,
) -> bytes:
    """Return a digest of all inputs of a compiler, and of the tenant.

    Prepared files change the time alone. Without the tenant in the digest, the time would tell a tenant
    of another tenant's equal program.
    """
    limits = compiler_limits(submission.limits)
    parts = json.dumps(
        [
            PAYER.get()[0],
            submission.environment,
            argv,
            program.argv,
            asdict(limits),
            sorted(files.items()),
        ]
    )
    return hashlib.blake2b(parts.encode(), digest_size=20).digest()


def _is_stored(result: Compiled | Judgement) -> bool:
    """Return False for a compiler ended by a limit: the next run may end within its limits."""
    return isinstance(result, Compiled) or result.verdict == "syntax_error"


def _size_bytes(result: Compiled | Judgement) -> int:
    if isinstance(result, Compiled):
        return len(result.made.data) + _KEPT_OVERHEAD_BYTES
    return len(result.message) + len(result.stderr) + _KEPT_OVERHEAD_BYTES


def compiler_limits(limits: Limits) -> Limits:
    """Return the limits of a compiler: a program's limits would refuse right programs."""
    return replace(
        limits,
        processes=max(limits.processes, _PROCESSES),
        cpu_seconds=max(limits.cpu_seconds, _SECONDS),
        wall_seconds=max(limits.wall_seconds, _SECONDS),
        total_cpu_seconds=None,
        total_wall_seconds=None,
        memory_mb=max(limits.memory_mb, _MEMORY_MB),
    )


async def compiled(
    submission: Submission,
    backend: Sandboxes,
    argv: tuple[str, ...],
    files: Mapping[str, str],
    program: Program,
    tool: str = "",
    scripts: Scripts | None = None,
) -> Program | Judgement:
    """Return a program with the files from the compiler, or the judgement of a failed compilation.

    `tool`: name of the compiler in messages. `scripts`: of prepared files, used where the sandbox
    has them. Raises JudgeFailed without the compiler, and RunnerFailed.
    """
    prepared = None if scripts is None else scripts.folder
    job = message("compile", argv=argv, files=dict(files), prepared=prepared)
    limits, state = compiler_limits(submission.limits), submission.state
    ran = _as_compiler(
        await run(backend, job, limits, submission.environment, MAX_MADE_BYTES, state)
    )
    if ran.fault:  # no forgery: a compiler cannot write to the runner's channel
        raise RunnerFailed(f"while compiling:\n{ran.fault}")
    made, ran = ran.ended.stdout, _without_stdout(ran)
    if NOT_STARTED in ran.lines:
        raise JudgeFailed(f"the sandbox has no {tool or argv[0]}")
    limited = LIMITS.get(ran.ended.ending)
    if limited is not None:
        return ran.judgement(limited[0], message=f"while compiling: {limited[1]}")
    try:
        answer = loads(ran.lines[0]) if ran.lines else None
    except Malformed:
        answer = None
    match answer:
        case ["compiled", 0, [], bool()]:
            return ran.judgement("output_limit", message="what the compiler made is too large")
        case ["compiled", 0, list(sizes), bool(is_prepared)] if _add_up(sizes, len(made)):
            files_made = Made(tuple((path, size) for path, size in sizes), made)
            if scripts is not None and is_prepared:
                program = replace(program, argv=scripts.run(program.argv))
            return replace(program, made=files_made, compiling=ran.ended.usage)
        case ["compiled", 127, [], bool()]:
            raise JudgeFailed(f"{tool or argv[0]} does not work in the sandbox")
        case ["compiled", int(code), [], bool()] if code != 0:
            text = text_of(ran.ended.stderr)
            return ran.judgement("syntax_error", message=text[-4000:])
    verdict, text = of_silence(ran.ended)
    return ran.judgement(verdict, message=f"while compiling: {text}")


def _add_up(sizes: list[object], size_bytes: int) -> bool:
    """Return True for a list of [path, size in bytes] with this sum of sizes; the list is untrusted."""
    total = 0
    for each in sizes:
        match each:
            case [str(), int(size)] if size >= 0:
                total += size
            case _:
                return False
    return total == size_bytes


def _without_stdout(compiled: Run) -> Run:
    """Return the run without its stdout, which has only the compiler's files."""
    return replace(compiled, ended=replace(compiled.ended, stdout=b""))


def _as_compiler(compiled: Run) -> Run:
    """Return the run with its CPU time as a compiler's."""
    usage = compiled.ended.usage
    usage = replace(usage, compile_seconds=usage.cpu_seconds)
    return replace(compiled, ended=replace(compiled.ended, usage=usage))
