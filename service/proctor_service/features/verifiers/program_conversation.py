"""The service between a submission and a verifier, a program in any language.

The program reads JSON lines on its standard input, and writes JSON lines: docs/verifiers.md describes
them. Values of the submission are decoded here, in a thread, and reach the program as JSON.
"""

from __future__ import annotations

import asyncio
import json
import math
from array import array
from collections import deque
from collections.abc import Mapping, Set
from numbers import Integral, Real
from typing import Any

from pydantic import ValidationError

from proctor_client.wire import StdioCase
from proctor_service.codec.values import Decoder, Malformed, NotData, dumps, loads
from proctor_service.errors import InvalidTask
from proctor_service.features.verifiers.author_programs import Finished
from proctor_service.features.verifiers.conversation import (
    VerifierResult,
    error_of,
    facts_of,
    scored,
)
from proctor_service.features.verifiers.live_interpreter import SubmissionFailed
from proctor_service.features.verifiers.piped_program import PipedProgram
from proctor_service.features.verifiers.subject import Subject
from proctor_service.guest.function_calls import IS_JSON
from proctor_service.guest.verification import (
    FORGED,
    NEEDS_DATA,
    NO_ANSWER,
    OBJECT_FOR_DATA,
    score_of,
    target_of,
)
from proctor_service.judge.graders.programs import Program
from proctor_service.judge.run import Unfit
from proctor_service.sandbox.interface import Limits, Sandbox

_FEW_BYTES = 4096  # of a line that is parsed in the event loop
_MOST_LINE_BYTES = 32 << 20
_MOST_OF_A_RANGE = 100_000  # its encoding is short, of any length
_MOST_BITS = 14_000  # Python writes integers of up to 4,300 digits
_NOT_JSON = "the submission returned what JSON has no form for"
_SHARED = b'["r",'
"""In an encoding, where a part is repeated: a short line may stand for a large value."""


class ProgramConversation:
    """Conversation with a verifier."""

    def __init__(self, sandbox: Sandbox, program: Program, subject: Subject) -> None:
        self._piped = PipedProgram(sandbox, self._on_output, self._on_change)
        self._program = program
        self._subject = subject
        self._signals: set[str] = set()
        self._line = bytearray()  # still without its newline
        self._lines: deque[bytes] = deque()
        self._owed_bytes = 0
        self._changed = asyncio.Event()

    async def result(self, limits: Limits, inputs: Mapping[str, Any]) -> VerifierResult:
        """Start the program, answer its requests, and return its result.

        Raises InvalidTask for a program ended before its first read, and the errors of `judge.run.run`.
        """
        job, data = self._program.job_with((), {}, interactive=True)
        self._piped.begin(job, limits, data)
        listening = asyncio.create_task(self._piped.listen())
        try:
            await self._piped.give(await _in_thread(_json_line, inputs))
            while (line := await self._next_line()) is not None:
                result = await self._answered(line)
                if result is not None:
                    return result
            return await self._ended()
        finally:
            listening.cancel()
            await asyncio.wait({listening})

    async def _answered(self, line: bytes) -> VerifierResult | None:
        """Answer a request; return the result if the line has the score."""
        try:
            request = await _parsed(line)
            if "score" in request:
                return scored(score_of(request), frozenset(self._signals))
            if "run" in request:
                answer = await self._run(StdioCase.model_validate(request["run"]))
            else:
                answer = await self._call(request)
        except SubmissionFailed as failed:
            self._signals.update(failed.signals)
            verdict, message, kind = error_of(failed)
            answer = {"error": {"verdict": verdict, "message": message, "type": kind}}
        except (Malformed, ValidationError, ValueError, TypeError, KeyError) as error:
            return self._failed(f"a line is no request: {type(error).__name__}: {str(error)[:300]}")
        await self._piped.give(await _in_thread(_json_line, answer))
        return None

    async def _run(self, case: StdioCase) -> dict[str, Any]:
        finished = await self._subject.run(case)
        ended = finished.ended
        return {
            "stdout": ended.stdout.decode("utf-8", "replace"),
            "stderr": ended.stderr.decode("utf-8", "replace"),
            **facts_of(finished),
        }

    async def _call(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to `{"call": ["f", [1], {"k": 2}], "handle": 0}`."""
        name: Any
        args: Any = []
        kwargs: Any = {}
        match request["call"]:
            case [name]:
                pass
            case [name, args]:
                pass
            case [name, args, kwargs]:
                pass
            case _:
                raise TypeError("a call is a name, a list, and an object")
        handle = request.get("handle", 0)
        if type(handle) is not int or not isinstance(args, list) or not isinstance(kwargs, dict):
            raise TypeError("a call is a name, a list, and an object")
        call = await _in_thread(dumps, [target_of(str(name)), args, kwargs, IS_JSON])
        answer = await self._subject.call(handle, call[:-1])
        try:
            if len(answer) > _FEW_BYTES or _SHARED in answer:
                return {"value": await asyncio.to_thread(_value, answer)}
            return {"value": _value(answer)}
        except NotData:
            raise SubmissionFailed("failed", NEEDS_DATA, signals=(OBJECT_FOR_DATA,)) from None
        except Malformed:
            raise SubmissionFailed("failed", NO_ANSWER, signals=(FORGED,)) from None
        except (TypeError, RecursionError, ArithmeticError):
            raise SubmissionFailed("failed", _NOT_JSON) from None

    async def _ended(self) -> VerifierResult:
        """Return the result of a program ended, or waiting, without a score. Raises InvalidTask."""
        if not self._piped.is_over:
            return self._failed("it waits for more input than it has asked for")
        try:
            run = await self._piped.finished()
        except Unfit as unfit:
            raise InvalidTask(f"verifier: {unfit}") from None
        run.check_blame()
        self._program.check_start(run)
        how = Finished(run).how_it_ended()
        if not self._piped.has_read:
            raise InvalidTask(f"verifier: it ended before it has read anything: {how}")
        return self._failed(f"it ended without a score: {how}")

    def _failed(self, trouble: str) -> VerifierResult:
        return VerifierResult(0.0, signals=frozenset(self._signals), trouble=trouble)

    # ------------------------------------------------------------ the program's output

    async def _next_line(self) -> bytes | None:
        """Return the next line; None after the last."""
        is_alone = False
        while not self._lines:
            if self._piped.is_over and self._line:  # without its newline
                last, self._line = bytes(self._line), bytearray()
                return last
            if self._piped.is_over:
                return None
            if self._piped.is_waiting and not is_alone:
                self._piped.own_wait()
                is_alone = True
            self._changed.clear()
            await self._changed.wait()
        line = self._lines.popleft()
        self._allow()
        return line

    def _on_output(self, data: bytes) -> None:
        self._owed_bytes += len(data)
        end, *others = data.split(b"\n")
        self._line += end
        if len(self._line) > _MOST_LINE_BYTES:
            self._piped.sandbox.kill()
            return
        if others:
            self._lines += (bytes(self._line), *others[:-1])
            self._line = bytearray(others[-1])
        self._allow()
        self._changed.set()

    def _on_change(self) -> None:
        self._changed.set()

    def _allow(self) -> None:
        """Let the program print on, unless lines wait here."""
        if not self._lines:
            self._piped.allow(self._owed_bytes)
            self._owed_bytes = 0


async def _in_thread(work: Any, value: Any) -> bytes:
    """Return JSON of a value; the submission may have chosen its size."""
    if _is_small(value):
        made: bytes = work(value)
    else:
        made = await asyncio.to_thread(work, value)
    return made


def _is_small(value: Any) -> bool:
    """Tell whether a value is written in the event loop."""
    todo, left = [value], _FEW_BYTES
    while todo and left > 0:
        each = todo.pop()
        left -= len(each) if isinstance(each, str) else 8
        if isinstance(each, dict | list | tuple):
            left -= len(each)
            if left > 0:
                todo += each.values() if isinstance(each, dict) else each
    return left > 0


def _json_line(value: Any) -> bytes:
    return json.dumps(value).encode("ascii") + b"\n"


async def _parsed(line: bytes) -> dict[str, Any]:
    """Parse a line of the program. Raises Malformed, and TypeError."""
    value = _loaded(line) if len(line) <= _FEW_BYTES else await asyncio.to_thread(_loaded, line)
    if not isinstance(value, dict):
        raise TypeError("it is no object")
    return value


def _loaded(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {type(error).__name__}") from None


def _value(answer: bytes) -> Any:
    """Return the value of an answer in the form of JSON.

    Raises Malformed, and TypeError, RecursionError or ArithmeticError for a value without a form in JSON.
    """
    frame = loads(answer)
    if not isinstance(frame, list) or len(frame) != 3:
        raise Malformed("not an answer")
    decoder = Decoder()
    decoder.takes_data_alone = True
    return _plain(decoder.decode(frame[2]))


def _plain(value: Any) -> Any:
    """Return data in the form of JSON: sequences and sets are arrays, keys are text.

    NaN and infinities are the texts `NaN`, `Infinity` and `-Infinity`.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        if int(value).bit_length() > _MOST_BITS:
            raise TypeError("longer than JSON's writer takes")
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        if math.isfinite(number):
            return number
        return "NaN" if math.isnan(number) else f"{'-' * (number < 0)}Infinity"
    if isinstance(value, Mapping):
        members = {_key(key): _plain(each) for key, each in value.items()}
        if len(members) != len(value):
            raise TypeError("two keys are the same in JSON")
        return members
    if isinstance(value, range) and len(value) <= _MOST_OF_A_RANGE:
        return list(value)
    if isinstance(value, list | tuple | deque | array | Set):
        return [_plain(each) for each in value]
    raise TypeError("no form in JSON")


def _key(key: Any) -> str:
    plain = _plain(key)
    if isinstance(plain, str):
        return plain
    if isinstance(plain, list | dict):
        raise TypeError("no key in JSON")
    return json.dumps(plain)
