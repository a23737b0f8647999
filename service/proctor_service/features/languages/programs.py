"""`exec`, `stdio` and `command`: whole programs, in Python or in another language.

A Python program runs as a script in the warm interpreter. A program in another language is compiled
once, in its own sandbox; the binaries then run in a fresh sandbox for each case.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from proctor_client.wire import (
    MAX_FAILURES,
    CommandGrader,
    ExecGrader,
    Failure,
    StdioCase,
    StdioGrader,
    Verdict,
)
from proctor_service.codec.values import Malformed, loads
from proctor_service.errors import JudgeFailed
from proctor_service.features.languages.compilers import Compilers, compiler_limits
from proctor_service.features.languages.joining import joined
from proctor_service.guest.command import MAX_MADE_BYTES, NO_OUTPUT
from proctor_service.judge import verdict as verdicts
from proctor_service.judge.graders.separate_tests import Arranged, Parts, arranged, without_tests
from proctor_service.judge.rest import Wasted, left
from proctor_service.judge.run import (
    Run,
    RunnerFailed,
    message,
    python_message,
    run,
    text_of,
    with_files,
)
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.judge.text import Closeness, Comparison
from proctor_service.judge.verdict import understand
from proctor_service.sandbox.interface import Sandboxes, Usage
from proctor_service.settings.languages import Language

NOT_STARTED = b'["not started"]'  # a started program cannot report this
_NO_CASE = StdioCase(stdout="")
_STDOUT_AT_LEAST = 1 << 20
_STDOUT_TIMES = 4
_SHOWN_CHARACTERS = 200
_LEFT = "the program left before its end"
_LEFT_TESTS = (
    "the program exited before the end of its tests; an exit of the tests themselves is early, too"
)
_SHORT_BYTES = 32_768  # largest output compared in the event loop, in a few ms


@dataclass(frozen=True, slots=True)
class Made:
    """Files made by a compiler: path and size in bytes of each, and the bytes of all in this order."""

    sizes: tuple[tuple[str, int], ...] = ()
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Program:
    """A submission ready to run: as a script, or as a command with its files."""

    submission: Submission
    argv: tuple[str, ...] | None = None
    files: Mapping[str, str] | None = None
    made: Made = Made()
    compiling: Usage = field(default_factory=Usage)
    parts: Parts | None = None
    has_launcher: bool = False

    def job(self, end: str = "", case: StdioCase = _NO_CASE) -> bytes:
        """Return the message that starts the program, with the input of a case.

        A script, and a program with its tests apart, reports `end` at its end.
        """
        given: dict[str, object] = {"stdin": case.stdin}
        if case.output_file is not None:
            given["output_file"] = case.output_file
        if self.argv is None and self.parts is not None:
            source = joined("python", self.parts.setup, self.parts.completion)
            submission = replace(self.submission, source=source)
            return python_message(submission, "tested", tests=self.parts.tests, end=end)
        if self.argv is None:
            submission = self.submission
            if case.files:
                submission = replace(submission, files={**submission.files, **case.files})
            return python_message(submission, "script", argv=case.argv, end=end, **given)
        return message(
            "command",
            argv=(*self.argv, *case.argv),
            files={**(self.files or {}), **case.files},
            binaries=self.made.sizes,
            end=end if self.has_launcher else "",
            **given,
        )

    @property
    def proves_end(self) -> bool:
        """True if the program reports the word at its end."""
        return self.argv is None or self.has_launcher

    async def run(self, backend: Sandboxes, job: bytes, keep_stdout_bytes: int = 0) -> Run:
        """Run the program once. Raises JudgeFailed if the sandbox lacks its interpreter."""
        environment = self.submission.environment
        limits, state = self.submission.limits, self.submission.state
        is_script = self.argv is None
        finished = await run(
            backend,
            job,
            limits,
            environment,
            keep_stdout_bytes,
            state,
            is_script,
            self.made.data,
        )
        if self.argv is not None and "/" not in self.argv[0] and NOT_STARTED in finished.lines:
            raise JudgeFailed(f"the sandbox has no {self.argv[0]}")
        return finished


async def judge_exec(
    submission: Submission,
    grader: ExecGrader,
    backend: Sandboxes,
    compilers: Compilers,
) -> Judgement:
    """Judge a program by its exit: the program must reach its end, with code 0.

    With `empty_stderr` the program must also leave stderr empty.
    """
    parts = None
    if grader.setup or grader.tests:
        parts = Parts(grader.setup, submission.source, grader.tests)
    program = await prepare(submission, backend, compilers, parts)
    if isinstance(program, Judgement):
        return program if parts is None or grader.reveal else without_tests(program)
    end = secrets.token_hex(16)
    finished = await program.run(backend, program.job(end=end))
    verdict, text = _ended_well(finished)
    evidence: dict[str, object] = {}
    if program.proves_end:
        said = understand(finished.lines)
        proof = end if program.argv is None else f"{end}\n"  # a launcher's file, changed by it
        said.forged = said.forged or said.reached not in (None, proof)
        if verdict == "passed" and (said.forged or said.reached is None):
            verdict, text = "early_exit", _LEFT if parts is None else _LEFT_TESTS
        evidence = verdicts.evidence(finished, said, verdict)
        if program.argv is not None:
            evidence["unreported"] = ""  # its launcher runs beside the submission
    if verdict == "passed" and grader.empty_stderr and finished.ended.stderr:
        verdict, text = "failed", "the program wrote to stderr"
    judgement = finished.judgement(
        verdict,
        passed=int(verdict == "passed"),
        total=1,
        message=text,
        integrity="in_process",
        **evidence,
    )
    judgement = replace(judgement, usage=program.compiling + judgement.usage)
    return judgement if parts is None or grader.reveal else without_tests(judgement)


async def judge_stdio(
    submission: Submission,
    grader: StdioGrader,
    backend: Sandboxes,
    compilers: Compilers,
) -> Judgement:
    """Judge each case in a fresh sandbox, with its own limits of time.

    With the scoring `all`, no case runs after the first one that a limit ended. `wall_seconds` also
    bounds a total over all cases: their idle time plus the CPU time of failed cases. Cases after this
    bound do not run. Otherwise a submission could fail slowly, outlast the deadline, and earn an error
    where a verdict is due.
    """
    program = await prepare(submission, backend, compilers)
    if isinstance(program, Judgement):
        return program
    comparison = Comparison(grader.compare, Closeness.of(grader.tolerance), grader.ignore_case)
    passed = 0
    failures: list[Failure] = []
    usage = program.compiling
    wasted, limited = 0.0, Wasted(submission)
    limits = submission.limits
    first: Judgement | None = None
    for index, case in enumerate(grader.cases):
        accepted = [case.stdout] if isinstance(case.stdout, str) else case.stdout
        longest = max(len(each.encode("utf-8", "replace")) for each in accepted)
        keep = max(_STDOUT_AT_LEAST, _STDOUT_TIMES * longest)
        if limits is not program.submission.limits:
            program = replace(program, submission=replace(program.submission, limits=limits))
        work = program.run(backend, program.job(case=case), keep)
        is_decided = first is not None and submission.scoring == "all"
        ran = await limited.in_time(work, is_decided=is_decided)
        if ran is None:
            break
        finished = ran
        limits = left(limits, finished.ended.usage)
        judged = partial(_judge_case, finished, case, accepted, comparison, reveal=grader.reveal)
        usage = usage + finished.ended.usage
        if len(finished.ended.stdout) <= _SHORT_BYTES:
            verdict, text = judged()
        else:  # in a thread, so the event loop stays free
            verdict, text = await asyncio.to_thread(judged)
        wasted += finished.ended.usage.idle_seconds
        if verdict == "passed":
            passed += 1
            last = finished
            continue
        finished.check_blame()
        first = first or _cut(finished, submission, verdict, text)
        if len(failures) < MAX_FAILURES:
            failures.append(Failure(index=index, test=f"case {index}", message=text))
        wasted += finished.ended.usage.cpu_seconds
        if finished.ended.ending in verdicts.LIMITS:
            limited.add(finished.ended.usage)
            if submission.scoring == "all":
                break
        if wasted > limits.wall_seconds or limits.are_used_up:
            break
    if first is None:
        first = _cut(last, submission, "passed", "")
    return replace(
        first, passed=passed, total=len(grader.cases), failures=tuple(failures), usage=usage
    )


async def judge_command(
    submission: Submission,
    grader: CommandGrader,
    backend: Sandboxes,
    languages: Mapping[str, Language],
) -> Judgement:
    """Run the command beside the submission's source; its exit code must be the expected code."""
    language = languages.get(submission.language)
    name, source = "solution.py", submission.source
    if language is not None:
        name, source = language.for_source(source).source, language.whole(source)
    files = {**with_files(submission, name, source), **grader.files}
    job = message("command", argv=grader.argv, files=files)
    finished = await run(
        backend,
        job,
        submission.limits,
        submission.environment,
        state=submission.state,
        says_began=False,
    )
    verdict, text = _ended_well(finished, grader.expect_exit_code, "failed")
    return finished.judgement(
        verdict, passed=int(verdict == "passed"), total=1, message=text, integrity="in_process"
    )


async def prepare(
    submission: Submission,
    backend: Sandboxes,
    compilers: Compilers,
    parts: Parts | None = None,
) -> Program | Judgement:
    """Return a runnable program, or the judgement of a failed compilation.

    `parts`: the sources of a program whose tests are apart.
    """
    if submission.language == "python":
        return Program(submission, parts=parts)
    language = await compilers.language_of(submission, backend)
    if parts is not None:
        found = arranged(language, parts)
        files = {**submission.files, **found.files}
    else:
        language = language.for_source(submission.source)
        files = with_files(submission, language.source, language.whole(submission.source))
        found = Arranged(language.compile, language.run, files)
    if found.compile is None:
        return Program(submission, found.run, files, has_launcher=parts is not None)
    beside = {**submission.files, **found.beside}
    return await compiled(
        submission,
        backend,
        found.compile,
        files,
        Program(submission, found.run, beside, has_launcher=parts is not None),
    )


async def compiled(
    submission: Submission,
    backend: Sandboxes,
    argv: tuple[str, ...],
    files: Mapping[str, str],
    program: Program,
    tool: str = "",
) -> Program | Judgement:
    """Return a program with the files that a compiler made, or the judgement of a failed compilation.

    `tool`: name of the compiler in messages. Raises JudgeFailed without the compiler, and
    RunnerFailed.
    """
    job = message("compile", argv=argv, files=dict(files))
    limits, environment = compiler_limits(submission.limits), submission.environment
    ran = _as_compiler(
        await run(backend, job, limits, environment, MAX_MADE_BYTES, submission.state)
    )
    if ran.fault:  # no forgery: a compiler cannot write to the runner's channel
        raise RunnerFailed(f"while compiling:\n{ran.fault}")
    made, ran = ran.ended.stdout, _without_stdout(ran)
    if NOT_STARTED in ran.lines:
        raise JudgeFailed(f"the sandbox has no {tool or argv[0]}")
    limited = verdicts.LIMITS.get(ran.ended.ending)
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
    verdict, text = verdicts.of_silence(ran.ended)
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
    """Return the run without its stdout, which has only the files that were made."""
    return replace(compiled, ended=replace(compiled.ended, stdout=b""))


def _as_compiler(compiled: Run) -> Run:
    """Return the run with its CPU time as that of a compiler."""
    usage = compiled.ended.usage
    usage = replace(usage, compile_seconds=usage.cpu_seconds)
    return replace(compiled, ended=replace(compiled.ended, usage=usage))


def _ended_well(
    finished: Run, expected_code: int = 0, otherwise: Verdict = "runtime_error"
) -> tuple[Verdict, str]:
    """Return the verdict of a run; `otherwise` is the verdict for an unexpected exit code."""
    limited = verdicts.LIMITS.get(finished.ended.ending)
    if limited is not None:
        return limited
    said = understand(finished.lines)
    code = finished.ended.exit_code
    if code == expected_code:
        return "passed", ""
    if said.stopped is not None and said.stopped.verdict != "early_exit":
        return said.stopped.verdict, said.stopped.traceback or said.stopped.summary
    if code is None:
        return verdicts.of_silence(finished.ended)
    if NOT_STARTED in finished.lines:
        return "runtime_error", "the command was not found"
    return otherwise, f"the program ended with code {code}"


def _judge_case(
    finished: Run,
    case: StdioCase,
    accepted: Sequence[str],
    comparison: Comparison,
    *,
    reveal: bool,
) -> tuple[Verdict, str]:
    """Return the verdict of a case, and the difference from the first of several accepted outputs."""
    verdict, text = _ended_well(finished)
    if verdict != "passed":
        # In contests, an exit code other than 0 is a crash, for any output.
        return ("runtime_error" if verdict == "failed" else verdict), text
    if case.output_file is not None and NO_OUTPUT in finished.lines:
        return "failed", f"the program left no file {case.output_file[:_SHOWN_CHARACTERS]}"
    actual = finished.ended.stdout.decode("utf-8", "replace")
    if any(comparison.is_same(actual, each) for each in accepted):
        return "passed", ""
    return "failed", comparison.first_difference(actual, accepted[0], reveal=reveal)


def _cut(finished: Run, submission: Submission, verdict: Verdict, text: str) -> Judgement:
    """Return a judgement with stdout cut to its limit: comparing needs more output."""
    room = submission.limits.output_kb << 10
    out = finished.ended.stdout
    return finished.judgement(
        verdict,
        message=text,
        stdout=text_of(out[:room]),
        truncated=finished.ended.truncated or len(out) > room,
    )
