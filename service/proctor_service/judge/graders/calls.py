"""`calls`: an entry point, and for each case its arguments and the expected return value.

Arguments and values are JSON. JSON has no tuples and only text as keys; `json_answers.py` defines
equality.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

from proctor_client.wire import MAX_FAILURES, Call, CallsGrader
from proctor_service.codec import values
from proctor_service.judge.graders.asserts_calls import shown
from proctor_service.judge.json_answers import is_answer
from proctor_service.judge.run import parsed, python_message, run_calls
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.judge.verdict import NOT_REACHED, Raised, Said, conclude, understand
from proctor_service.sandbox.interface import Sandboxes

_FEW_BYTES = 4096  # total size of results compared in the event loop within a few ms
_FEW_LINES_BYTES = 1 << 16  # total size of messages parsed there
_NOT_DESCRIBED = Raised("failed", "it returned another value")


async def judge(submission: Submission, grader: CallsGrader, backend: Sandboxes) -> Judgement:
    """Judge with one sandbox; expected values stay in the service."""
    calls = [
        values.dumps(
            [
                grader.entry_point,
                values.encode(_arguments(case, grader)),
                values.encode(case.kwargs),
            ]
        )
        for case in grader.cases
    ]
    job = python_message(submission, "calls", count=len(calls), plain_arrays=True)
    finished = await run_calls(backend, job, submission.limits, calls, submission.state)
    said = await parsed(finished, _FEW_LINES_BYTES, partial(understand, finished.lines, len(calls)))
    if sum(len(answer) for answer in said.answers if isinstance(answer, bytes)) <= _FEW_BYTES:
        return conclude(finished, said, _tests(said, grader))
    return conclude(finished, said, await asyncio.to_thread(_tests, said, grader))


def _tests(said: Said, grader: CallsGrader) -> list[tuple[str, Raised | None]]:
    """Return each case and its problem; the problem of a passed case is None."""
    tests: list[tuple[str, Raised | None]] = []
    told = 0
    for index, case in enumerate(grader.cases):
        answer = said.answers[index] if index < len(said.answers) else None
        problem = _problem(answer, case, grader, describe=told < MAX_FAILURES)
        told += problem is not None
        tests.append((_shown(grader.entry_point, case), problem))
    return tests


def _problem(
    answer: bytes | Raised | None, case: Call, grader: CallsGrader, *, describe: bool
) -> Raised | None:
    if answer is None:
        return NOT_REACHED
    if isinstance(answer, Raised):
        return answer
    if any(is_answer(answer, each, grader.tolerance) for each in _accepted(case, grader)):
        return None
    if not describe:
        return _NOT_DESCRIBED
    text = f"{_shown(grader.entry_point, case)} returned {shown(answer)}"
    if grader.reveal:
        text += f", and not {json.dumps(case.expected)[:300]}"
    return Raised("failed", text)


def _arguments(case: Call, grader: CallsGrader) -> list[Any]:
    if grader.equality != "apps":
        return case.args
    return [_with_integer_keys(each) if isinstance(each, dict) else each for each in case.args]


def _with_integer_keys(value: dict[str, Any]) -> dict[Any, Any]:
    try:
        return {int(key): each for key, each in value.items()}
    except ValueError:
        return value


def _accepted(case: Call, grader: CallsGrader) -> list[Any]:
    """Return the values that are right: the expected one, and for `apps` the only item of a list."""
    expected: Any = case.expected
    is_single = isinstance(expected, list) and len(expected) == 1
    return [expected, *(expected if is_single and grader.equality == "apps" else ())]


def _shown(entry_point: str, case: Call) -> str:
    words = [json.dumps(value) for value in case.args]
    words += [f"{name}={json.dumps(value)}" for name, value in case.kwargs.items()]
    text = f"{entry_point}({', '.join(words)})"
    return text if len(text) <= 300 else text[:297] + "…"
