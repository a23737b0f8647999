"""`exec`, `stdio` and `command`: whole programs, in Python or in another language (`Languages`).

A Python program runs as a script in the warm interpreter. A program in another language is compiled
once, in its own sandbox; the binaries then run in a fresh sandbox for each case.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from proctor_client.wire import (
    MAX_FAILURES,
    CommandGrader,
    ExecGrader,
    Failure,
    PytestGrader,
    StdioCase,
    StdioGrader,
    Verdict,
)
from proctor_service.errors import JudgeFailed
from proctor_service.guest.command import NO_OUTPUT
from proctor_service.judge.control.expectations import Tests
from proctor_service.judge.control.graders import of_exec, of_pytest
from proctor_service.judge.graders.in_process import judge_pytest
from proctor_service.judge.python_source import joined
from proctor_service.judge.rest import Wasted, left
from proctor_service.judge.run import (
    LIMITS,
    Run,
    evidence,
    message,
    of_silence,
    python_message,
    run,
    text_of,
    understand,
    with_files,
)
from proctor_service.judge.submission import Control, GraderRules, Judgement, Submission
from proctor_service.judge.text import Closeness, Comparison
from proctor_service.sandbox.interface import Sandboxes, Usage
from proctor_service.settings.languages import PYTHON

NOT_STARTED = b'["not started"]'  # a started program cannot report this
_NO_CASE = StdioCase(stdout="")
_STDOUT_AT_LEAST = 1 << 20
_STDOUT_TIMES = 4
_SHOWN_CHARACTERS = 200
_LEFT = "the program left before its end"
_LEFT_TESTS = (
    "the program exited before the end of its tests; an exit of the tests themselves is early, too"
)
_TEST_FILE = re.compile(r"\b(?:tests|launcher|program)\b")  # "tests.go:3: f is undefined"
_SHORT_BYTES = 32_768  # largest output compared in the event loop, in a few ms


@dataclass(frozen=True, slots=True)
class Parts:
    """Sources of a program: each a whole text in the grader's language."""

    setup: str
    completion: str
    tests: str


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
        fields: dict[str, object] = {"stdin": case.stdin}
        if case.output_file is not None:
            fields["output_file"] = case.output_file
        if self.argv is None and self.parts is not None:
            source = joined(self.parts.setup, self.parts.completion)
            submission = replace(self.submission, source=source)
            return python_message(submission, "tested", tests=self.parts.tests, end=end)
        if self.argv is None:
            submission = self.submission
            if case.files:
                submission = replace(submission, files={**submission.files, **case.files})
            return python_message(submission, "script", argv=case.argv, end=end, **fields)
        return message(
            "command",
            argv=(*self.argv, *case.argv),
            files={**(self.files or {}), **case.files},
            binaries=self.made.sizes,
            end=end if self.has_launcher else "",
            **fields,
        )

    @property
    def proves_end(self) -> bool:
        """True if the program reports the word at its end."""
        return self.argv is None or self.has_launcher

    async def run(self, backend: Sandboxes, job: bytes, keep_stdout_bytes: int = 0) -> Run:
        """Run the program once. Raises JudgeFailed if the sandbox lacks its interpreter."""
        environment = self.submission.environment
        limits, state = self.submission.limits, self.submission.state
        finished = await run(
            backend,
            job,
            limits,
            environment,
            keep_stdout_bytes,
            state,
            self.made.data,
        )
        if self.argv is not None and "/" not in self.argv[0] and NOT_STARTED in finished.lines:
            raise JudgeFailed(f"the sandbox has no {self.argv[0]}")
        return finished


class Languages(Protocol):
    """Languages other than Python: programs in them, and the runners of their tests."""

    def file_of(self, submission: Submission) -> tuple[str, str]:
        """Return name and text of the file that has a submission's source; in Python, too."""

    async def prepared(
        self, submission: Submission, backend: Sandboxes, parts: Parts | None
    ) -> Program | Judgement:
        """Return a runnable program, or the judgement of a failed compilation.

        `parts`: the sources of a program whose tests are apart.
        """

    async def judge_runner(
        self, submission: Submission, grader: CommandGrader, backend: Sandboxes
    ) -> Judgement:
        """Judge by a tool's tests. Raises JudgeFailed without the tool, and InvalidTask without tests."""

    def tests(self, grader: ExecGrader | CommandGrader, language: str) -> Tests | None:
        """Return the tests whose expected values a negative control can change, if there are some."""


def rules(languages: Languages) -> tuple[GraderRules, ...]:
    """Return the rules of `exec`, `stdio` and `command`."""

    def exec_control(grader: ExecGrader) -> Control | None:
        def tests(source: str, language: str) -> Tests | None:
            is_python = language == PYTHON
            return of_exec(grader, source) if is_python else languages.tests(grader, language)

        return tests if grader.tests else None

    def command_control(grader: CommandGrader) -> Control | None:
        if grader.runner == "pytest":
            return partial(of_pytest, grader)
        return (
            None if grader.runner is None else lambda _, language: languages.tests(grader, language)
        )

    return (
        GraderRules("exec", partial(judge_exec, languages=languages), control=exec_control),
        GraderRules("stdio", partial(judge_stdio, languages=languages)),
        GraderRules(
            "command", partial(judge_command, languages=languages), control=command_control
        ),
    )


async def judge_exec(
    submission: Submission,
    grader: ExecGrader,
    backend: Sandboxes,
    languages: Languages,
) -> Judgement:
    """Judge a program by its exit: the program must reach its end, with code 0.

    With `empty_stderr` the program must also leave stderr empty.
    """
    parts = None
    if grader.setup or grader.tests:
        parts = Parts(grader.setup, submission.source, grader.tests)
    program = await prepared(submission, backend, languages, parts)
    if isinstance(program, Judgement):
        return program if parts is None or grader.reveal else _without_tests(program)
    end = secrets.token_hex(16)
    finished = await program.run(backend, program.job(end=end))
    verdict, text = ended_well(finished)
    more: dict[str, object] = {}
    if program.proves_end:
        messages = understand(finished.lines)
        proof = end if program.argv is None else f"{end}\n"  # a launcher's file, changed by it
        messages.forged = messages.forged or messages.reached not in (None, proof)
        if verdict == "passed" and (messages.forged or messages.reached is None):
            verdict, text = "early_exit", _LEFT if parts is None else _LEFT_TESTS
        more = evidence(finished, messages, verdict)
        if program.argv is not None:
            more["unreported"] = ""  # its launcher runs beside the submission
    if verdict == "passed" and grader.empty_stderr and finished.ended.stderr:
        verdict, text = "failed", "the program wrote to stderr"
    judgement = finished.judgement(
        verdict,
        passed=int(verdict == "passed"),
        total=1,
        message=text,
        integrity="in_process",
        **more,
    )
    judgement = replace(judgement, usage=program.compiling + judgement.usage)
    return judgement if parts is None or grader.reveal else _without_tests(judgement)


async def judge_stdio(
    submission: Submission,
    grader: StdioGrader,
    backend: Sandboxes,
    languages: Languages,
) -> Judgement:
    """Judge each case in a fresh sandbox, with its own limits of time.

    With the scoring `all`, no case runs after the first end by a limit. `wall_seconds` also
    bounds a total over all cases: their idle time plus the CPU time of failed cases. Cases after this
    bound do not run. Otherwise a submission could fail slowly, outlast the deadline, and earn an error
    where a verdict is due.
    """
    program = await prepared(submission, backend, languages)
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
        if finished.ended.ending in LIMITS:
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
    languages: Languages,
) -> Judgement:
    """Run the command beside the submission's source; its exit code must be the expected code.

    With a `runner`, the tests of the tool must pass.
    """
    if grader.runner == "pytest":
        by_pytest = PytestGrader(kind="pytest", files=grader.files, reveal=grader.reveal)
        return await judge_pytest(submission, by_pytest, backend)
    if grader.runner is not None:
        return await languages.judge_runner(submission, grader, backend)
    name, source = languages.file_of(submission)
    files = {**with_files(submission, name, source), **grader.files}
    job = message("command", argv=grader.argv, files=files)
    finished = await run(
        backend,
        job,
        submission.limits,
        submission.environment,
        state=submission.state,
    )
    verdict, text = ended_well(finished, grader.expect_exit_code, "failed")
    return finished.judgement(
        verdict, passed=int(verdict == "passed"), total=1, message=text, integrity="in_process"
    )


async def prepared(
    submission: Submission, backend: Sandboxes, languages: Languages, parts: Parts | None = None
) -> Program | Judgement:
    """Return a runnable program, or the judgement of a failed compilation."""
    if submission.language == PYTHON:
        return Program(submission, parts=parts)
    return await languages.prepared(submission, backend, parts)


def _without_tests(judgement: Judgement) -> Judgement:
    """Return a judgement without output, and without parts of its message: both may show the tests.

    Of an exception only the class remains, and nothing of a compiler's message about the tests.
    """
    message = judgement.message
    if judgement.verdict == "syntax_error" and _TEST_FILE.search(message):
        message = "the program does not compile with its tests"
    elif judgement.verdict in ("failed", "runtime_error") and not message.startswith("the program"):
        message = message.strip().rpartition("\n")[2].partition(":")[0]
    return replace(judgement, stdout="", stderr="", message=message)


def ended_well(
    finished: Run, expected_code: int = 0, otherwise: Verdict = "runtime_error"
) -> tuple[Verdict, str]:
    """Return the verdict of a run; `otherwise` is the verdict for an unexpected exit code."""
    limited = LIMITS.get(finished.ended.ending)
    if limited is not None:
        return limited
    messages = understand(finished.lines)
    code = finished.ended.exit_code
    if code == expected_code:
        return "passed", ""
    if messages.stopped is not None and messages.stopped.verdict != "early_exit":
        return messages.stopped.verdict, messages.stopped.traceback or messages.stopped.summary
    if code is None:
        return of_silence(finished.ended)
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
    verdict, text = ended_well(finished)
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
