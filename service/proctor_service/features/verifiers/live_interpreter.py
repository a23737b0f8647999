"""Interpreter of a submission, alive from each call of its functions to the next.

The interpreter's lines are hostile: exactly one line answers a call, and any other line ends the
interpreter.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from proctor_client.wire import Verdict
from proctor_service.guest.channel import BEGAN, LOADED
from proctor_service.guest.verification import FORGED, NO_ANSWER
from proctor_service.judge.run import (
    LIMITS,
    Raised,
    Run,
    answer_to,
    begin,
    check_outcome,
    of_silence,
    python_message,
    understand,
)
from proctor_service.judge.submission import Submission
from proctor_service.sandbox.interface import GuestMessage, Sandbox

_LONG_LOAD = LOADED.rstrip(b"\n")
_LOADED = b'["loaded"]'


class SubmissionFailed(Exception):
    """A call or a run of the submission without a result. `kind`: class of the raised exception.

    `signals`: hack signals. Becomes a SubmissionError of the verifier.
    """

    def __init__(
        self, verdict: Verdict, message: str, kind: str = "", signals: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.message = message
        self.kind = kind
        self.signals = tuple(signals)

    @classmethod
    def of(cls, raised: Raised) -> SubmissionFailed:
        """Return the failure of a program ended by an exception, or by itself."""
        is_exception = raised.verdict in ("runtime_error", "failed", "memory_limit")
        kind = raised.summary.partition(":")[0][:200] if is_exception else ""
        return cls(raised.verdict, raised.summary, kind, early_exit(raised.verdict))


def early_exit(verdict: Verdict) -> tuple[str, ...]:
    """Return the hack signal of a program ended by itself before its answer."""
    return ("early_exit",) if verdict == "early_exit" else ()


class LiveInterpreter:
    """Makes the calls of a verifier's handle, in a sandbox of its own.

    `finished`: the run, after the end of the interpreter.
    """

    def __init__(self, sandbox: Sandbox, submission: Submission) -> None:
        self._sandbox = sandbox
        self._submission = submission
        self._calls = 0
        self._opening: tuple[bytes, ...] = ()
        self._loaded = False
        self.finished: Run | None = None

    async def call(self, line: bytes) -> bytes:
        """Return the answer to a call: the line `["value", i, value]`.

        `line`: a call of `guest/function_calls.py`, without a newline. Raises SubmissionFailed, and as
        `judge.run.run`.
        """
        sandbox, index = self._sandbox, self._calls
        self._calls += 1
        if index == 0:
            job = python_message(
                self._submission, "calls", count=sys.maxsize, plain_arrays=True, says_loaded=True
            )
            message = GuestMessage(job, self._submission.limits, takes_turns=True)
            begin(sandbox, message, self._submission.state)
        else:
            sandbox.begin_test()
        sandbox.send(line + b"\n")
        await sandbox.drain()
        answer = await self._answer()
        if answer is None:
            raise await self._ended()
        heard = answer_to(answer, index)
        if heard.forged:
            raise await self._forged()
        if heard.stopped is not None:
            raise await self._ended(heard.stopped)
        raised = heard.answers[0]
        if isinstance(raised, Raised):
            raise SubmissionFailed.of(raised)
        return answer

    async def close(self) -> Run | None:
        """End the interpreter, and return its run; None for an unused interpreter."""
        if self._calls and self.finished is None:
            self._sandbox.kill()
            self.finished = Run(self._opening, await self._sandbox.ended(), self._sandbox.id)
        return self.finished

    async def _answer(self) -> bytes | None:
        """Return the next answer; None after the last line. Raises SubmissionFailed after a failed load."""
        while (line := await self._sandbox.receive()) is not None:
            if not self._opening:
                self._opening = (line,)
                if not line.startswith(BEGAN):
                    return None
            elif self._loaded:
                return line
            elif line == _LOADED:
                self._loaded = True
            elif line == _LONG_LOAD and len(self._opening) == 1:
                self._opening += (line,)
                self._sandbox.begin_test()
            else:
                heard = understand((line,))
                if heard.stopped is None:
                    raise await self._forged()
                raise await self._ended(heard.stopped)
        return None

    async def _forged(self) -> SubmissionFailed:
        self._sandbox.kill()
        await self._end()
        return SubmissionFailed("failed", NO_ANSWER, signals=(FORGED,))

    async def _ended(self, reported: Raised | None = None) -> SubmissionFailed:
        """Return why the interpreter has ended. Raises SandboxLost if the machine may be the cause."""
        self._sandbox.hang_up()
        finished = check_outcome(await self._end())
        finished.check_blame()
        limited = LIMITS.get(finished.ended.ending)
        if limited is not None:
            return SubmissionFailed(*limited)
        if reported is not None:
            return SubmissionFailed.of(reported)
        verdict, text = of_silence(finished.ended)
        return SubmissionFailed(verdict, text, signals=early_exit(verdict))

    async def _end(self) -> Run:
        ended = await self._sandbox.ended()
        self.finished = Run(self._opening[:1], ended, self._sandbox.id)
        return self.finished
