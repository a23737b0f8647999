"""The general path: the submission in one sandbox, the test code in another, and lines between them.

    room A: the submission  ◀── relayed lines ──▶  room B: setup and tests ──▶ reports to the judge

The tests hold stand-ins for the submission's names (`inside/room.py`). Room A never sees test code or
expected values; what it sends is data that room B distrusts. Room B is the trainer's own code, and runs
in a sandbox too.
"""

from __future__ import annotations

import ast
import asyncio
from dataclasses import dataclass, field
from typing import Any

from proctor_client.wire import AssertsGrader, Integrity, Verdict
from proctor_service.errors import InvalidTask, JudgeFailed
from proctor_service.inside.values import Malformed, loads
from proctor_service.judge import verdict as verdicts
from proctor_service.judge.frames import Raised, Said, understand
from proctor_service.judge.graders import answers
from proctor_service.judge.run import Run, begin, check_fit, message, python_message, room_for
from proctor_service.judge.separation import parse
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Backend, Job, Sandbox

_REPORT = b"!"  # said aside: the tests go on
# What the tests' room asks of its own accord, before it uses anything of the submission's.
_PREPARATIONS = (b'"names"', b'"imports"', b'"define"')


@dataclass(slots=True)
class _Reports:
    """What room B told the judge."""

    setup_failed: str | None = None
    outcomes: dict[int, tuple[str, str, dict[str, Any]]] = field(default_factory=dict)
    signals: list[str] = field(default_factory=list)
    objects_used: bool = False
    # Whether anything that the submission made has reached the tests.
    asked: bool = False
    done: bool = False

    def take(self, line: bytes) -> None:
        match loads(line):
            case ["setup_failed", str(text)]:
                self.setup_failed = text
            case ["test", int(index), str(outcome), str(text), dict(more)]:
                self.outcomes[index] = (outcome, text, more)
            case ["signals", list(names)]:
                self.signals = [str(name) for name in names]
            case ["done", dict(more)]:
                self.done = True
                self.objects_used = bool(more.get("objects"))

    def problem(self, index: int) -> Raised | None:
        """Why a test did not pass, or None when it did."""
        if index not in self.outcomes:
            return answers.NOT_REACHED
        outcome, text, more = self.outcomes[index]
        return None if outcome == "passed" else Raised(_verdict_of(outcome, more), text[:2000])


async def judge(submission: Submission, grader: AssertsGrader, backend: Backend) -> Judgement:
    """Runs the tests as they are. Raises InvalidTask when the setup fails by itself, and Unfit."""
    async with backend.lease(room_for(submission.limits, submission.state)) as room_a:
        job = Job(python_message(submission, "serve"), submission.limits, takes_turns=True)
        begin(room_a, job, submission.state)
        first = await room_a.receive()
        lines = () if first is None else (first,)
        heard = understand(lines)
        if not heard.loaded:
            if heard.forged:
                room_a.kill()
            room_a.hang_up()  # it is nobody else's turn
            finished = Run(lines, await room_a.ended(), room_a.id)
            check_fit(finished)
            return _not_loaded(finished, heard, len(grader.tests))
        async with backend.lease(submission.limits) as room_b:
            reports = await _converse(room_a, room_b, _tests_job(submission, grader))
            ended_b = await room_b.ended()
        room_a.kill()
        finished = Run((), await room_a.ended(), room_a.id)
    if reports.setup_failed is not None:
        raise InvalidTask(f"setup: {reports.setup_failed[:1000]}")
    tests_run = Run((), ended_b, room_a.id)
    return _conclude(finished, tests_run, reports, grader)


def _tests_job(submission: Submission, grader: AssertsGrader) -> Job:
    job = message(
        "tests",
        setup=grader.setup,
        tests=grader.tests,
        entry_point=grader.entry_point,
        imports=_imports(submission.source),
        reveal=grader.reveal,
    )
    return Job(job, submission.limits, takes_turns=True)


def _imports(source: str) -> list[str]:
    """The imports at the top level of the submission: names that tests may use without saying so."""
    try:
        body = parse(source, "submission").body
    except InvalidTask:
        return []
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    return [ast.unparse(node) for node in imports[:200]]


async def _converse(room_a: Sandbox, room_b: Sandbox, job: Job) -> _Reports:
    """Relays lines until the tests are done or their room is gone."""
    reports = _Reports()
    room_b.begin(job)

    async def from_a() -> None:
        while (line := await room_a.receive()) is not None:
            room_b.send(line + b"\n")
            await room_b.drain()  # a flood must not fill our memory, nor take the loop
        room_b.hang_up()

    relay = asyncio.create_task(from_a())
    try:
        while not reports.done and (line := await room_b.receive()) is not None:
            if not line.startswith(_REPORT):
                reports.asked |= not any(word in line[:40] for word in _PREPARATIONS)
                room_a.send(line + b"\n")
                await room_a.drain()
                continue
            try:
                reports.take(line[1:])
            except (Malformed, ValueError):
                break
    finally:
        relay.cancel()
        room_b.hang_up()  # what it does from now on, it does in its own time
    return reports


def _not_loaded(finished: Run, said: Said, total: int) -> Judgement:
    verdict, text = answers.verdict_of(finished, said, None)
    return finished.judgement(
        verdict, total=total, message=text, hack_signals=answers.signals(said, verdict)
    )


def _conclude(finished: Run, tests_run: Run, reports: _Reports, grader: AssertsGrader) -> Judgement:
    counted = answers.tally(
        (test[:300] if grader.reveal else f"test {index}", reports.problem(index))
        for index, test in enumerate(grader.tests)
    )
    verdict, message_text = _verdict(finished, tests_run, reports, counted.first)
    signals = list(dict.fromkeys(reports.signals))
    if verdict == "early_exit":
        signals.append("early_exit")
    integrity: Integrity = "in_process" if reports.objects_used else "separated"
    return finished.judgement(
        verdict,
        passed=counted.passed,
        total=counted.total,
        failures=counted.failures,
        message=message_text,
        integrity=integrity,
        hack_signals=tuple(signals),
        usage=finished.ended.usage + tests_run.ended.usage,
    )


def _verdict(
    finished: Run, tests_run: Run, reports: _Reports, first: Raised | None
) -> tuple[Verdict, str]:
    limited = verdicts.of_limit(finished.ended)
    if limited is not None:
        return limited
    if not reports.done:
        # The tests did not come to their end with this submission: asking it for ever is its doing.
        limited = verdicts.of_limit(tests_run.ended)
        if limited is not None:
            return limited
        if finished.ended.ending != "killed":
            return verdicts.of_silence(finished.ended)
        if reports.asked and tests_run.ended.ending in ("exited", "signalled"):
            # An interpreter only breaks down over what a submission answered.
            return "runtime_error", "the tests broke down over what the submission answered"
        how = f"{tests_run.ended.ending} ({tests_run.ended.exit_code})"
        raise JudgeFailed(f"the tests ended with no report: {how}")
    if first is None:
        return "passed", ""
    if finished.ended.ending != "killed" and first.summary == "not reached":
        return verdicts.of_silence(finished.ended)
    return first.verdict, first.summary


def _verdict_of(outcome: str, more: dict[str, Any]) -> Verdict:
    if outcome == "raised" and more.get("exit"):
        return "early_exit"
    if outcome == "raised" and more.get("names"):
        return verdicts.of_exception(more["names"])
    return "runtime_error" if outcome == "raised" else "failed"
