"""`calls`: an entry point, and for each case its arguments and the value that it must return.

Arguments and values are JSON here, and JSON has no tuples and only text as keys. So a tuple equals the
list of its items, and a dict's keys are compared as JSON would write them.
"""

from __future__ import annotations

import json
from typing import Any

from proctor_client.wire import Call, CallsGrader
from proctor_service.inside import values
from proctor_service.judge import compare
from proctor_service.judge.frames import Raised, understand
from proctor_service.judge.graders.answers import NOT_REACHED, conclude
from proctor_service.judge.run import python_message, run
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.judge.tolerance import close
from proctor_service.sandbox.interface import Backend

_SPARE_BYTES = 65_536
_LONGER_AT_MOST = 24


async def judge(submission: Submission, grader: CallsGrader, backend: Backend) -> Judgement:
    """Judges with one sandbox; expected values stay here."""
    calls = [
        [grader.entry_point, values.encode(case.args), values.encode(case.kwargs)]
        for case in grader.cases
    ]
    job = python_message(submission, "calls", calls=calls, imports=[])
    finished = await run(backend, job, submission.limits, state=submission.state)
    said = understand(finished.lines, len(calls))
    tests = []
    for index, case in enumerate(grader.cases):
        answer = said.answers[index] if index < len(said.answers) else None
        tests.append((_shown(grader.entry_point, case), _problem(answer, case, grader)))
    return conclude(finished, said, tests)


def _problem(answer: bytes | Raised | None, case: Call, grader: CallsGrader) -> Raised | None:
    if answer is None:
        return NOT_REACHED
    if isinstance(answer, Raised):
        return answer
    if _equal(answer, case.expected, grader.tolerance):
        return None
    text = f"{_shown(grader.entry_point, case)} returned {compare.shown(answer)}"
    if grader.reveal:
        text += f", and not {json.dumps(case.expected)[:300]}"
    return Raised("failed", text)


def _equal(line: bytes, expected: Any, tolerance: float) -> bool:
    if len(line) > len(json.dumps(expected)) * _LONGER_AT_MOST + _SPARE_BYTES:
        return False
    try:
        value = _as_json(values.decode(values.loads(line)))
        if tolerance:
            return close(value, expected, tolerance)
        return bool(value == expected)
    except (values.Malformed, RecursionError, TypeError, ArithmeticError):
        return False


def _as_json(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        return {_key(key): _as_json(item) for key, item in value.items()}
    return value


def _key(key: Any) -> Any:
    if key is None or isinstance(key, bool):
        return json.dumps(key)
    return str(key) if isinstance(key, int | float) and abs(key) < 1e300 else key


def _shown(entry_point: str, case: Call) -> str:
    words = [json.dumps(value) for value in case.args]
    words += [f"{name}={json.dumps(value)}" for name, value in case.kwargs.items()]
    text = f"{entry_point}({', '.join(words)})"
    return text if len(text) <= 300 else text[:297] + "…"
