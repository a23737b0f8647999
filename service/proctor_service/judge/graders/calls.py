"""`calls`: an entry point, and for each case its arguments and the expected return value.

Arguments and values are JSON.

Equality, by default of JSON: JSON has no tuples and only text as keys, so a tuple or an array may match a
list, and dict keys are compared in their JSON form. `python`: a list is a list, and keys keep their
types. `apps`: as `json`, and an expected list with a single item stands for the item, too. The walk
follows the expected value, so the walk ends even if the answer is cyclic or full of shared parts.
"""

from __future__ import annotations

import array
import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import chain
from numbers import Integral, Real
from typing import Any, Literal

from proctor_client.wire import MAX_FAILURES, Call, CallsGrader, long_integers
from proctor_service.codec import values
from proctor_service.guest.function_calls import IS_JSON
from proctor_service.judge.entry_points import either, normal, target_of
from proctor_service.judge.graders.asserts import shown
from proctor_service.judge.run import (
    NOT_REACHED,
    Messages,
    Raised,
    conclude,
    parsed,
    python_message,
    run_calls,
    understand,
)
from proctor_service.judge.submission import GraderRules, Judgement, Submission
from proctor_service.judge.text import EXACT, Closeness
from proctor_service.sandbox.interface import Sandboxes

_SPARE_BYTES = 65_536
_LONGER_AT_MOST = 24
_MAX_KEY_BITS = 4096
_CONTAINERS = (list, tuple, dict, set, frozenset)


@dataclass(frozen=True, slots=True)
class Equality:
    """Rules for the equality of a returned value and the expected value."""

    kind: Literal["json", "python", "apps"] = "json"
    closeness: Closeness = EXACT

    def is_answer(self, line: bytes, expected: Any) -> bool:
        """Return True if an encoded value equals `expected`.

        An encoding far longer than the expected value can never be equal and stays unparsed.
        """
        spare = len(line) - _SPARE_BYTES
        if spare > 0 and spare > len(long_integers.dumps(expected)) * _LONGER_AT_MOST:
            return False
        try:
            value = values.decode(values.loads(line))
            return any(self._is_same(value, each) for each in self._accepted(expected))
        except (values.Malformed, ArithmeticError, RecursionError):  # a signalling NaN
            return False

    def _accepted(self, expected: Any) -> list[Any]:
        is_single = isinstance(expected, list) and len(expected) == 1
        return [expected, *(expected if is_single and self.kind == "apps" else ())]

    def _is_same(self, value: Any, expected: Any) -> bool:
        lists = (list, tuple, array.array) if self.kind != "python" else (list,)
        todo = [(value, expected)]
        while todo:
            got, wanted = todo.pop()
            if isinstance(wanted, list):
                if not isinstance(got, lists) or len(got) != len(wanted):
                    return False
                todo.extend(zip(got, wanted, strict=True))
            elif isinstance(wanted, dict):
                members = self._members(got, len(wanted)) if isinstance(got, dict) else None
                if members is None or members.keys() != wanted.keys():
                    return False
                todo.extend((members[key], wanted[key]) for key in wanted)
            elif isinstance(got, _CONTAINERS) or not self._is_same_scalar(got, wanted):
                return False
        return True

    def _is_same_scalar(self, got: Any, wanted: Any) -> bool:
        """Compare two integers exactly, other numbers by their closeness, and the rest by `==`."""
        numbers = isinstance(got, Real | Decimal) and isinstance(wanted, int | float)
        both_integers = isinstance(got, Integral) and isinstance(wanted, int)
        if got == wanted or self.closeness.is_exact or both_integers or not numbers:
            return bool(got == wanted)
        try:
            return self.closeness.accepts(float(got), float(wanted))
        except OverflowError:  # an int beyond the range of floats
            return False

    def _members(self, value: dict[Any, Any], count: int) -> dict[Any, Any] | None:
        """Return the items by their keys in JSON; None if not so many keys differ there."""
        if len(value) != count or self.kind == "python":
            return value if len(value) == count else None
        members = {_key(key): item for key, item in value.items()}
        # Two keys with the same JSON form make the answer wrong: their values are ambiguous.
        return members if len(members) == count else None


def _key(key: Any) -> Any:
    """Return a key in its JSON form; None, unequal to any text, without a JSON form."""
    if isinstance(key, int) and key.bit_length() > _MAX_KEY_BITS:
        return None
    if key is None or isinstance(key, bool | int | float):
        return json.dumps(key)
    return key if isinstance(key, str) else None


_FEW_BYTES = 4096  # total size of results compared in the event loop within a few ms
_FEW_LINES_BYTES = 1 << 16  # total size of messages parsed there
_FEW_PARTS = 1 << 14  # of arguments encoded there: numbers, texts and containers
_PART_CHARACTERS = 64  # of a text that take about as long as a number
_SHOWN_CHARACTERS = 300
_NOT_DESCRIBED = Raised("failed", "it returned another value")


async def judge(submission: Submission, grader: CallsGrader, backend: Sandboxes) -> Judgement:
    """Judge with a single sandbox; expected values stay in the service. Raises InvalidTask."""
    if _are_few([(case.args, case.kwargs) for case in grader.cases]):
        calls = _encoded(grader)
    else:  # in a thread, so the event loop stays free
        calls = await asyncio.to_thread(_encoded, grader)
    equality = Equality(grader.equality, Closeness.of(grader.tolerance))
    plain_arrays = grader.equality != "python"
    job = python_message(submission, "calls", count=len(calls), plain_arrays=plain_arrays)
    limits, environment = submission.limits, submission.environment
    finished = await run_calls(backend, job, limits, environment, calls, submission.state)
    messages = await parsed(
        finished, _FEW_LINES_BYTES, partial(understand, finished.lines, len(calls))
    )
    if sum(len(answer) for answer in messages.answers if isinstance(answer, bytes)) <= _FEW_BYTES:
        return conclude(finished, messages, _tests(messages, grader, equality))
    return conclude(finished, messages, await asyncio.to_thread(_tests, messages, grader, equality))


def _are_few(arguments: Sequence[Any]) -> bool:
    """Tell whether values are encoded within a few ms."""
    todo, left = list(arguments), _FEW_PARTS
    while todo and left > 0:
        each = todo.pop()
        if isinstance(each, str):
            left -= len(each) // _PART_CHARACTERS
        elif isinstance(each, list | tuple | dict):
            left -= len(each)
            if left > 0:
                todo += each.values() if isinstance(each, dict) else each
    return left > 0


def _encoded(grader: CallsGrader) -> list[bytes]:
    """Return the line of each call. Raises InvalidTask and ValueTooLarge."""
    entry_point = normal(grader.entry_point)
    target: Any = either(entry_point) if grader.method == "either" else target_of(entry_point)
    lines = []
    for case in grader.cases:
        try:
            line = values.dumps([target, case.args, case.kwargs, IS_JSON])
        except ValueError:  # an integer with more digits than Python converts
            line = values.dumps([target, values.encode(case.args), values.encode(case.kwargs)])
        if grader.equality == "apps" and any(isinstance(each, dict) for each in case.args):
            args = [_with_integer_keys(each) for each in case.args]  # JSON has only texts as keys
            line = values.dumps([target, values.encode(args), values.encode(case.kwargs)])
        lines.append(line)
    return lines


def _with_integer_keys(value: Any) -> Any:
    """Return an object with integers as keys, if all its keys are written as integers."""
    if not isinstance(value, dict):
        return value
    try:
        return {int(key): each for key, each in value.items()}
    except ValueError:
        return value


def _tests(
    messages: Messages, grader: CallsGrader, equality: Equality
) -> list[tuple[str, Raised | None]]:
    """Return the text of each failed case and its problem; the problem of a passed case is None."""
    tests: list[tuple[str, Raised | None]] = []
    described = 0
    for index, case in enumerate(grader.cases):
        answer = messages.answers[index] if index < len(messages.answers) else None
        if isinstance(answer, bytes) and equality.is_answer(answer, case.expected):
            tests.append(("", None))
        elif described < MAX_FAILURES:
            call = _shown(grader.entry_point, case)
            tests.append((call, _problem(answer, case, call, reveal=grader.reveal)))
            described += 1
        else:
            problem = _NOT_DESCRIBED if isinstance(answer, bytes) else answer
            tests.append(("", problem or NOT_REACHED))
    return tests


def _problem(answer: bytes | Raised | None, case: Call, call: str, *, reveal: bool) -> Raised:
    if answer is None:
        return NOT_REACHED
    if isinstance(answer, Raised):
        return answer
    text = f"{call} returned {shown(answer)}"
    if reveal:
        text += f", and not {_brief([case.expected])}"
    return Raised("failed", text)


def _shown(entry_point: str, case: Call) -> str:
    text = f"{entry_point}({_brief(case.args, case.kwargs)}"
    room = _SHOWN_CHARACTERS - 1
    return f"{text})" if len(text) <= room else f"{text[: room - 1]}…)"


def _brief(args: Iterable[Any], kwargs: Any = None) -> str:
    """Return values as JSON, with a comma between two; of a long text a few hundred characters."""
    text, separator = "", ""
    try:
        for name, value in chain((("", each) for each in args), (kwargs or {}).items()):
            text += f"{separator}{name}{name and '='}"
            separator = ", "
            for piece in json.JSONEncoder().iterencode(value):
                text += piece[:_SHOWN_CHARACTERS]
                if len(text) > _SHOWN_CHARACTERS:
                    return text[:_SHOWN_CHARACTERS]
    except ValueError:  # an integer with more digits than Python writes
        text += "…"
    return text


def rules(_: object) -> tuple[GraderRules, ...]:
    """Return the rules of `calls`, for the registry."""
    return (GraderRules("calls", judge),)
