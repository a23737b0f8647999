"""`asserts`, judged apart by a test sandbox: the submission in one sandbox, the test code in another.

    submission sandbox  ◀── relayed lines ──▶  test sandbox: setup and tests ──▶ reports to judge

The two sandboxes talk by calls, and only data cross (`guest/separated/`). The submission's sandbox never
sees test code or expected values. The test sandbox isolates the trainer's own code.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace
from typing import Any

from proctor_client.wire import AssertsGrader, Verdict
from proctor_service.codec.values import Malformed, loads
from proctor_service.errors import InvalidTask, JudgeFailed
from proctor_service.guest.channel import BEGAN
from proctor_service.judge.analysis.levels import Analysis
from proctor_service.judge.run import (
    LIMITS,
    NOT_REACHED,
    OBJECT_FOR_DATA,
    Raised,
    Run,
    begin,
    check_outcome,
    conclude,
    count_tests,
    message,
    of_exception,
    of_silence,
    opening,
    python_message,
    room_for,
    text_of,
    understand,
)
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Ended, GuestMessage, Sandbox, Sandboxes

log = logging.getLogger(__name__)

_REPORT = b"!"  # prefix of an out-of-band message: the tests continue without a reply
_FAILURES = (b'["broken",', b'["unfit",')
"""Beginnings of our runner's last line. Once asked, the submission may be the cause."""


@dataclass(slots=True)
class _Reports:
    """Reports from the test sandbox. `relayed`: true once a line went to the submission."""

    setup_failed: str | None = None
    outcomes: dict[int, tuple[str, str, dict[str, Any]]] = field(default_factory=dict)
    broken: str | None = None
    relayed: bool = False
    done: bool = False

    def add_line(self, line: bytes) -> None:
        """Record a report. Raises Malformed or ValueError for an invalid line."""
        match loads(line):
            case ["setup_failed", str(text)]:
                self.setup_failed = text
            case ["broken", str(text)]:
                self.broken = text
            case ["test", int(index), str(outcome), str(text), dict(more)]:
                self.outcomes[index] = (outcome, text, more)
            case ["done"]:
                self.done = True

    def problem(self, index: int) -> Raised | None:
        """Return the problem of a failed test; None for a passed test."""
        if index not in self.outcomes:
            return NOT_REACHED
        outcome, text, more = self.outcomes[index]
        if outcome == "passed":
            return None
        signal = OBJECT_FOR_DATA if outcome == "refused" else ""
        return Raised(_verdict_of(outcome, more), text[:2000], signal=signal)


async def judge(
    submission: Submission, grader: AssertsGrader, backend: Sandboxes, analysis: Analysis
) -> Judgement:
    """Run the tests in their own sandbox.

    Raises InvalidTask when the setup fails by itself, JudgeFailed when the test runner crashes, and Unfit.
    """
    limits = room_for(submission.limits, submission.state)
    environment = submission.environment
    async with backend.lease(limits, environment) as submission_sandbox:
        serve = python_message(
            submission, "serve", setup=analysis.setup[0], records=sorted(analysis.records)
        )
        message = GuestMessage(serve, submission.limits, takes_turns=True)
        begin(submission_sandbox, message, submission.state)
        lines = await opening(submission_sandbox)
        heard = understand(lines[1:])
        if not heard.loaded:
            if heard.forged:
                submission_sandbox.kill()
            submission_sandbox.hang_up()  # the program gets no further messages
            ended = await submission_sandbox.ended()
            finished = check_outcome(Run(lines, ended, submission_sandbox.id))
            judgement = conclude(finished, heard, [])
            return replace(judgement, total=len(grader.tests))
        async with backend.lease(submission.limits, environment) as test_sandbox:
            tests_message = GuestMessage(
                _message(analysis, grader), submission.limits, takes_turns=True
            )
            submission_sandbox.begin_test()
            reports = await _converse(submission_sandbox, test_sandbox, tests_message)
            tests_ended = await test_sandbox.ended()
        submission_sandbox.kill()
        finished = Run((), await submission_sandbox.ended(), submission_sandbox.id)
    _check_task(reports)
    return _conclude(finished, tests_ended, reports, grader, analysis)


def _message(analysis: Analysis, grader: AssertsGrader) -> bytes:
    return message(
        "tests",
        setup=analysis.setup,
        tests=[{"source": test.source, "run": test.run} for test in analysis.tests],
        names=sorted(analysis.names.submission),
        fresh=sorted(analysis.names.fresh),
        records=sorted(analysis.records),
        reveal=grader.reveal,
        constant_calls=analysis.constant_calls,
    )


async def _converse(submission: Sandbox, tests: Sandbox, message: GuestMessage) -> _Reports:
    """Relay lines until the tests are done or the test sandbox ends.

    With each report of a test, both sandboxes begin another test.
    """
    reports = _Reports()
    tests.begin(message)

    async def relay_answers() -> None:
        while (line := await submission.receive()) is not None:
            tests.send(line + b"\n")
            await tests.drain()  # bounds memory and keeps the loop free during a flood
        tests.hang_up()

    relay = asyncio.create_task(relay_answers())
    try:
        while not reports.done and (line := await tests.receive()) is not None:
            if line.startswith(BEGAN):
                continue
            if not line.startswith(_REPORT):
                if not reports.relayed and line.startswith(_FAILURES):
                    reports.broken = text_of(line)
                    break
                reports.relayed = True
                submission.send(line + b"\n")
                await submission.drain()
                continue
            try:
                reports.add_line(line[1:])
            except (Malformed, ValueError):
                break
            for sandbox in (submission, tests):
                sandbox.begin_test()
    finally:
        relay.cancel()
        tests.hang_up()  # from here on, idle time counts as the test program's own
    return reports


def _check_task(reports: _Reports) -> None:
    if reports.broken is not None:
        log.error("the test runner broke down:\n%s", reports.broken[:20_000])
        raise JudgeFailed("the test runner broke down; the service's log has the traceback")
    if reports.setup_failed is not None:
        raise InvalidTask(f"setup: {reports.setup_failed[:1000]}")


def _conclude(
    finished: Run, tests_ended: Ended, reports: _Reports, grader: AssertsGrader, analysis: Analysis
) -> Judgement:
    counted = count_tests(
        (test[:300] if grader.reveal else f"test {index}", reports.problem(index))
        for index, test in enumerate(grader.tests)
    )
    verdict, text = _verdict(finished, tests_ended, reports, counted.first)
    # The submission may print its arguments, and these may reveal expected values.
    shown = grader.reveal or analysis.constant_calls
    output: dict[str, object] = {} if shown else {"stdout": "", "stderr": ""}
    return finished.judgement(
        verdict,
        passed=counted.passed,
        total=counted.total,
        failures=counted.failures,
        message=text,
        hack_signals=(
            *(("early_exit",) if verdict == "early_exit" else ()),
            *sorted(counted.signals),
        ),
        usage=finished.ended.usage + tests_ended.usage,
        limited=_limited(finished, tests_ended, reports),
        **output,
    )


def _limited(finished: Run, tests_ended: Ended, reports: _Reports) -> int | None:
    """Return the place of the test in which a limit ended a sandbox, else None.

    Of an ended submission, the tests still report the test of the last call.
    """
    if finished.ended.ending in LIMITS:
        return max(reports.outcomes, default=None)
    if tests_ended.ending in LIMITS and not reports.done:
        return len(reports.outcomes)
    return None


def _verdict(
    finished: Run, tests_ended: Ended, reports: _Reports, first: Raised | None
) -> tuple[Verdict, str]:
    limited = LIMITS.get(finished.ended.ending)
    if limited is not None:
        return limited
    if not reports.done:
        # The tests did not finish: the submission is responsible for the resources they used.
        limited = LIMITS.get(tests_ended.ending)
        if limited is not None:
            return limited
        if finished.ended.ending != "killed":
            return of_silence(finished.ended)
        if reports.relayed and tests_ended.ending in ("exited", "signalled"):
            # The test interpreter only crashes because of the submission's answers.
            return "runtime_error", "the tests broke down over what the submission answered"
        how = f"{tests_ended.ending} ({tests_ended.exit_code})"
        raise JudgeFailed(f"the tests ended with no report: {how}")
    if first is None:
        return "passed", ""
    if finished.ended.ending != "killed" and first.summary == NOT_REACHED.summary:
        return of_silence(finished.ended)
    return first.verdict, first.summary


def _verdict_of(outcome: str, more: dict[str, Any]) -> Verdict:
    if outcome == "left":
        return "early_exit" if more.get("exit") else "runtime_error"
    if outcome == "raised" and more.get("names"):
        return of_exception(more["names"])
    return "runtime_error" if outcome == "raised" else "failed"
