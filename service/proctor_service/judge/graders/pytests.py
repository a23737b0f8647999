"""`pytest`: test files that import the submission as the module `solution`.

Tests and submission share a process here, so the result is `in_process`.
"""

from __future__ import annotations

from proctor_client.wire import MAX_FAILURES, Failure, PytestGrader, Verdict
from proctor_service.inside.values import Malformed, loads
from proctor_service.judge import verdict as verdicts
from proctor_service.judge.frames import FORGED
from proctor_service.judge.run import Run, message, run
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Backend

_FINISHED_WELL = (0, 1)  # pytest's own exit codes: all passed, some failed


async def judge(submission: Submission, grader: PytestGrader, backend: Backend) -> Judgement:
    """Judges in one sandbox; the grader's files go over whatever the submission brings."""
    job = message(
        "pytest",
        source=submission.source,
        files=dict(submission.files),
        tests=grader.files,
        tools=backend.traits.tools,
    )
    finished = await run(backend, job, submission.limits)
    report = _read(finished)
    failed = [(name, text) for name, outcome, text in report.tests if outcome == "failed"]
    counted = [outcome for _, outcome, _ in report.tests if outcome != "excused"]
    verdict, text = _verdict(finished, report, len(failed), len(counted))
    return finished.judgement(
        verdict,
        passed=len(counted) - len(failed),
        total=max(len(counted), report.collected - len(report.tests) + len(counted), 1),
        failures=tuple(
            Failure(index=index, test=name, message=message_text if grader.reveal else "")
            for index, (name, message_text) in enumerate(failed[:MAX_FAILURES])
        ),
        message=text,
        stdout=verdicts.text_of(finished.ended.stdout) if grader.reveal else "",
        integrity="in_process",
        hack_signals=_signals(report, verdict),
    )


class _Report:
    """What the runner said: how many tests, how each went, and pytest's exit code."""

    def __init__(self) -> None:
        self.collected = 0
        self.tests: list[tuple[str, str, str]] = []
        self.status: int | None = None
        self.forged = False


def _read(finished: Run) -> _Report:
    report = _Report()
    for line in finished.lines:
        try:
            frame = loads(line)
        except Malformed:
            frame = None
        match frame:
            case ["collected", int(count)] if report.collected == 0 and report.status is None:
                report.collected = count
            case ["test", str(name), "passed" | "failed" | "excused" as outcome, str(text)] if (
                report.status is None
            ):
                report.tests.append((name, outcome, text))
            case ["finished", int(status)] if report.status is None:
                report.status = status
            case _:
                report.forged = True
    return report


def _verdict(finished: Run, report: _Report, failed: int, counted: int) -> tuple[Verdict, str]:
    limited = verdicts.of_limit(finished.ended)
    if limited is not None:
        return limited
    if report.status is None:
        if finished.ended.signal is not None:
            return verdicts.of_silence(finished.ended)
        return "early_exit", "the program left before pytest had finished"
    if report.forged or (report.status == 0 and finished.ended.exit_code != 0):
        return "failed", "the test report is not the runner's own"
    if report.status not in _FINISHED_WELL or report.collected == 0:
        return "runtime_error", f"pytest ended with code {report.status}"
    if failed or report.status != 0:
        return "failed", f"{failed} of {counted} tests failed"
    if counted == 0 or len(report.tests) < report.collected:
        return "failed", "no test ran" if counted == 0 else "not every test ran"
    return "passed", ""


def _signals(report: _Report, verdict: Verdict) -> tuple[str, ...]:
    found = [FORGED] if report.forged else []
    return (*found, "early_exit") if verdict == "early_exit" else tuple(found)
