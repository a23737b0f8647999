"""`asserts` at the level `shared`: test code in the submission's own interpreter.

What the tests see are the submission's real objects, so whatever plain Python can test is tested. The
submission can see the tests as well: the result is `in_process`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from proctor_client.wire import MAX_FAILURES, AssertsGrader, Failure, Verdict
from proctor_service.judge.analysis.levels import TestSource
from proctor_service.judge.graders import reports
from proctor_service.judge.run import Run, message, run
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Backend

_VERDICTS: dict[str, Verdict] = {
    "failed": "failed",
    "raised": "runtime_error",
    "exit": "early_exit",
}
_SHOWN = 300


async def judge(
    submission: Submission, grader: AssertsGrader, backend: Backend, tests: Sequence[TestSource]
) -> Judgement:
    """Judges in one sandbox. Raises InvalidTask when the tests are no Python, or need what is not there."""
    word, end = secrets.token_hex(16), secrets.token_hex(16)
    job = message(
        "shared",
        source=submission.source,
        files=dict(submission.files),
        setup=grader.setup,
        tests=[{"source": test.source, "run": test.run} for test in tests],
        tools=backend.traits.tools,
        word=word,
        end=end,
    )
    finished = await run(backend, job, submission.limits, state=submission.state)
    report = reports.read(finished, word, end, reveal=grader.reveal)
    outcomes = _outcomes(report, len(tests))
    verdict, text = _verdict(finished, report, outcomes)
    failed = [index for index, (outcome, _) in enumerate(outcomes) if outcome != "passed"]
    shown: dict[str, object] = {} if grader.reveal else {"stdout": "", "stderr": ""}
    return finished.judgement(
        verdict,
        # What passes where the runner or its report is not ours has passed nothing.
        passed=0 if report.patched or report.forged else len(tests) - len(failed),
        total=len(tests),
        failures=tuple(
            Failure(
                index=index,
                test=tests[index].source[:_SHOWN] if grader.reveal else f"test {index}",
                message=outcomes[index][1],
            )
            for index in failed[:MAX_FAILURES]
        ),
        message=text,
        integrity="in_process",
        hack_signals=reports.signals(report, verdict),
        unreported=reports.unreported(finished, report),
        **shown,
    )


def _outcomes(report: reports.Report, total: int) -> list[tuple[str, str]]:
    """The outcome of each test and its text. A test that is told twice, or is none, is a forgery."""
    told: dict[str, tuple[str, str]] = {}
    known = {str(index) for index in range(total)}
    for name, outcome, text in report.tests:
        if name in told or name not in known:
            report.forged = True
        told.setdefault(name, (outcome, text))
    return [told.get(str(index), ("failed", "not reached")) for index in range(total)]


def _verdict(
    finished: Run, report: reports.Report, outcomes: Sequence[tuple[str, str]]
) -> tuple[Verdict, str]:
    found = reports.verdict_of(finished, report)
    if found is not None:
        return found
    for outcome, text in outcomes:
        if outcome != "passed":
            return _VERDICTS.get(outcome, "failed"), text or "a test failed"
    if report.status != 0 or not outcomes:
        return "failed", "no test ran" if not outcomes else "a test failed"
    return "passed", ""
