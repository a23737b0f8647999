"""Interactors: a program of the task's author talks to the submission, and judges the talk."""

from __future__ import annotations

from dataclasses import replace

from proctor_client.wire import Interactor, StdioCase, StdioGrader, Verdict
from proctor_service.errors import InvalidTask
from proctor_service.features.verifiers.author_programs import AuthorPrograms, Finished
from proctor_service.features.verifiers.checkers import (
    ANSWER,
    CHECKER_FAILED,
    FEEDBACK,
    INPUT,
    MESSAGES,
    OUTPUT,
    CheckResult,
    result_of,
)
from proctor_service.features.verifiers.pairs import Wanted
from proctor_service.features.verifiers.talk import Talk, TalkEnd
from proctor_service.judge.graders.programs import Program, ended_well
from proctor_service.judge.graders.stdio import CaseOutcome, accepted_of
from proctor_service.judge.run import Run, room_for
from proctor_service.judge.submission import Submission
from proctor_service.sandbox.interface import Limits, Sandboxes

DEADLOCK = "deadlock: the program waits for input, and the interactor waits for its output"
SILENCE = "silence: the program said nothing for longer than it may"
FLOOD = "flood: the program says more than it may"
EARLY_END = "early end: the program ended while the interactor waited for more"
_REJECTED = "the interactor rejects what the program said"
_FAILED = "the interactor failed on what the program said"


class ByInteractor:
    """Judges a run by the task's interactor."""

    def __init__(
        self,
        programs: AuthorPrograms,
        interactor: Interactor,
        task: Submission,
        grader: StdioGrader,
        backend: Sandboxes,
    ) -> None:
        self._programs = programs
        self._rules = interactor
        self._task = task
        self._grader = grader
        self._backend = backend

    async def __call__(self, program: Program, index: int, case: StdioCase) -> CaseOutcome:
        """Run both programs, and judge how their talk ended. Raises InvalidTask."""
        interactor = await self._programs.prepared(
            "interactor", self._rules, self._task, self._backend
        )
        state = program.submission.state
        limits = with_relay(program.submission.limits)
        its_limits = with_relay(interactor.submission.limits)
        first = Wanted(room_for(limits, state), program.submission.environment)
        second = Wanted(its_limits, interactor.submission.environment)
        files = {path: _bytes(text) for path, text in case.files.items()}
        job, data = program.job_with(case.argv, files, interactive=True)
        its_job, its_data = self._job(interactor, case)
        async with self._programs.pairs.pair(self._backend, first, second) as sandboxes:
            talk = Talk(*sandboxes, self._result_of, limits.output_kb << 10, limits.wall_seconds)
            talk.interactor.begin(its_job, its_limits, its_data)
            talk.submission.begin(job, limits, data, state)
            end = await talk.finished()
        program.check_start(end.submission)
        interactor.check_start(end.interactor)
        return outcome_of(end, index, limits, reveal=self._grader.reveal)

    def _job(self, interactor: Program, case: StdioCase) -> tuple[bytes, bytes]:
        answer = next(iter(accepted_of(case)), "")
        files = {INPUT: _bytes(case.stdin), ANSWER: _bytes(answer)}
        paths = [INPUT, OUTPUT, ANSWER]
        if self._rules.convention == "icpc":
            paths = [INPUT, ANSWER, FEEDBACK]
            files[MESSAGES] = b""
        return interactor.job_with([*paths, *self._rules.argv], files, interactive=True)

    def _result_of(self, finished: Run) -> CheckResult:
        return result_of(self._rules, Finished(finished))


def outcome_of(end: TalkEnd, index: int, limits: Limits, *, reveal: bool) -> CaseOutcome:
    """Return the outcome of a talk. `limits`: of the submission.

    Raises InvalidTask, and SandboxLost where a failure is uncertain.
    """
    run, result = end.submission, end.result
    if result is None or run.ended.ending == "output_limit":
        return CaseOutcome(run, *_own_verdict(end, limits))
    if result.score != 1:
        end.interactor.check_blame()
    if not result.score and end.is_early:
        verdict, text = _own_verdict(end, limits)
        if verdict == "passed":
            verdict, text = "early_exit", EARLY_END
        return CaseOutcome(run, verdict, text)
    if not result.score and not end.has_seen:
        how = "failed" if result.score is None else "rejects the program"
        raise InvalidTask(
            f"interactor: case {index}: it {how} before it has read anything: {result.text}"
        )
    shown = f": {result.text}" if result.text and reveal else ""
    lost_seconds = result.lost_seconds
    if result.score is None:
        text, signals = f"{_FAILED}{shown}", (CHECKER_FAILED,)
        return CaseOutcome(run, "failed", text, signals=signals, lost_seconds=lost_seconds)
    if result.score == 0:
        return CaseOutcome(run, "failed", f"{_REJECTED}{shown}", lost_seconds=lost_seconds)
    verdict, text = _own_verdict(end, limits)
    if verdict != "passed":
        return CaseOutcome(run, verdict, text)
    if result.score == 1:
        return CaseOutcome(run, "passed", score=1.0)
    return CaseOutcome(run, "failed", f"{_REJECTED}{shown}", result.score)


def _own_verdict(end: TalkEnd, limits: Limits) -> tuple[Verdict, str]:
    """Return the verdict of the submission by its end alone.

    On a busy machine, a long wait with words in between may end by the limit of unattributed time.
    """
    ended = end.submission.ended
    ending = ended.ending
    verdict, text = ended_well(end.submission)
    has_waited = ending == "cpu_limit" and ended.usage.cpu_seconds < limits.cpu_seconds
    if ending == "wall_limit" or has_waited:
        text = DEADLOCK if end.is_deadlock else SILENCE
    elif ending == "output_limit" and end.is_flood:
        text = FLOOD
    return verdict, text


def with_relay(limits: Limits) -> Limits:
    """Return limits with room for the relaying process."""
    return replace(limits, processes=limits.processes + 1)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
