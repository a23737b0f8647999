"""Programs made by a compiler in a sandbox of its own, for the sandboxes in which they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from proctor_service.codec.values import Malformed, loads
from proctor_service.errors import JudgeFailed
from proctor_service.guest.command import MAX_MADE_BYTES
from proctor_service.judge.graders.programs import NOT_STARTED, Made, Program
from proctor_service.judge.run import LIMITS, Run, RunnerFailed, message, of_silence, run, text_of
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Limits, Sandboxes

_PROCESSES = 64  # at once, at least
_SECONDS = 30.0  # at least, of CPU time and of waiting
_MEMORY_MB = 512  # at least


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
) -> Program | Judgement:
    """Return a program with the files from the compiler, or the judgement of a failed compilation.

    `tool`: name of the compiler in messages. Raises JudgeFailed without the compiler, and
    RunnerFailed.
    """
    job = message("compile", argv=argv, files=dict(files))
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
        case ["compiled", 0, []]:
            return ran.judgement("output_limit", message="what the compiler made is too large")
        case ["compiled", 0, list(sizes)] if _add_up(sizes, len(made)):
            files_made = Made(tuple((path, size) for path, size in sizes), made)
            return replace(program, made=files_made, compiling=ran.ended.usage)
        case ["compiled", 127, []]:
            raise JudgeFailed(f"{tool or argv[0]} does not work in the sandbox")
        case ["compiled", int(code), []] if code != 0:
            text = text_of(ran.ended.stderr)
            return ran.judgement("syntax_error", message=text[-4000:])
    verdict, text = of_silence(ran.ended)
    return ran.judgement(verdict, message=f"while compiling: {text}")


def _add_up(sizes: list[object], size_bytes: int) -> bool:
    """Return True for a list of [path, size in bytes] whose sizes are this sum; they are untrusted."""
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
