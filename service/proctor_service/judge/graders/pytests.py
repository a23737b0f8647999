"""`pytest`: test files that import the submission as the module `solution`.

Tests and submission share a process, so the result is `in_process`.
"""

from __future__ import annotations

import secrets

from proctor_client.wire import MAX_FAILURES, Failure, PytestGrader, Verdict
from proctor_service.judge.graders import reports
from proctor_service.judge.run import Run, message, run
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Backend

_FINISHED_WELL = (0, 1)  # pytest's exit codes: all tests passed, some tests failed


async def judge(submission: Submission, grader: PytestGrader, backend: Backend) -> Judgement:
    """Judge in one sandbox; the grader's files overwrite the submission's files."""
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
    report = reports.read(finished, word, end, reveal=grader.reveal)
    failed = [(name, text) for name, outcome, text in report.tests if outcome == "failed"]
    counted = [outcome for _, outcome, _ in report.tests if outcome != "excused"]
    verdict, text = _verdict(finished, report, len(failed), len(counted))
    shown: dict[str, object] = {} if grader.reveal else {"stdout": "", "stderr": ""}
    return finished.judgement(
        verdict,
        # A replaced runner or a forged report proves nothing, so no test counts as passed.
        passed=0 if report.patched or report.forged else len(counted) - len(failed),
        total=max(len(counted), report.collected - len(report.tests) + len(counted), 1),
        failures=tuple(
            Failure(index=index, test=name, message=message_text)
            for index, (name, message_text) in enumerate(failed[:MAX_FAILURES])
        ),
        message=text,
        integrity="in_process",
        hack_signals=reports.signals(report, verdict),
        unreported=reports.unreported(finished, report),
        **shown,
    )


def _verdict(
    finished: Run, report: reports.Report, failed: int, counted: int
) -> tuple[Verdict, str]:
    found = reports.verdict_of(finished, report)
    if found is not None:
        return found
    if report.broken is not None:
        return "runtime_error", f"the tests can't be collected: {report.broken}"
    if report.status not in _FINISHED_WELL or report.collected == 0:
        return "runtime_error", f"pytest ended with code {report.status}"
    if failed or report.status != 0:
        return "failed", f"{failed} of {counted} tests failed"
    if counted == 0 or len(report.tests) < report.collected:
        return "failed", "no test ran" if counted == 0 else "not every test ran"
    return "passed", ""
