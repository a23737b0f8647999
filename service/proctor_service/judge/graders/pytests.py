"""`pytest`: test files that import the submission as the module `solution`.

Tests and submission share a process here, so the result is `in_process`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from proctor_client.wire import MAX_FAILURES, Failure, PytestGrader, Verdict
from proctor_service.errors import JudgeFailed
from proctor_service.inside.values import Malformed, loads
from proctor_service.judge import verdict as verdicts
from proctor_service.judge.frames import FORGED
from proctor_service.judge.run import Run, message, run
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Backend

PATCHED = "harness_patched"
_FINISHED_WELL = (0, 1)  # pytest's own exit codes: all passed, some failed


async def judge(submission: Submission, grader: PytestGrader, backend: Backend) -> Judgement:
    """Judges in one sandbox; the grader's files go over whatever the submission brings.

    Raises JudgeFailed when the sandbox has no pytest.
    """
    word, end = secrets.token_hex(16), secrets.token_hex(16)
    from_state = submission.state is not None and not submission.source
    job = message(
        "pytest",
        source=None if from_state else submission.source,
        files=dict(submission.files),
        tests=grader.files,
        tools=backend.traits.tools,
        word=word,
        end=end,
    )
    finished = await run(backend, job, submission.limits, state=submission.state)
    report = _read(finished, word, end, reveal=grader.reveal)
    failed = [(name, text) for name, outcome, text in report.tests if outcome == "failed"]
    counted = [outcome for _, outcome, _ in report.tests if outcome != "excused"]
    verdict, text = _verdict(finished, report, len(failed), len(counted))
    shown: dict[str, object] = {} if grader.reveal else {"stdout": "", "stderr": ""}
    return finished.judgement(
        verdict,
        # What passes where the runner or its report is not ours has passed nothing.
        passed=0 if report.patched or report.forged else len(counted) - len(failed),
        total=max(len(counted), report.collected - len(report.tests) + len(counted), 1),
        failures=tuple(
            Failure(index=index, test=name, message=message_text)
            for index, (name, message_text) in enumerate(failed[:MAX_FAILURES])
        ),
        message=text,
        integrity="in_process",
        hack_signals=_signals(report, verdict),
        **shown,
    )


@dataclass(slots=True)
class _Report:
    """What the runner said: how many tests, how each went, and pytest's exit code."""

    collected: int = 0
    tests: list[tuple[str, str, str]] = field(default_factory=list)
    status: int | None = None
    syntax: str | None = None
    broken: str | None = None
    left: bool = False
    patched: str | None = None
    lied: bool = False
    forged: bool = False


def _read(finished: Run, word: str, end: str, *, reveal: bool) -> _Report:
    """Understands the runner's lines. What a test holds is left out unless it is to be revealed."""
    report = _Report()
    for number, line in enumerate(finished.lines):
        try:
            said, *frame = loads(line)
        except (Malformed, TypeError, ValueError):
            said, frame = None, []
        if said != word or report.status is not None:
            report.forged = True
            continue
        match frame:
            case ["collected", int(count)] if not report.collected:
                report.collected = count
            case ["test", str(name), "passed" | "failed" | "excused" as outcome, str(a), str(b)]:
                shown = (
                    name if reveal else name.partition("[")[0]
                )  # parameters may be expected values
                report.tests.append((shown, outcome, b if reveal else a))
            case ["finished", str(proof), int(status)] if proof == end:
                report.status = status
            case ["syntax", str(text)]:
                report.syntax = text
            case ["broken", str(a), str(b)]:
                report.broken = report.broken or (b if reveal else a)
            case ["left"]:
                report.left = True
            case ["patched", str(what)]:
                report.patched = what
            case ["lied"]:
                report.lied = True
            case ["ready"] if number == 0:
                pass
            case ["no pytest", str(text)] if number == 0:
                raise JudgeFailed(f"the sandbox has no pytest: {text}")
            case _:
                report.forged = True
    return report


def _verdict(finished: Run, report: _Report, failed: int, counted: int) -> tuple[Verdict, str]:
    limited = verdicts.of_limit(finished.ended)
    if limited is not None:
        return limited
    if report.syntax is not None:
        return "syntax_error", f"SyntaxError: {report.syntax}"
    if report.left or (report.status is None and finished.ended.exit_code is not None):
        return "early_exit", "the program left before pytest had finished"
    if report.status is None:
        return verdicts.of_silence(finished.ended)
    if report.patched is not None:
        return "failed", f"what runs the tests was replaced: {report.patched}"
    if report.forged or report.status != finished.ended.exit_code:
        return "failed", "the test report is not the runner's own"
    if report.lied:
        return "failed", "an object says that it equals whatever it is compared with"
    if report.broken is not None:
        return "runtime_error", f"the tests can't be collected: {report.broken}"
    if report.status not in _FINISHED_WELL or report.collected == 0:
        return "runtime_error", f"pytest ended with code {report.status}"
    if failed or report.status != 0:
        return "failed", f"{failed} of {counted} tests failed"
    if counted == 0 or len(report.tests) < report.collected:
        return "failed", "no test ran" if counted == 0 else "not every test ran"
    return "passed", ""


def _signals(report: _Report, verdict: Verdict) -> tuple[str, ...]:
    tried = {
        FORGED: report.forged,
        PATCHED: report.patched is not None,
        "lying_equality": report.lied,
        "early_exit": verdict == "early_exit",
    }
    return tuple(name for name, was in tried.items() if was)
