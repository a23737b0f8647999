"""The submission as used by a verifier: runs, each in a fresh sandbox, and live interpreters for calls.

Each run and each call has the limits of a test. All together, their idle time and the CPU time of uses
ended by a limit is at most `wall_seconds`, as with the cases of `stdio`: a submission hanging in each use
gets a verdict before the deadline.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, replace

from proctor_client.wire import StdioCase
from proctor_service.errors import InvalidTask
from proctor_service.features.verifiers.live_interpreter import LiveInterpreter, SubmissionFailed
from proctor_service.features.verifiers.pairs import Wanted
from proctor_service.judge.graders.programs import Languages, Program, prepared
from proctor_service.judge.rest import left
from proctor_service.judge.run import LIMITS, JobTooLong, Run, Unfit, room_for, understand
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import (
    DEFAULT,
    HASH_SEEDS,
    Limits,
    PassedSandboxes,
    Sandbox,
    Sandboxes,
    Usage,
)
from proctor_service.settings.languages import PYTHON

MOST_LIVE = 8
"""Live interpreters of a verifier at once."""
_KEPT_STDOUT_BYTES = 16 << 20
_TOO_LONG = "the program and its input are larger than a sandbox takes"
_OUT_OF_TIME = "time limit: all its runs and calls together took longer than they may"


@dataclass(frozen=True, slots=True)
class _Live:
    interpreter: LiveInterpreter
    lease: AsyncExitStack


class Subject:
    """A submission under a verifier. `usage`: of all ended uses; `sandbox_id`: of the first use.

    `spare`: a sandbox as in `first_wanted`, taken by the first run or call.
    """

    def __init__(self, submission: Submission, backend: Sandboxes, languages: Languages) -> None:
        self.spare: Sandbox | None = None
        self.usage = Usage()
        self.sandbox_id: str | None = None
        self._doubtful: list[Run] = []
        self._submission = submission
        self._backend = _WithSpare(backend, self)
        self._languages = languages
        self._program: Program | SubmissionFailed | None = None
        self._live: dict[int, _Live] = {}
        self._over: dict[int, SubmissionFailed] = {}
        self._wasted_seconds = 0.0

    @property
    def first_wanted(self) -> Wanted | None:
        """Sandbox of the first run or call; None for a completion without code."""
        submission = self._submission
        if not submission.source:
            return None
        return Wanted(room_for(submission.limits, submission.state), submission.environment)

    @property
    def own_seconds(self) -> float:
        """CPU and idle seconds of all ended uses."""
        return self.usage.cpu_seconds + self.usage.idle_seconds

    def check_blame(self) -> None:
        """Raise SandboxLost if the cause of a failure may be outside the submission."""
        for finished in self._doubtful:
            finished.check_blame()

    async def run(self, case: StdioCase) -> Run:
        """Run the submission once, in a fresh sandbox. Raises SubmissionFailed, and as `judge.run.run`."""
        self._check_code()
        program = await self._prepared()
        program = replace(program, submission=replace(program.submission, limits=self._left()))
        try:
            finished = await program.run(self._backend, program.job(case=case), _KEPT_STDOUT_BYTES)
        except Unfit as unfit:
            raise _failed(unfit.judgement) from None
        except JobTooLong:  # its input may be an earlier output of the submission
            raise SubmissionFailed("failed", _TOO_LONG) from None
        self._count(finished)
        stopped = understand(finished.lines).stopped
        if stopped is not None and stopped.verdict == "syntax_error":
            raise SubmissionFailed.of(stopped)
        return finished

    async def call(self, handle: int, line: bytes) -> bytes:
        """Call a function in the interpreter of a handle; see `LiveInterpreter.call`.

        Raises InvalidTask for a submission in another language than Python, and for too many handles.
        """
        language = self._submission.language
        if language != PYTHON:
            raise InvalidTask(f"verifier: call works with {PYTHON}, not with {language}")
        self._check_code()
        if handle in self._over:
            raise self._over[handle]
        live = self._live.get(handle) or await self._started(handle)
        try:
            return await live.interpreter.call(line)
        except Unfit as unfit:
            await self.close(handle)
            raise _failed(unfit.judgement) from None
        except JobTooLong:
            await self.close(handle)
            raise SubmissionFailed("failed", _TOO_LONG) from None
        except SubmissionFailed as failed:
            if live.interpreter.finished is not None:
                await self.close(handle)
                self._over[handle] = failed
            raise

    async def close(self, handle: int) -> None:
        """End the interpreter of a handle."""
        live = self._live.pop(handle, None)
        self._over[handle] = SubmissionFailed("failed", "the handle is closed")
        if live is not None:
            await self._finish(live)

    async def close_all(self) -> None:
        """End all interpreters."""
        while self._live:
            _, live = self._live.popitem()
            await self._finish(live)

    async def _started(self, handle: int) -> _Live:
        if len(self._live) == MOST_LIVE:
            raise InvalidTask(f"verifier: more than {MOST_LIVE} live interpreters at once")
        limits, state = self._left(), self._submission.state
        submission = replace(self._submission, limits=limits)
        lease = AsyncExitStack()
        sandbox = await lease.enter_async_context(
            self._backend.lease(room_for(limits, state), submission.environment)
        )
        self.sandbox_id = self.sandbox_id or sandbox.id
        live = self._live[handle] = _Live(LiveInterpreter(sandbox, submission), lease)
        return live

    async def _finish(self, live: _Live) -> None:
        async with live.lease:
            finished = await live.interpreter.close()
        if finished is not None:
            self._count(finished)

    async def _prepared(self) -> Program:
        """Return the program, compiled at its first run."""
        if self._program is None:
            program = await prepared(self._submission, self._backend, self._languages)
            if isinstance(program, Judgement):
                self.usage = self.usage + program.usage
                self._program = _failed(program)
            else:
                self.usage = self.usage + program.compiling
                self._program = program
        if isinstance(self._program, SubmissionFailed):
            raise self._program
        return self._program

    def _check_code(self) -> None:
        if not self._submission.source:
            raise SubmissionFailed("no_code", "No code was found in the completion.")

    def _left(self) -> Limits:
        """Return the limits of the next use. Raises SubmissionFailed after the whole time is used up."""
        limits = left(self._submission.limits, self.usage)
        if limits.are_used_up or self._wasted_seconds > limits.wall_seconds:
            raise SubmissionFailed("timeout", _OUT_OF_TIME)
        return limits

    def _count(self, finished: Run) -> None:
        ended = finished.ended
        self.sandbox_id = self.sandbox_id or finished.sandbox_id
        self.usage = self.usage + ended.usage
        self._wasted_seconds += ended.usage.idle_seconds
        if ended.ending in LIMITS:
            self._wasted_seconds += ended.usage.cpu_seconds
        if ended.doubt:
            self._doubtful.append(finished)


class _WithSpare(PassedSandboxes):
    """Sandboxes, of which the first is there already."""

    def __init__(self, sandboxes: Sandboxes, subject: Subject) -> None:
        super().__init__(sandboxes)
        self._subject = subject

    def lease(
        self, limits: Limits, environment: str = DEFAULT, hash_seed: int = HASH_SEEDS[0]
    ) -> AbstractAsyncContextManager[Sandbox]:
        """Lease a sandbox; the spare sandbox, if of the requested kind."""
        spare = self._subject.spare
        if spare is not None and self._subject.first_wanted == Wanted(limits, environment):
            self._subject.spare = None
            return nullcontext(spare)
        return super().lease(limits, environment, hash_seed)


def _failed(judgement: Judgement) -> SubmissionFailed:
    return SubmissionFailed(judgement.verdict, judgement.message)
