"""Checkers: a program of the task's author says whether an output is right.

A checker runs in a sandbox of its own, after the submission has ended, with the input of the case, the
output and the answer as files. First the checker judges the case's own answer, once for a task: rejecting
this answer is an InvalidTask. A checker's failure on the output of a submission alone counts as a
rejection.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from types import MappingProxyType

from proctor_client.wire import Checker, Interactor, StdioCase, StdioGrader
from proctor_service.errors import InvalidTask
from proctor_service.features.verifiers.author_programs import (
    AuthorPrograms,
    Finished,
    digest_of,
)
from proctor_service.judge.graders.programs import Program
from proctor_service.judge.graders.stdio import CaseOutcome, accepted_of, case_ended_well
from proctor_service.judge.run import text_of
from proctor_service.judge.stored_results import StoredResults
from proctor_service.judge.submission import Submission
from proctor_service.sandbox.interface import Sandboxes

CHECKER_FAILED = "checker_failed"
"""Hack signal of an output on which the task's own program failed."""
INPUT, OUTPUT, ANSWER = "case/input", "case/output", "case/answer"
FEEDBACK = "case/feedback/"
MESSAGES = f"{FEEDBACK}judgemessage.txt"
_MOST_OUTPUT_BYTES = 16 << 20
_TIMES_ANSWER = 4
_LONGEST_SCORE_BYTES = 1000
_POINTS = re.compile(r"points\s+([0-9.eE+-]{1,40})(?:\s|$)")  # "points 0.5 half of the edges"
_NUMBER = re.compile(r"\s*[+-]?[0-9.eE+-]{1,40}\s*", re.A)
"""A score, and only white space beside the number: `0.25` and a line break."""
_ICPC = MappingProxyType({42: 1.0, 43: 0.0})
_TESTLIB = MappingProxyType({0: 1.0, 1: 0.0, 2: 0.0, 4: 0.0, 8: 0.0})
"""Scores by exit code: of testlib.h _ok, _wa, _pe, _dirt and _unexpected_eof."""
_SHOWN_CHARACTERS = 300
REJECTED = "the checker rejects the output"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of a checker. `score`: from 0 to 1; None after a failure of the checker itself.

    `lost_seconds`: of a rejecting checker, as in `Finished`.
    """

    score: float | None
    text: str = ""
    lost_seconds: float = 0.0


def result_of(program: Checker | Interactor, finished: Finished) -> CheckResult:
    """Return the result of a finished checker or interactor, by its convention."""
    result = _verdict_of(program, finished)
    return result if result.score == 1 else replace(result, lost_seconds=finished.lost_seconds)


def _verdict_of(program: Checker | Interactor, finished: Finished) -> CheckResult:
    if program.convention == "open_r1":
        return _printed_score(finished)
    code = finished.exit_code
    scores = _ICPC if program.convention == "icpc" else _TESTLIB
    if code is not None and code in scores:
        return CheckResult(scores[code], _line(finished.stderr))
    if code == 7 and program.convention == "testlib":
        return _points(finished, program.max_points)
    return _failed(finished)


def _failed(finished: Finished) -> CheckResult:
    return CheckResult(None, finished.how_it_ended())


def _printed_score(finished: Finished) -> CheckResult:
    stdout = finished.run.ended.stdout  # may be cut
    is_short = finished.exit_code == 0 and len(stdout) <= _LONGEST_SCORE_BYTES
    found = _NUMBER.fullmatch(text_of(stdout)) if is_short else None
    score = _number(found[0]) if found else math.nan
    if 0 <= score <= 1:
        return CheckResult(abs(score), _line(finished.stderr))
    return _failed(finished)


def _points(finished: Finished, max_points: float) -> CheckResult:
    """Return the score of `quitp` of testlib: `points 0.5 text` on standard error."""
    found = _POINTS.match(finished.stderr)
    points = _number(found[1]) if found else math.nan
    if not 0 <= points <= max_points:
        return _failed(finished)
    return CheckResult(abs(points) / max_points, _line(finished.stderr))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _line(text: str) -> str:
    return " ".join(text.split())[:_SHOWN_CHARACTERS]


def input_of(case: StdioCase) -> bytes:
    """Return the input of a case: its stdin, or of a case without stdin its only file."""
    text = case.stdin
    if not text and len(case.files) == 1:
        [text] = case.files.values()
    return text.encode("utf-8", "surrogatepass")


class ByChecker:
    """Judges a run by a checker. `accepted`: problems with the tasks' own answers, None for a right answer.

    `digest`: of the grader.
    """

    def __init__(
        self,
        programs: AuthorPrograms,
        accepted: StoredResults[str | None],
        checker: Checker,
        digest: bytes,
        task: Submission,
        grader: StdioGrader,
        backend: Sandboxes,
    ) -> None:
        self._programs = programs
        self._accepted = accepted
        self._checker = checker
        self._task = task
        self._grader = grader
        self._backend = backend
        self._digest = digest
        self._program: Program | None = None

    async def __call__(self, program: Program, index: int, case: StdioCase) -> CaseOutcome:
        """Run the program, and have its output checked. Raises InvalidTask."""
        await self._check_answer(index, case)
        answers = accepted_of(case)
        longest = max((len(each) for each in answers), default=0)
        keep = max(_MOST_OUTPUT_BYTES, _TIMES_ANSWER * longest)
        finished = await program.run(self._backend, program.job(case=case), keep)
        verdict, text = case_ended_well(finished, case)
        if verdict != "passed":
            return CaseOutcome(finished, verdict, text)
        if len(finished.ended.stdout) >= keep:
            return CaseOutcome(finished, "failed", "the output is longer than a checker reads")
        result = await self._checked_output(case, finished.ended.stdout)
        shown = f": {result.text}" if result.text and self._grader.reveal else ""
        if result.score is None:
            text = f"the checker failed on the output{shown}"
            signals = (CHECKER_FAILED,)
            return CaseOutcome(
                finished, "failed", text, signals=signals, lost_seconds=result.lost_seconds
            )
        if result.score == 1:
            return CaseOutcome(finished, "passed", score=1.0)
        text, lost_seconds = f"{REJECTED}{shown}", result.lost_seconds
        return CaseOutcome(finished, "failed", text, result.score, lost_seconds=lost_seconds)

    async def _check_answer(self, index: int, case: StdioCase) -> None:
        """Raise InvalidTask if the checker rejects an answer of the case itself."""
        for place, answer in enumerate(accepted_of(case)):
            key = digest_of(self._digest, repr(self._task.limits), f"{index} {place}")

            async def make(answer: str = answer) -> str | None:
                result = await self._checked(case, answer.encode("utf-8", "surrogatepass"))
                if result.score == 1:
                    return None
                how = "failed" if result.score is None else "does not accept it"
                return f"the checker {how}: {result.text}" if result.text else f"the checker {how}"

            problem = await self._accepted.once(key, make)
            if problem is not None:
                raise InvalidTask(f"checker: the answer of case {index}: {problem}")

    async def _checked_output(self, case: StdioCase, output: bytes) -> CheckResult:
        """Return the checker's result for the output of a submission."""
        try:
            return await self._checked(case, output)
        except InvalidTask:  # its files find no room, which the size of the output may cause
            await self._checked(case, b"")
            return CheckResult(None, "the output finds no room in its sandbox")

    async def _checked(self, case: StdioCase, output: bytes) -> CheckResult:
        """Return the checker's result for an output. Raises SandboxLost if the result is uncertain."""
        checker = self._checker
        if self._program is None:
            self._program = await self._programs.prepared(
                "checker", checker, self._task, self._backend
            )
        answer = next(iter(accepted_of(case)), "").encode("utf-8", "surrogatepass")
        files = {INPUT: input_of(case), OUTPUT: output, ANSWER: answer}
        stdin_file = None
        if checker.convention == "icpc":
            paths = [INPUT, ANSWER, FEEDBACK]
            files[MESSAGES] = b""
            stdin_file = OUTPUT
        elif checker.convention == "open_r1":
            paths = [INPUT, ANSWER, OUTPUT]
        else:
            paths = [INPUT, OUTPUT, ANSWER]
        finished = await self._programs.run(
            "checker", self._program, self._backend, [*paths, *checker.argv], files, stdin_file
        )
        result = result_of(checker, finished)
        if result.score != 1:
            finished.run.check_blame()
        return result
