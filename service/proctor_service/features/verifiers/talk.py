"""The talk of a submission and an interactor, each in a sandbox of its own.

    submission ──▶ stdout, 16 MB at most ──▶ stdin ──▶ interactor
    submission ◀── stdin ◀── stdout, 64 MB at most ◀── interactor

The service relays. Each program prints at most some 128 KB more than the other has taken, which also
bounds the service's memory. The messages decide the result, whichever end the service sees first: the
interactor judges all output of the submission. The interactor's input ends only when the interactor asks
for more after the submission's end; a later rejection means an early end of the submission.

Both sandboxes are idle while they wait for each other. This time counts as the submission's idle time.
The two report their waits at different moments, so these reports alone end no talk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from proctor_service.errors import InvalidTask
from proctor_service.features.verifiers.checkers import CheckResult
from proctor_service.features.verifiers.piped_program import PipedProgram
from proctor_service.judge.graders.programs import ended_well
from proctor_service.judge.run import Run, Unfit
from proctor_service.sandbox.interface import Ending, Sandbox

MOST_BYTES = 16 << 20
"""Output of a submission at most."""
_MOST_INTERACTOR_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class TalkEnd:
    """The end of a talk.

    `result`: of the interactor; None for an interactor ended as unneeded. `has_seen`: the interactor has
    read output of the submission, or its end. `is_early`: the interactor asked for more after the
    submission's end. `is_deadlock`: as the submission ended, both waited for each other. `is_flood`: the
    interactor printed too much.
    """

    submission: Run
    interactor: Run
    result: CheckResult | None
    has_seen: bool = True
    is_early: bool = False
    is_deadlock: bool = False
    is_flood: bool = False


class Talk:
    """The talk of two programs. The caller begins their jobs.

    `result_of`: returns the result of a finished interactor. `kept_bytes`: of the submission's output,
    for its result. `wall_seconds`: of the submission; the interactor's longest wait for a submission
    without reports of its own waits: the submission may have stopped the reporting process.
    """

    def __init__(
        self,
        submission: Sandbox,
        interactor: Sandbox,
        result_of: Callable[[Run], CheckResult],
        kept_bytes: int,
        wall_seconds: float,
    ) -> None:
        self.submission = PipedProgram(submission, self._from_submission, self._on_change)
        self.interactor = PipedProgram(interactor, self._from_interactor, self._on_change)
        self._result_of = result_of
        self._stdout = bytearray()
        self._kept_bytes = kept_bytes
        self._wall_seconds = wall_seconds
        self._patience: asyncio.TimerHandle | None = None
        self._run: Run | None = None
        self._result: CheckResult | None = None
        self._is_early = False
        self._is_deadlock = False
        self._stopped_for: Ending | None = None  # the submission
        self._is_needed = True  # the interactor
        self._is_told = False  # the submission, that the interactor says no more
        # Of what each has said, the part which the other has taken.
        self._heard_bytes = self._answered_bytes = 0

    async def finished(self) -> TalkEnd:
        """Wait for both ends. Raises as `run`, but Unfit of the submission alone."""
        tasks = (
            asyncio.ensure_future(self._until_submission_ends()),
            asyncio.ensure_future(self._until_interactor_ends()),
        )
        try:
            run, interactor = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._end_patience()
        return TalkEnd(
            run,
            interactor,
            self._result,
            self.interactor.has_read,
            self._is_early,
            self._is_deadlock,
            self.submission.said_bytes > MOST_BYTES,
        )

    # ------------------------------------------------------------ ends

    async def _until_submission_ends(self) -> Run:
        await self.submission.listen()
        finished = await self.submission.finished()
        ended = finished.ended
        if self._stopped_for is not None:
            ended = replace(ended, ending=self._stopped_for, exit_code=None)
        stdout = bytes(self._stdout)
        truncated = ended.truncated or self.submission.said_bytes > len(stdout)
        ended = replace(ended, stdout=stdout, truncated=truncated)
        self._run = finished = replace(finished, ended=ended)
        if self._stopped_for == "output_limit":
            self._dismiss()
        else:
            self._on_change()
        return finished

    async def _until_interactor_ends(self) -> Run:
        await self.interactor.listen()
        try:
            finished = await self.interactor.finished()
        except Unfit as unfit:
            raise InvalidTask(f"interactor: {unfit}") from None
        if self.interactor.said_bytes > _MOST_INTERACTOR_BYTES:
            ended = replace(finished.ended, ending="output_limit", exit_code=None)
            finished = replace(finished, ended=ended)
        if self._is_needed:
            self._result = self._result_of(finished)
            if self._result.score or self._is_early:
                self.submission.hang_up()  # it now ends by itself
            else:
                self.submission.sandbox.kill()
        return finished

    def _stop(self, reason: Ending) -> None:
        """End the submission for a reason of this talk. The first reason counts."""
        self._stopped_for = self._stopped_for or reason
        self.submission.sandbox.kill()

    def _dismiss(self) -> None:
        """End the interactor, as its result is no longer needed."""
        if not self.interactor.is_over:
            self._is_needed = False
            self.interactor.sandbox.kill()

    # ------------------------------------------------------------ called as lines arrive

    def _on_change(self) -> None:
        submission, interactor = self.submission, self.interactor
        self._end_patience()
        self._allow_more()
        if interactor.is_over or interactor.is_hung_up:
            return
        if interactor.is_closed and not self._is_told:
            self._is_told = True
            submission.end_input()
        if submission.is_closed or submission.is_over:
            if interactor.needs_input:
                self._end_input()
            return
        both_wait = submission.is_waiting and interactor.is_waiting
        if both_wait and not submission.has_turn:  # it may have said once more that it waits
            submission.own_wait()
        elif interactor.is_waiting and not submission.has_turn:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(self._wall_seconds, submission.own_wait)
        self._is_deadlock = both_wait

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _end_input(self) -> None:
        """Tell the interactor, which asks for more, of the end of its input."""
        if self.submission.is_over and self._run is None:
            return  # its ending is not known yet
        self._is_early = True
        if self._run is None or ended_well(self._run)[0] == "passed":
            self.interactor.hang_up()
        else:
            self._dismiss()

    def _allow_more(self) -> None:
        """Let each print as much more as the other has taken."""
        taken = self.interactor.taken_bytes
        self.submission.allow(taken - self._heard_bytes)
        self._heard_bytes = taken
        taken = (
            self.submission.given_bytes if self.submission.is_over else self.submission.taken_bytes
        )
        self.interactor.allow(taken - self._answered_bytes)
        self._answered_bytes = taken

    def _from_submission(self, data: bytes) -> None:
        self._stdout += data[: max(0, self._kept_bytes - len(self._stdout))]
        if self.submission.said_bytes > MOST_BYTES:
            self._stop("output_limit")
        else:
            self.interactor.send(data)

    def _from_interactor(self, data: bytes) -> None:
        if self.interactor.said_bytes > _MOST_INTERACTOR_BYTES:
            self.interactor.sandbox.kill()
        elif self.submission.is_over:
            self.interactor.allow(len(data))
        else:
            self.submission.send(data)
