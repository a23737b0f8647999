"""`stdio`: runs of a program, each in a fresh sandbox, and their outputs.

`judge_cases` is the loop over the cases; a `CaseJudge` judges a single run. The core's compares the
output with the expected output.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from proctor_client.wire import MAX_FAILURES, Failure, StdioCase, StdioGrader, Verdict
from proctor_service.guest.command import NO_OUTPUT
from proctor_service.judge.graders.points import Points
from proctor_service.judge.graders.programs import Languages, Program, ended_well, prepared
from proctor_service.judge.rest import Wasted, left
from proctor_service.judge.run import LIMITS, Run, text_of
from proctor_service.judge.submission import GraderRules, Judgement, Submission
from proctor_service.judge.text import Closeness, Comparison
from proctor_service.sandbox.interface import Limits, Sandboxes, Usage

_STDOUT_AT_LEAST = 1 << 20
_STDOUT_TIMES = 4
_SHOWN_CHARACTERS = 200
_SHORT_BYTES = 32_768  # largest output compared in the event loop, in a few ms


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """Outcome of a run of a case. `score`: from 0 to 1, and 1 for a passed case alone.

    `lost_seconds`: excess time of the task's own program for this run's output.
    """

    finished: Run
    verdict: Verdict
    message: str = ""
    score: float = 0.0
    signals: tuple[str, ...] = ()
    lost_seconds: float = 0.0


class CaseJudge(Protocol):
    """Runs a program on a case, and judges the run."""

    async def __call__(self, program: Program, index: int, case: StdioCase) -> CaseOutcome: ...


class Compares(Protocol):
    """Tells whether an output equals the expected output."""

    def is_same(self, actual: str, expected: str) -> bool: ...

    def first_difference(self, actual: str, expected: str, *, reveal: bool = False) -> str: ...


def rules(languages: Languages) -> tuple[GraderRules, ...]:
    """Return the rules of `stdio` without programs of the task's author."""
    return (GraderRules("stdio", partial(judge_stdio, languages=languages)),)


async def judge_stdio(
    submission: Submission,
    grader: StdioGrader,
    backend: Sandboxes,
    languages: Languages,
) -> Judgement:
    """Judge each case by its expected output."""
    program = await prepared(submission, backend, languages)
    if isinstance(program, Judgement):
        return program
    comparison = Comparison(grader.compare, Closeness.of(grader.tolerance), grader.ignore_case)
    assert isinstance(grader.cases, list)
    by_output = ByOutput(backend, comparison, reveal=grader.reveal)
    return await judge_cases(program, grader, grader.cases, by_output)


async def judge_cases(
    program: Program, grader: StdioGrader, cases: Sequence[StdioCase], judge_case: CaseJudge
) -> Judgement:
    """Judge each case in a fresh sandbox, with its own limits of time.

    With the scoring `all`, no case runs after the first end by a limit. `wall_seconds` also bounds a
    total over all cases: their idle time, the CPU time of failed cases, and the lost seconds. Cases after
    this bound are left out. Otherwise a submission could fail slowly, outlast the deadline, and earn an
    error where a verdict is due. With `points`, cases without points still to earn are left out.
    """
    submission = program.submission
    counts = _CaseCounts(submission, program.compiling)
    points = Points(grader.subtasks, len(cases)) if submission.scoring == "points" else None
    limits = submission.limits
    for index, case in enumerate(cases):
        if points is not None and not points.may_earn(index):
            continue
        if limits is not program.submission.limits:
            program = replace(program, submission=replace(program.submission, limits=limits))
        is_decided = counts.first is not None and submission.scoring == "all"
        work = judge_case(program, index, case)
        outcome = await counts.wasted.in_time(work, is_decided=is_decided)
        if outcome is None:
            break
        limits = left(limits, outcome.finished.ended.usage)
        if points is not None:
            points.add(index, outcome.score)
        counts.add(index, outcome)
        if outcome.verdict != "passed" and counts.is_over(limits):
            break
    judgement = counts.judgement(len(cases))
    return judgement if points is None else replace(judgement, score=points.score)


class _CaseCounts:
    """Sums up the outcomes of cases."""

    def __init__(self, submission: Submission, usage: Usage) -> None:
        self.first: Judgement | None = None
        self.wasted = Wasted(submission)
        self._submission = submission
        self._usage = usage
        self._passed = 0
        self._failures: list[Failure] = []
        self._signals: dict[str, None] = {}
        self._seconds = 0.0  # wasted: idle time, and the CPU time of failed cases
        self._is_ended = False
        self._last: CaseOutcome | None = None

    def add(self, index: int, outcome: CaseOutcome) -> None:
        """Add the outcome of a case. Raises SandboxLost if the machine may be the cause of a failure."""
        finished, usage = outcome.finished, outcome.finished.ended.usage
        self._usage = self._usage + usage
        self._seconds += usage.idle_seconds
        if outcome.verdict == "passed":
            self._passed += 1
            self._last = outcome
            return
        finished.check_blame()
        self._signals.update(dict.fromkeys(outcome.signals))
        self.first = self.first or _cut(outcome, self._submission)
        if len(self._failures) < MAX_FAILURES:
            self._failures.append(
                Failure(index=index, test=f"case {index}", message=outcome.message)
            )
        self._seconds += usage.cpu_seconds + outcome.lost_seconds
        self.wasted.seconds += outcome.lost_seconds
        if finished.ended.ending in LIMITS:
            self.wasted.add(usage)
            self._is_ended = self._submission.scoring == "all"

    def is_over(self, limits: Limits) -> bool:
        """Return True if later cases do not run. `limits`: of the rest."""
        return self._is_ended or self._seconds > limits.wall_seconds or limits.are_used_up

    def judgement(self, total: int) -> Judgement:
        """Return the judgement of all cases."""
        first = self.first
        if first is None:
            assert self._last is not None
            first = _cut(self._last, self._submission)
        return replace(
            first,
            passed=self._passed,
            total=total,
            failures=tuple(self._failures),
            hack_signals=tuple(self._signals),
            usage=self._usage,
        )


class ByOutput:
    """Judges a run by its output."""

    def __init__(self, backend: Sandboxes, comparison: Compares, *, reveal: bool) -> None:
        self._backend = backend
        self._comparison = comparison
        self._reveal = reveal

    async def __call__(self, program: Program, index: int, case: StdioCase) -> CaseOutcome:
        """Run the program, and compare its output."""
        accepted = accepted_of(case)
        longest = max(len(each.encode("utf-8", "replace")) for each in accepted)
        keep = max(_STDOUT_AT_LEAST, _STDOUT_TIMES * longest)
        finished = await program.run(self._backend, program.job(case=case), keep)
        if len(finished.ended.stdout) <= _SHORT_BYTES:
            return self._outcome(finished, case, accepted)
        # in a thread, so the event loop stays free
        return await asyncio.to_thread(self._outcome, finished, case, accepted)

    def _outcome(self, finished: Run, case: StdioCase, accepted: Sequence[str]) -> CaseOutcome:
        """Return the outcome, with the difference from the first of several accepted outputs."""
        verdict, text = case_ended_well(finished, case)
        if verdict != "passed":
            return CaseOutcome(finished, verdict, text)
        actual = finished.ended.stdout.decode("utf-8", "replace")
        if any(self._comparison.is_same(actual, each) for each in accepted):
            return CaseOutcome(finished, "passed", score=1.0)
        text = self._comparison.first_difference(actual, accepted[0], reveal=self._reveal)
        return CaseOutcome(finished, "failed", text)


def accepted_of(case: StdioCase) -> Sequence[str]:
    """Return the accepted outputs of a case, if any."""
    if case.stdout is None:
        return []
    return [case.stdout] if isinstance(case.stdout, str) else case.stdout


def case_ended_well(finished: Run, case: StdioCase) -> tuple[Verdict, str]:
    """Return the verdict of a run before a look at its output."""
    verdict, text = ended_well(finished)
    if verdict != "passed":
        # In contests, an exit code other than 0 is a crash, for any output.
        return ("runtime_error" if verdict == "failed" else verdict), text
    if case.output_file is not None and NO_OUTPUT in finished.lines:
        return "failed", f"the program left no file {case.output_file[:_SHOWN_CHARACTERS]}"
    return "passed", ""


def _cut(outcome: CaseOutcome, submission: Submission) -> Judgement:
    """Return a judgement with stdout cut to its limit: comparing needs more output."""
    finished = outcome.finished
    room = submission.limits.output_kb << 10
    out = finished.ended.stdout
    return finished.judgement(
        outcome.verdict,
        message=outcome.message,
        stdout=text_of(out[:room]),
        truncated=finished.ended.truncated or len(out) > room,
    )
