"""`command` with a `runner`: tests by the tool of a language, with the number of executed tests.

The report of a run begins with a secret word; the launcher reads the word before the tests (`guest/
command.py`). Only a report with the word and with a passed test earns a reward. Tests and
submission share a process: `in_process`.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from proctor_client.wire import MAX_FAILURES, CommandGrader, Failure, Verdict
from proctor_service.codec.values import Malformed, loads
from proctor_service.errors import JudgeFailed
from proctor_service.features.languages.compilers import compiled
from proctor_service.features.languages.runner_tools import tool_for
from proctor_service.guest.command import MAX_END_BYTES, TOO_LONG
from proctor_service.judge.graders.programs import Program
from proctor_service.judge.run import FORGED, LIMITS, Run, of_silence, parsed
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes
from proctor_service.settings.languages import Language, within

_FEW_BYTES = 1 << 16  # largest report parsed on the event loop
_TOO_LONG = TOO_LONG.rstrip(b"\n")
_OUTCOMES = ("passed", "failed", "skipped")
_MISSING = "missing "
_SHOWN = 300


@dataclass(slots=True)
class Report:
    """Number of tests by outcome, the first failed ones, and the fault of report or run."""

    counts: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[int, str]] = field(default_factory=list)
    """Place and name of each of the first MAX_FAILURES failed tests."""
    wrong: tuple[Verdict, str] | None = None
    forged: bool = False

    def add(self, outcome: str, name: str) -> None:
        """Add a test; an unknown outcome is a failed test."""
        outcome = outcome if outcome in _OUTCOMES else "failed"
        if outcome == "failed" and len(self.failed) < MAX_FAILURES:
            self.failed.append((self.counts.total(), name))
        self.counts[outcome] += 1


async def judge_runner(
    submission: Submission,
    grader: CommandGrader,
    backend: Sandboxes,
    languages: Mapping[str, Language],
) -> Judgement:
    """Judge by a tool's tests. Raises JudgeFailed without the tool, and InvalidTask without tests."""
    assert grader.runner is not None
    source = None if submission.state is not None else submission.source
    tool = tool_for(grader.runner, source, grader.files, submission.files, languages)
    program: Program | Judgement = Program(submission, tool.runs[0], tool.files, has_launcher=True)
    assert isinstance(program, Program)
    if tool.compile is not None:
        program = await compiled(submission, backend, tool.compile, tool.files, program, tool.tool)
    if isinstance(program, Judgement):
        return _hidden(program, grader)
    report = Report()
    usage = program.compiling
    for argv in tool.runs:
        word = secrets.token_hex(16)
        step = replace(program, argv=within(argv, submission.limits.memory_mb))
        finished = await step.run(backend, step.job(end=word))
        usage = usage + finished.ended.usage
        failed = report.counts["failed"]
        read = partial(_read, finished, word, report, tool.tool)
        await parsed(finished, _FEW_BYTES, read)
        if report.wrong is not None or report.counts["failed"] > failed:
            finished.check_blame()
        if report.wrong is not None:
            break
    judgement = _judgement(finished, report, grader)
    return _hidden(replace(judgement, usage=usage), grader)


def _read(finished: Run, word: str, report: Report, tool: str) -> None:
    """Add the tests of a run to the report. Raises JudgeFailed if the sandbox lacks the tool."""
    limited = LIMITS.get(finished.ended.ending)
    if limited is not None:
        report.wrong = limited
        return
    if finished.lines == (_TOO_LONG,):
        report.wrong = "output_limit", f"the report of the tests is above {MAX_END_BYTES >> 20} MB"
        return
    reached = _reached(finished.lines)
    first, ended, rest = reached.partition("\n")
    if first == word and rest.startswith(_MISSING):
        raise JudgeFailed(f"the sandbox has no {tool}")
    if first == word and ended and finished.ended.exit_code == 0:
        for line in filter(None, rest.split("\n")):
            outcome, _, name = line.partition(" ")
            report.add(outcome, name)
        return
    report.forged = bool(reached) and first != word
    if finished.ended.exit_code is None:
        report.wrong = of_silence(finished.ended)
    elif finished.ended.exit_code == 0:
        report.wrong = "early_exit", "the program left before the tests had finished"
    else:
        code = finished.ended.exit_code
        report.wrong = "runtime_error", f"the tests ended with code {code}, without a report"


def _reached(lines: Sequence[bytes]) -> str:
    """Return the launcher's text at its end, or an empty text."""
    try:
        match list(map(loads, lines)):
            case [["reached", str(text)]]:
                return text
    except Malformed:
        pass
    return ""


def _judgement(finished: Run, report: Report, grader: CommandGrader) -> Judgement:
    passed, failed = report.counts["passed"], report.counts["failed"]
    verdict: tuple[Verdict, str] = "passed", ""
    if report.wrong is not None:
        verdict = report.wrong
    elif failed:
        verdict = "failed", f"{failed} of {passed + failed} tests failed"
    elif not passed:
        verdict = "failed", "no test ran"
    failures = [
        Failure(index=index, test=_shown(name, grader), message="failed")
        for index, name in report.failed
    ]
    signals = {FORGED: report.forged, "early_exit": verdict[0] == "early_exit"}
    return finished.judgement(
        verdict[0],
        passed=passed if report.wrong is None else 0,
        total=max(passed + failed, 1),
        failures=tuple(failures),
        message=verdict[1],
        integrity="in_process",
        hack_signals=tuple(name for name, was in signals.items() if was),
    )


def _shown(name: str, grader: CommandGrader) -> str:
    """Return a test's name; without `reveal`, cut before its parameters, which may be expected values."""
    return (name if grader.reveal else name.partition("(")[0].partition("[")[0])[:_SHOWN]


def _hidden(judgement: Judgement, grader: CommandGrader) -> Judgement:
    """Return a judgement without the output of the tests, unless the grader has `reveal`."""
    if grader.reveal:
        return judgement
    message = judgement.message
    if judgement.verdict == "syntax_error":  # the compiler may quote the tests
        message = "the program does not compile with its tests"
    return replace(judgement, stdout="", stderr="", message=message)
