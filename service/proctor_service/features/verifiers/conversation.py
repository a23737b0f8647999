"""The service between a verifier in its sandbox and a submission: passes requests and answers on.

The lines are described in `guest/verification.py`. Values stay unparsed here; their size is the submission's
choice.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

from proctor_client.wire import Failure, StdioCase, Verdict
from proctor_service.codec.values import Malformed, dumps, loads
from proctor_service.errors import InvalidTask, SandboxLost
from proctor_service.features.verifiers.author_programs import Finished
from proctor_service.features.verifiers.live_interpreter import SubmissionFailed
from proctor_service.features.verifiers.subject import Subject
from proctor_service.guest.channel import LOADED
from proctor_service.guest.verification import FORGED, OBJECT_FOR_DATA
from proctor_service.judge.run import Run, Unfit, check_outcome
from proctor_service.sandbox.interface import Sandbox

_LOADED = LOADED.rstrip(b"\n")
_CALL, _RUN, _CLOSE = b'["call",', b'["run",', b"!close "
_FEW_BYTES = 1 << 16  # of a line that is parsed in the event loop
_MOST_CHARACTERS = 2000
_SIGNALS = frozenset((FORGED, OBJECT_FOR_DATA))
_VERDICTS = frozenset(get_args(Verdict)) - {"passed"}


@dataclass(frozen=True, slots=True)
class VerifierResult:
    """Result of a verifier. `score`: from 0 to 1.

    `verdict`: of a verifier stopped early; None where the score decides. `passed`, `total`, `failures`:
    of the tests reported by the verifier. `trouble`: why the verifier itself failed.
    """

    score: float
    verdict: Verdict | None = None
    message: str = ""
    passed: int = 0
    total: int = 0
    failures: tuple[Failure, ...] = ()
    signals: frozenset[str] = frozenset()
    trouble: str | None = None


class Conversation:
    """Conversation with a verifier."""

    def __init__(self, sandbox: Sandbox, subject: Subject, *, may_be_blamed: bool) -> None:
        """`may_be_blamed`: the completion's length alone may keep the verifier from loading."""
        self._sandbox = sandbox
        self._may_be_blamed = may_be_blamed
        self._subject = subject
        self._signals: set[str] = set()

    async def result(self) -> VerifierResult:
        """Answer the verifier's requests, and return its result.

        Raises InvalidTask if the verifier fails to load, and the errors of `judge.run.run`.
        """
        opening: tuple[bytes, ...] = ()
        has_loaded = False
        while (line := await self._sandbox.receive()) is not None:
            if not opening:
                opening = (line,)
            elif line.startswith(_CALL):
                await self._call(line)
            elif line.startswith(_RUN):
                await self._run(line)
            elif line.startswith(_CLOSE):
                await self._subject.close(int(line[len(_CLOSE) :]))
            elif line == _LOADED:
                has_loaded = True
            elif has_loaded:
                return await self._last(line)
            else:
                raise InvalidTask(f"verifier: {await self._text(line)}")
        return await self._ended(opening, has_loaded)

    async def _call(self, line: bytes) -> None:
        """Answer `["call",2,[…]]`: the text behind the handle is passed on unchanged."""
        comma = line.index(b",", len(_CALL))
        handle = int(line[len(_CALL) : comma])
        try:
            answer = await self._subject.call(handle, line[comma + 1 : -1])
        except SubmissionFailed as failed:
            self._fail(failed)
        else:
            self._sandbox.send(answer + b"\n")
        await self._sandbox.drain()

    async def _run(self, line: bytes) -> None:
        _, job = await _parsed(line)
        case = StdioCase.model_construct(
            stdin=job["stdin"], argv=job["argv"], files=job["files"], output_file=None
        )
        try:
            finished = await self._subject.run(case)
        except SubmissionFailed as failed:
            self._fail(failed)
        else:
            outputs = finished.ended.stdout, finished.ended.stderr
            facts = {**facts_of(finished), "sizes": [len(output) for output in outputs]}
            self._sandbox.send(dumps(["ran", facts]))
            for output in outputs:
                if output:
                    self._sandbox.send(output)
        await self._sandbox.drain()

    def _fail(self, failed: SubmissionFailed) -> None:
        self._signals.update(failed.signals)
        self._sandbox.send(dumps(["error", *error_of(failed)]))

    async def _last(self, line: bytes) -> VerifierResult:
        """Return the result in the verifier's last line. Raises InvalidTask."""
        try:
            kind, content = await _parsed(line)
            signals = frozenset(self._signals | (_SIGNALS & set(content.get("signals", ()))))
            if kind == "score":
                return scored(content, signals)
            if kind == "stopped" and content["verdict"] in _VERDICTS:
                verdict = cast("Verdict", content["verdict"])
                return VerifierResult(0.0, verdict, str(content["message"]), signals=signals)
            trouble = str(content["message"])
            if kind == "invalid":
                raise InvalidTask(f"verifier: {trouble}")
        except (Malformed, ValueError, TypeError, KeyError, AttributeError) as error:
            signals, trouble = frozenset(self._signals), f"no result: {type(error).__name__}"
        return VerifierResult(0.0, signals=signals, trouble=trouble)

    async def _text(self, line: bytes) -> str:
        """Return the text of `["unusable", text]`."""
        try:
            _, text = await _parsed(line)
        except (Malformed, ValueError):
            text = "it does not load"
        return str(text)

    async def _ended(self, opening: Sequence[bytes], has_loaded: bool) -> VerifierResult:
        """Return the result of a verifier ended without a result. Raises InvalidTask, and SandboxLost."""
        self._sandbox.hang_up()
        run = Run(tuple(opening), await self._sandbox.ended(), self._sandbox.id)
        run.check_blame()
        try:
            finished = Finished(check_outcome(run))
        except Unfit as unfit:
            if self._may_be_blamed:
                return VerifierResult(0.0, trouble=str(unfit))
            raise InvalidTask(f"verifier: {unfit}") from None
        if run.ended.ending == "killed":
            raise SandboxLost("the verifier's sandbox was ended before it had a score")
        how = finished.how_it_ended()
        if not (has_loaded or self._may_be_blamed):
            raise InvalidTask(f"verifier: it does not load: {how}")
        return VerifierResult(0.0, signals=frozenset(self._signals), trouble=how)


async def _parsed(line: bytes) -> list[Any]:
    """Parse a line of the verifier, long lines in a thread. Raises Malformed, and ValueError."""
    frame = loads(line) if len(line) <= _FEW_BYTES else await asyncio.to_thread(loads, line)
    if not isinstance(frame, list) or len(frame) != 2:
        raise ValueError("not a message of a verifier")
    return frame


def facts_of(finished: Run) -> dict[str, Any]:
    """Return the facts of a run for the verifier, without the outputs."""
    ended = finished.ended
    return {
        "ending": ended.ending,
        "exit_code": ended.exit_code,
        "cpu_seconds": ended.usage.cpu_seconds,
    }


def error_of(failed: SubmissionFailed) -> tuple[str, str, str]:
    """Return the verdict, the message and the type of an error for a verifier."""
    text = failed.message.encode("utf-8", "replace").decode()[:_MOST_CHARACTERS]
    return failed.verdict, text, failed.kind


def scored(content: Mapping[str, Any], signals: frozenset[str]) -> VerifierResult:
    """Return the result of a score. Raises ValueError, TypeError and KeyError."""
    score = float(content["score"])
    if math.isnan(score) or not 0 <= score <= 1:
        raise ValueError("not a score")
    tests = content.get("tests") or {"passed": 0, "total": 0, "failures": []}
    return VerifierResult(
        score,
        message=str(content["message"]),
        passed=int(tests["passed"]),
        total=int(tests["total"]),
        failures=tuple(
            Failure(index=place, test=name, message=text) for place, name, text in tests["failures"]
        ),
        signals=signals,
    )
