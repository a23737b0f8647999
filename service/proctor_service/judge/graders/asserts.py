"""`asserts`: the level of its tests, and tests judged apart by a plan of calls.

A plan calls the submission's functions, and their results are compared here. Other tests run in a sandbox
of their own (`asserts_test_sandbox.py`), or in the submission's process (`in_process.py`).

The results are hostile data, compared with Python's operators. The size of the expected value bounds how
much of a result is parsed: a far longer encoding can never be equal and stays unparsed. Other results
larger than a megabyte are left to a test sandbox (NotDecidable), because parsing them would block this
process; so are results with values that this process cannot treat as their own classes do.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from proctor_client.wire import AssertsGrader, Integrity
from proctor_service.codec import values
from proctor_service.codec.limits import PART_BYTES
from proctor_service.codec.safe_repr import show
from proctor_service.judge.analysis.formulas import COMPARISONS, Condition, NotDecidable, value_of
from proctor_service.judge.analysis.levels import Analysis, analyse
from proctor_service.judge.analysis.plan import CallPlan, PlannedTest
from proctor_service.judge.analysis.process import analyse_apart
from proctor_service.judge.control.graders import of_asserts
from proctor_service.judge.graders import asserts_test_sandbox
from proctor_service.judge.graders.in_process import judge_shared
from proctor_service.judge.run import (
    NEED_DATA,
    NOT_REACHED,
    OBJECT_FOR_DATA,
    Messages,
    Raised,
    conclude,
    parsed,
    python_message,
    run_calls,
    understand,
)
from proctor_service.judge.submission import Control, GraderRules, Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes

_SHOWN = 300
_MOST_BYTES_IN_THE_LOOP = 16_384
_REMEMBERED_CHARACTERS = 1 << 25  # of tests and plans in all; bounds the memory of the analyses
_ENTRY_CHARACTERS = 1024  # that count for each analysis, however short its tests are
_LARGE_CHARACTERS = 1 << 15
_MOST_LARGE = 2  # large suites that are analysed at once, each in a process of its own
# The longest encoding of a value equal to 1 is that of an instance of a subclass of Decimal, with
# 20,000 zeros behind the point, and the expanded size of an item is 32 bytes.
_LONGEST_ITEM_BYTES = 24_000
_LONGER_AT_MOST = _LONGEST_ITEM_BYTES // PART_BYTES
_SHOWN_BYTES = 4096
_TRUTH_BYTES = 65_536
# The beginnings of long values that are true: text, bytes, containers and integers.
_TRUE = tuple(b'["%s",' % tag for tag in (b"l", b"t", b"d", b"s", b"fs", b"b", b"i", b"u"))
# Arrays, instances of subclasses, and numpy's scalars: their text, type and arithmetic are their own.
_OTHER_CLASSES = frozenset(["nd", "ns", "npnan", "h"])
_NARROW_FRACTIONS = ("f2", "f4", "c8")
_LARGEST_PARSED_BYTES = 1 << 20
_NAN = re.compile(rb'\bNaN\b|"nan"')
"""Encodings insufficient to prove equal values: `[1,NaN]`, `["nan"]`; not `"banana"`."""
# Without shared parts, a part of 32 bytes is at least two bytes of the line. With them, a short line
# could stand for millions of parts, through which `str`, `==` or `sorted` would go.
_MOST_EXPANDED_TIMES = 32


_Key = tuple[tuple[str, ...], str, str | None, str, str | None]
"""All inputs of an analysis: tests, setup, entry point and its method, and integrity."""


class AssertsJudge:
    """The judge of `asserts`. Only the tests decide the level (`judge/analysis/levels.py`).

    The judge holds the analyses of tests: the submissions of a group share theirs.
    """

    def __init__(self) -> None:
        self._analyses: OrderedDict[_Key, asyncio.Future[Analysis]] = OrderedDict()
        self._characters = 0
        self._large = asyncio.Semaphore(_MOST_LARGE)

    @property
    def rules(self) -> GraderRules:
        """The rules of `asserts`, with this judge."""

        def control(grader: AssertsGrader) -> Control:
            return partial(of_asserts, grader)

        return GraderRules("asserts", self.judge, integrity=self.integrity, control=control)

    async def integrity(self, grader: AssertsGrader) -> Integrity:
        """Return the integrity of results. Raises InvalidTask for tests with errors of syntax."""
        return (await self._analysed(grader)).level

    async def judge(
        self, submission: Submission, grader: AssertsGrader, backend: Sandboxes
    ) -> Judgement:
        """Judge by test statements. Raises InvalidTask."""
        analysis = await self._analysed(grader)
        if analysis.level == "in_process":
            judgement = await judge_shared(submission, grader, backend, analysis)
            return replace(judgement, level="shared")
        if analysis.plan is not None:
            with contextlib.suppress(NotDecidable):
                plan, setup = analysis.plan, analysis.setup[0]
                judgement = await judge_by_plan(submission, grader, backend, plan, setup)
                return replace(judgement, level="calls")
        judgement = await asserts_test_sandbox.judge(submission, grader, backend, analysis)
        return replace(judgement, level="values")

    async def _analysed(self, grader: AssertsGrader) -> Analysis:
        """Return the result of `analyse`, remembered.

        A thread or a process analyses, and continues after a cancellation, for the other submissions.
        """
        entry = grader.entry_point, grader.method
        key = (tuple(grader.tests), grader.setup, *entry, grader.integrity)
        cached = self._analyses.get(key)
        if cached is None:
            cached = asyncio.ensure_future(self._analyse(grader, _length(key)))
            self._analyses[key] = cached
            self._characters += _length(key)
            cached.add_done_callback(lambda done: self._remember(key, done))
        self._analyses.move_to_end(key)
        return cached.result() if cached.done() else await asyncio.shield(cached)

    async def _analyse(self, grader: AssertsGrader, length: int) -> Analysis:
        if length <= _LARGE_CHARACTERS:
            return await asyncio.to_thread(analyse, grader)
        async with self._large:
            return await asyncio.to_thread(analyse_apart, grader)

    def _remember(self, key: _Key, done: asyncio.Future[Analysis]) -> None:
        """Forget a failed analysis, and the oldest analyses above the bound."""
        if done.cancelled() or done.exception() is not None:
            self._forget(key)
        elif key in self._analyses:
            self._characters += _plan_length(done)
        while self._characters > _REMEMBERED_CHARACTERS:
            self._forget(next(iter(self._analyses)))

    def _forget(self, key: _Key) -> None:
        found = self._analyses.pop(key, None)
        if found is not None:
            self._characters -= _length(key) + _plan_length(found)


def _length(key: _Key) -> int:
    tests, setup, *_ = key
    return sum(map(len, tests)) + len(setup) + _ENTRY_CHARACTERS


def _plan_length(analysis: asyncio.Future[Analysis]) -> int:
    """Return the weight of the plan of a finished analysis."""
    if not analysis.done() or analysis.cancelled() or analysis.exception() is not None:
        return 0
    plan = analysis.result().plan
    return 0 if plan is None else plan.weight


async def judge_by_plan(
    submission: Submission, grader: AssertsGrader, backend: Sandboxes, plan: CallPlan, setup: str
) -> Judgement:
    """Judge with a single sandbox; the setup runs before the submission.

    Raises NotDecidable if this process cannot compare a result.
    """
    job = python_message(
        submission, "calls", imports=plan.imports, setup=setup, count=len(plan.calls)
    )
    limits, environment = submission.limits, submission.environment
    finished = await run_calls(backend, job, limits, environment, plan.calls, submission.state)

    def judged() -> tuple[Messages, list[tuple[str, Raised | None]]]:
        messages = understand(finished.lines, len(plan.calls))
        return messages, outcomes(plan, messages, grader)

    # Expected values are encoded, too: long ones are decoded in a thread, however short the results.
    few_bytes = _MOST_BYTES_IN_THE_LOOP - plan.weight
    messages, tests = await parsed(finished, few_bytes, judged)
    return conclude(finished, messages, tests, partial(_test_of, plan))


def _test_of(plan: CallPlan, call: int) -> int | None:
    """Return the first test in need of this call's result; None for a call of the setup."""
    if call in plan.setup.calls:
        return None
    return next((at for at, test in enumerate(plan.tests) if call in test.calls), None)


def outcomes(
    plan: CallPlan, messages: Messages, grader: AssertsGrader
) -> list[tuple[str, Raised | None]]:
    """Return each test's text and its problem; the problem of a passed test is None."""
    in_setup = _problem(plan.setup, messages, reveal=grader.reveal)
    found = []
    for index, test in enumerate(plan.tests):
        problem = in_setup or _problem(test, messages, reveal=grader.reveal)
        text = ""
        if problem is not None:
            text = (
                grader.tests[index][:_SHOWN]
                if grader.reveal
                else test.checks[0].shown
                if test.checks
                else f"test {index}"
            )
        found.append((text, problem))
    return found


def _problem(test: PlannedTest, messages: Messages, *, reveal: bool) -> Raised | None:
    """Return the problem of a failed test; None for a passed test.

    The problem is the first failed check, or an earlier call without a result. A check may also
    need a call of an earlier test.
    """
    stopped = _unanswered(test.calls, messages)
    for check in test.checks:
        missing = _unanswered(check.calls, messages)
        if missing is not None:
            return stopped or missing
        failure = _failure(check, messages.answers, reveal)
        if failure is not None:
            return failure
    return stopped


def _unanswered(calls: Sequence[int], messages: Messages) -> Raised | None:
    """Return why the first call without a result has none, or None."""
    for number in calls:
        answer = messages.answers[number] if number < len(messages.answers) else NOT_REACHED
        if isinstance(answer, Raised):
            return answer
    return None


def _failure(check: Condition, answers: Sequence[Any], reveal: bool) -> Raised | None:
    try:
        if holds(check, answers):
            return None
    except values.Malformed:
        return Raised("failed", f"{check.shown} returned no proper value")
    except NotDecidable:
        raise
    except Exception as error:  # a formula may raise anything on a value of an unexpected type
        return Raised("failed", f"the test raises {type(error).__name__} ({check.shown})")
    if check.formula is not None:
        returned = ", ".join(shown(answers[number]) for number in check.calls[:4])
        text = f"a condition on results does not hold; returned: {returned}"
        return Raised("failed", f"{text}: {check.text}" if reveal else text)
    if _is_object(answers[check.calls[0]]):
        return Raised("failed", f"{NEED_DATA}: {check.shown}", signal=OBJECT_FOR_DATA)
    text = f"{check.shown} returned {shown(answers[check.calls[0]])}"
    if reveal and check.expected:
        expected = values.decode(values.loads(check.expected))
        text += f", and not {check.symbol} {show(expected, _SHOWN)}"
    return Raised("failed", text)


def _is_object(line: bytes) -> bool:
    """Tell whether an answer is an object other than data."""
    return line.startswith(b'["h",') and b'"base"' not in line[:_SHOWN_BYTES]


def holds(check: Condition, answers: Sequence[bytes]) -> bool:
    """Return True if a condition holds for the encoded results of all calls.

    Raises NotDecidable, Malformed for a forged encoding, and any exception of a formula.
    """
    if check.formula is not None:
        cached: dict[int, Any] = {}

        def result(number: int) -> Any:
            if number not in cached:
                line = answers[number]
                if len(line) > _LARGEST_PARSED_BYTES:
                    raise NotDecidable("a large value")
                wire, decoder = values.loads(line), values.Decoder()
                cached[number] = decoder.decode(wire)
                if decoder.expanded_bytes > _MOST_EXPANDED_TIMES * len(line) + _SHOWN_BYTES:
                    raise NotDecidable("a value with shared parts")
                if not _OTHER_CLASSES.isdisjoint(tag for tag, _ in _tagged(wire)):
                    raise NotDecidable("a value of another class")
            return cached[number]

        return _is_true(value_of(check.formula, result))
    line = answers[check.calls[0]]
    if check.expected:
        return _compares(check, line)
    return _truth(line) is (check.symbol != "not")


def _compares(check: Condition, line: bytes) -> bool:
    symbol = check.symbol
    if symbol == "==" and line == check.expected and not _NAN.search(line):
        return True
    expected_wire, decoder = values.loads(check.expected), values.Decoder()
    expected = decoder.decode(expected_wire)
    if len(line) > decoder.expanded_bytes * _LONGER_AT_MOST + _LONGEST_ITEM_BYTES:
        if symbol in ("==", "is"):
            return False
        if symbol in ("!=", "is not"):
            return True
        raise NotDecidable("a large value")
    if len(line) > _LARGEST_PARSED_BYTES:
        raise NotDecidable("a large value")
    wire = values.loads(line)
    value = _plain(wire, expected_wire)
    if symbol in ("is", "is not"):  # None, True and False are encoded as themselves
        return COMPARISONS[symbol](wire, expected) is True
    if symbol == "!=" and _holds_object(wire):
        return False  # its class decides what it equals
    left, right = (expected, value) if check.reflected else (value, expected)
    try:
        return bool(COMPARISONS[symbol](left, right))
    except (TypeError, RecursionError, ArithmeticError):
        return False


def shown(line: bytes) -> str:
    """Return a short text of the value; "a value" for other values than plain data.

    Of a large value the text only gives the number of bytes.
    """
    if len(line) > _SHOWN_BYTES:
        return f"a value of {len(line)} bytes"
    try:
        return show(_plain(values.loads(line)))
    except NotDecidable:
        return "a value of numpy's"
    except (ValueError, RecursionError):
        return "a value"


def _holds_object(wire: Any) -> bool:
    """Tell whether a wire form has an object other than data."""
    return any(tag == "h" and "base" not in item[-1] for tag, item in _tagged(wire))


def _truth(line: bytes) -> bool:
    if len(line) > _TRUTH_BYTES:
        if not line.startswith((b'"', *_TRUE)):
            raise NotDecidable("a large value")
        return True
    return _is_true(_plain(values.loads(line)))


def _is_true(value: Any) -> bool:
    if isinstance(value, values.Opaque):
        return value.truth is True  # None: a class with its own truth; the tests expect data
    # NotImplemented is true; `bool` of it would warn, and some settings turn warnings into errors.
    return value is NotImplemented or bool(value)


def _plain(wire: Any, expected: Any = None) -> Any:
    """Return the value of a wire form, to be compared with another form's value.

    numpy makes the literal as narrow as a scalar of its own, and `float16(inf) == 3628800` would hold.
    Here the scalar becomes as wide as the literal. Raises NotDecidable for an array, and for a narrow
    scalar against a literal with fractions, which is equal only if narrow, too.
    """
    value = values.decode(wire)
    for tag, item in _tagged(wire):
        if tag == "nd" or (tag == "ns" and not _compares_as_plain(item[1], expected)):
            raise NotDecidable("a value of numpy's")
    return value


def _compares_as_plain(form: Any, expected: Any) -> bool:
    """Tell whether numpy's scalars of a type compare with an expected value like the plain values."""
    if type(form) is not str or form[1:] in _NARROW_FRACTIONS:
        return type(form) is str and not _has_fraction(expected)
    return form[1:2] in "biuSU" or form[1:] in ("f8", "c16")


def _has_fraction(wire: Any) -> bool:
    todo = [wire]
    while todo:
        item = todo.pop()
        if isinstance(item, float):
            return True
        if isinstance(item, list):
            todo += item
    return False


def _tagged(wire: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield the tagged forms in a wire form, with their tags."""
    todo = [wire]
    while todo:
        item = todo.pop()
        if isinstance(item, list):
            if item and isinstance(item[0], str):
                yield item[0], item
            todo += item
        elif isinstance(item, dict):
            todo += item.values()


def rules(_: object) -> tuple[GraderRules, ...]:
    """Return the rules of `asserts`, for the registry."""
    return (AssertsJudge().rules,)
