"""`asserts` at level `calls`: call the submission's functions, compare their results here.

The results are hostile data, compared with Python's operators. The size of the expected value bounds
how much of a result is parsed: a far longer encoding can never be equal and stays unparsed. Other
results larger than a megabyte are left to a test sandbox (NotDecidable), because parsing them would
block this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from proctor_client.wire import AssertsGrader
from proctor_service.codec import values
from proctor_service.codec.safe_repr import show
from proctor_service.judge.analysis.formulas import Check, NotDecidable
from proctor_service.judge.analysis.plan import Plan, PlannedTest
from proctor_service.judge.run import python_message, run
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.judge.verdict import NOT_REACHED, Raised, Said, conclude, understand
from proctor_service.sandbox.interface import Sandboxes

_SHOWN = 300
_MOST_BYTES_IN_THE_LOOP = 32_768
# Largest ratio between encodings of equal items: Fraction(1, 1) against 1, with brackets.
_LONGER_AT_MOST = 24
_SPARE_BYTES = 4096
_TRUTH_BYTES = 65_536
_LARGEST_PARSED_BYTES = 1 << 20


async def judge(
    submission: Submission, grader: AssertsGrader, backend: Sandboxes, plan: Plan
) -> Judgement:
    """Judge with one sandbox. Raises NotDecidable if this process cannot compare a result."""
    job = python_message(submission, "calls", imports=plan.imports)
    job = job[:-2] + b', "calls": ' + plan.calls_json.encode("ascii") + b"}\n"
    finished = await run(backend, job, submission.limits, state=submission.state)
    said = understand(finished.lines, plan.count)
    if sum(map(len, finished.lines)) > _MOST_BYTES_IN_THE_LOOP:
        tests = await asyncio.to_thread(_outcomes, plan, said, grader)
    else:
        tests = _outcomes(plan, said, grader)
    return conclude(finished, said, tests)


def _outcomes(plan: Plan, said: Said, grader: AssertsGrader) -> list[tuple[str, Raised | None]]:
    """Return each test's text and its problem; the problem of a passed test is None."""
    answers = [each if isinstance(each, bytes) else b"" for each in said.answers]
    outcomes = []
    for index, test in enumerate(plan.tests):
        problem = _problem(test, said, answers, reveal=grader.reveal)
        text = ""
        if problem is not None:
            text = (
                grader.tests[index][:_SHOWN]
                if grader.reveal
                else test.checks[0].shown
                if test.checks
                else f"test {index}"
            )
        outcomes.append((text, problem))
    return outcomes


def _problem(test: PlannedTest, said: Said, answers: list[bytes], *, reveal: bool) -> Raised | None:
    """Return the problem of a failed test; None for a passed test.

    The problem is the first failed check, or an earlier call without a result.
    """
    stopped: Raised | None = None
    returned: set[int] = set()
    for number in test.calls:
        answer = said.answers[number] if number < len(answers) else NOT_REACHED
        if isinstance(answer, Raised):
            stopped = answer
            break
        returned.add(number)
    for check in test.checks:
        if not returned.issuperset(check.calls):
            break
        failure = _failure(check, answers, reveal)
        if failure is not None:
            return failure
    return stopped


def _failure(check: Check, answers: list[bytes], reveal: bool) -> Raised | None:
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
    text = f"{check.shown} returned {shown(answers[check.calls[0]])}"
    if reveal and check.compare is not None:
        text += f", and not {check.symbol} {show(check.expected, _SHOWN)}"
    return Raised("failed", text)


def holds(check: Check, answers: Sequence[bytes]) -> bool:
    """Return True if a condition holds for the encoded results of all calls.

    Raises NotDecidable, Malformed for a forged encoding, and any exception of a formula.
    """
    if check.formula is not None:
        known: dict[int, Any] = {}

        def result(number: int) -> Any:
            if number not in known:
                if len(answers[number]) > _LARGEST_PARSED_BYTES:
                    raise NotDecidable("a large value")
                known[number] = _plain(values.loads(answers[number]))
            return known[number]

        return bool(check.formula(result))
    line = answers[check.calls[0]]
    if check.compare is None:
        return _truth(line) is not check.negated
    return _compares(check, line)


def _compares(check: Check, line: bytes) -> bool:
    assert check.compare is not None
    if len(line) > check.wire_bytes * _LONGER_AT_MOST + _SPARE_BYTES:
        if check.symbol in ("==", "is"):
            return False
        if check.symbol in ("!=", "is not"):
            return True
        raise NotDecidable("a large value")
    if len(line) > _LARGEST_PARSED_BYTES:
        raise NotDecidable("a large value")
    wire = values.loads(line)
    if check.symbol == "==" and wire == check.wire:
        return True
    value = _plain(wire)
    left, right = (check.expected, value) if check.reflected else (value, check.expected)
    try:
        return bool(check.compare(left, right))
    except (TypeError, RecursionError, ArithmeticError):
        return False


def shown(line: bytes) -> str:
    """Return a short text of the value; "a value" if the value is not plain data.

    Of a large value the text only gives the number of bytes.
    """
    if len(line) > _SPARE_BYTES:
        return f"a value of {len(line)} bytes"
    try:
        return show(_plain(values.loads(line)))
    except NotDecidable:
        return "an array"
    except (ValueError, RecursionError):
        return "a value"


def _truth(line: bytes) -> bool:
    if len(line) > _TRUTH_BYTES:
        return not line.startswith(b'["h"')  # an empty or zero value has a shorter encoding
    value = _plain(values.loads(line))
    if isinstance(value, values.Opaque):
        return value.truth is True  # None: a class with its own truth; the tests expect data
    # NotImplemented is true; `bool` of it would warn, and some settings turn warnings into errors.
    return value is NotImplemented or bool(value)


def _plain(wire: Any) -> Any:
    """Return the value of a wire form. Raises NotDecidable for a numpy array at any depth."""
    value = values.decode(wire)
    todo = [wire]
    while todo:
        item = todo.pop()
        if isinstance(item, list):
            if item and item[0] == "nd":
                raise NotDecidable("an array")
            todo += item
        elif isinstance(item, dict):
            todo += item.values()
    return value
