"""`exec` and `command`: whole programs, in Python or in another language (`Languages`).

A Python program runs as a script in the warm interpreter. A program in another language is compiled
once, in its own sandbox; the binaries then run in a fresh sandbox each time.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from proctor_client.wire import (
    CommandGrader,
    ExecGrader,
    PytestGrader,
    StdioCase,
    Verdict,
)
from proctor_service.errors import JudgeFailed
from proctor_service.judge.control.expectations import Tests
from proctor_service.judge.control.graders import of_exec, of_pytest
from proctor_service.judge.graders.in_process import judge_pytest
from proctor_service.judge.python_source import joined
from proctor_service.judge.run import (
    LIMITS,
    Run,
    evidence,
    message,
    of_silence,
    python_message,
    run,
    understand,
    with_files,
)
from proctor_service.judge.submission import Control, GraderRules, Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes, Usage
from proctor_service.settings.languages import PYTHON

NOT_STARTED = b'["not started"]'  # a started program cannot report this
_NO_CASE = StdioCase(stdout="")
_LEFT = "the program left before its end"
_LEFT_TESTS = (
    "the program exited before the end of its tests; an exit of the tests themselves is early, too"
)
_TEST_FILE = re.compile(r"\b(?:tests|launcher|program)\b")  # "tests.go:3: f is undefined"


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
        """Return the message to start the program, with the input of a case.

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

    def job_with(
        self,
        argv: Sequence[str],
        files: Mapping[str, bytes],
        stdin_file: str | None = None,
        *,
        interactive: bool = False,
    ) -> tuple[bytes, bytes]:
        """Return the message to start the program with these files, and the bytes behind the message.

        `stdin_file`: the file for its standard input, if any. `interactive`: its standard input and
        output are pipes to the service (`guest/interaction.py`).
        """
        sizes = [*self.made.sizes, *((path, len(data)) for path, data in files.items())]
        fields: dict[str, object] = {"binaries": sizes}
        if stdin_file is not None:
            fields["stdin_file"] = stdin_file
        if interactive:
            fields["interactive"] = True
        if self.argv is None:
            line = python_message(self.submission, "script", argv=list(argv), **fields)
        else:
            whole = (*self.argv, *argv)
            line = message("command", argv=whole, files=dict(self.files or {}), **fields)
        return line, b"".join((self.made.data, *files.values()))

    @property
    def proves_end(self) -> bool:
        """True if the program reports the word at its end."""
        return self.argv is None or self.has_launcher

    async def run(
        self,
        backend: Sandboxes,
        job: bytes,
        keep_stdout_bytes: int = 0,
        data: bytes | None = None,
    ) -> Run:
        """Run the program once. Raises JudgeFailed if the sandbox lacks its interpreter.

        `data`: the bytes behind the job, as from `job_with`; by default the compiler's files.
        """
        environment = self.submission.environment
        limits, state = self.submission.limits, self.submission.state
        finished = await run(
            backend,
            job,
            limits,
            environment,
            keep_stdout_bytes,
            state,
            self.made.data if data is None else data,
        )
        self.check_start(finished)
        return finished

    def check_start(self, finished: Run) -> None:
        """Raise JudgeFailed if the sandbox lacks the program's interpreter."""
        if self.argv is not None and NOT_STARTED in finished.lines:
            program = self.argv[0]
            if "/" not in program or program.startswith("/"):  # a compiler makes "./solution"
                raise JudgeFailed(f"the sandbox has no {program}")


class Languages(Protocol):
    """Languages other than Python: programs in them, and the runners of their tests."""

    def file_of(self, submission: Submission) -> tuple[str, str]:
        """Return name and text of the file with a submission's source; in Python, too."""

    async def prepared(
        self, submission: Submission, backend: Sandboxes, parts: Parts | None
    ) -> Program | Judgement:
        """Return a runnable program, or the judgement of a failed compilation.

        `parts`: the sources of a program with tests apart.
        """

    async def judge_runner(
        self, submission: Submission, grader: CommandGrader, backend: Sandboxes
    ) -> Judgement:
        """Judge by a tool's tests. Raises JudgeFailed without the tool, and InvalidTask without tests."""

    def tests(self, grader: ExecGrader | CommandGrader, language: str) -> Tests | None:
        """Return the tests with expected values to change in a negative control, if any."""


def rules(languages: Languages) -> tuple[GraderRules, ...]:
    """Return the rules of `exec` and `command`."""

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

    Of an exception only the class remains; a compiler's message about the tests is left out.
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
