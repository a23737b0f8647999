"""Verdicts: from the messages and the ending of a submission's program to its judgement.

The messages of the submission's interpreter are untrusted: a hostile submission may write anything
on the channel. Any line that an honest interpreter would not send next is forged: the judgement gets
the signal `forged_result`, and later lines are ignored.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from proctor_client.wire import MAX_FAILURES, Failure, Verdict
from proctor_service.codec.values import Malformed, loads_message
from proctor_service.errors import SandboxLost
from proctor_service.judge.run import Run
from proctor_service.judge.submission import Judgement
from proctor_service.sandbox.interface import Ended

FORGED = "forged_result"
OBJECT_FOR_DATA = "object_for_data"
NEED_DATA = "the submission returned an object; these tests need data"
LIMITS: Mapping[str, tuple[Verdict, str]] = MappingProxyType(
    {
        "cpu_limit": ("timeout", "time limit: it used more CPU time than it may"),
        "wall_limit": ("timeout", "time limit: it waited for longer than it may"),
        "memory_limit": ("memory_limit", "memory limit: it used more memory than it may"),
        "output_limit": ("output_limit", "output limit: it wrote more than it may"),
    }
)
"""Verdict and message for each limit that may end a program."""


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception of the submission: its verdict, and a text for people and models.

    `signal`: the hack signal of the problem, or "".
    """

    verdict: Verdict
    summary: str
    traceback: str = ""
    signal: str = ""


@dataclass(slots=True)
class Said:
    """All messages of a run. `answers`: for each call its encoded value or its exception.

    `reached`: the word that a script sent at its end.
    """

    loaded: bool = False
    reached: str | None = None
    done: bool = False
    forged: bool = False
    stopped: Raised | None = None
    answers: list[bytes | Raised] = field(default_factory=list)


NOT_REACHED = Raised("failed", "not reached")


def understand(lines: Iterable[bytes], calls: int = 0) -> Said:
    """Parse the lines of a run with `calls` requested calls.

    Values stay unparsed: the expected value decides how much of a value is parsed.
    """
    said = Said()
    for line in lines:
        if said.done or said.stopped is not None:
            said.forged = True
            break
        expected = b'["value",%d,' % len(said.answers)
        if said.loaded and len(said.answers) < calls and line.startswith(expected):
            said.answers.append(line[len(expected) : -1])
            continue
        try:
            _take(said, loads_message(line), calls)
        except (Malformed, TypeError, ValueError, IndexError, KeyError):
            said.forged = True
        if said.forged:
            break
    return said


def _take(said: Said, frame: Any, calls: int) -> None:
    match frame:
        case ["loaded"] if not said.loaded:
            said.loaded = True
        case ["reached", str(word)] if said.reached is None:
            said.reached = word
        case ["done"] if said.loaded and len(said.answers) == calls:
            said.done = True
        case ["syntax", _] | ["raised" | "exit", "load", *_] if not said.loaded:
            said.stopped = not_loaded(frame)
        case ["raised", int(index), *rest] if said.loaded and index == len(said.answers) < calls:
            said.answers.append(_raised(rest))
        case ["exit", int(index), int(code)] if said.loaded and index == len(said.answers) < calls:
            said.stopped = _left(code)
        case ["ended", int(index), str(name)] if said.loaded and index == len(said.answers) < calls:
            said.stopped = Raised("runtime_error", f"the program ended itself: {name[:200]}")
        case _:
            said.forged = True


def not_loaded(frame: list[Any]) -> Raised:
    """Return the load failure that a message reports. Raises ValueError for another message."""
    match frame:
        case ["syntax", str(message)]:
            return Raised("syntax_error", f"SyntaxError: {message}")
        case ["raised", "load", *rest]:
            return _raised(rest)
        case ["exit", "load", int(code)]:
            return _left(code)
    raise ValueError("not why a submission did not load")


def _raised(rest: list[Any]) -> Raised:
    """Parse [type name, message, traceback, class names]. Raises ValueError for another shape."""
    name, message, traceback, names = rest
    if not all(isinstance(text, str) for text in (name, message, traceback)):
        raise ValueError("not an exception")
    summary = f"{name}: {message}" if message else str(name)
    return Raised(of_exception(names), summary[:2000], traceback)


def _left(code: int) -> Raised:
    """Return the result of a SystemExit before the end."""
    return Raised("early_exit", f"the program left with SystemExit({code}) before its end")


def of_silence(ended: Ended) -> tuple[Verdict, str]:
    """Return the verdict of a program that ended within its limits, before it answered.

    Raises SandboxLost if the service ended the program: the submission then has no verdict.
    """
    if ended.ending == "killed":
        raise SandboxLost("the sandbox was ended before the submission had answered")
    if ended.signal is not None:
        return "runtime_error", f"the program died of {_signal_name(ended.signal)}"
    return "early_exit", f"the program left with code {ended.exit_code} before it had answered"


def of_exception(names: object) -> Verdict:
    """Return the verdict of an exception, from the names of its class and base classes."""
    known = names if isinstance(names, list) else []
    if "MemoryError" in known:
        return "memory_limit"
    if "AssertionError" in known:
        return "failed"
    return "runtime_error"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, slots=True)
class TestCounts:
    """Summary of test outcomes: the problem of the first failed test, and the signals of all."""

    passed: int
    total: int
    failures: tuple[Failure, ...]
    first: Raised | None
    signals: frozenset[str]


def count_tests(tests: Iterable[tuple[str, Raised | None]]) -> TestCounts:
    """Count tests. Each test is a text and its problem; the problem of a passed test is None."""
    total = passed = 0
    failures: list[Failure] = []
    first: Raised | None = None
    signals: set[str] = set()
    for index, (shown, problem) in enumerate(tests):
        total += 1
        if problem is None:
            passed += 1
            continue
        first = first or problem
        signals.add(problem.signal)
        if len(failures) < MAX_FAILURES:
            failures.append(Failure(index=index, test=shown, message=problem.summary))
    return TestCounts(passed, total, tuple(failures), first, frozenset(signals - {""}))


def conclude(
    finished: Run,
    said: Said,
    tests: Iterable[tuple[str, Raised | None]],
    test_of: Callable[[int], int | None] = lambda call: call,
) -> Judgement:
    """Return the judgement from the interpreter's messages and the outcome of each test.

    `test_of`: returns the test that a call belongs to.
    """
    counted = count_tests(tests)
    limited = LIMITS.get(finished.ended.ending)
    problem = said.stopped or counted.first
    at = None
    if limited is not None:
        verdict, message = limited
        if finished.loaded or said.loaded:
            at = test_of(len(said.answers))
    elif not said.done and said.stopped is None:
        if said.forged:
            verdict, message = "failed", "what the program sent is no answer"
        else:
            verdict, message = of_silence(finished.ended)
    elif problem is not None:
        verdict, message = problem.verdict, problem.traceback or problem.summary
    else:
        verdict, message = "passed", ""
    return finished.judgement(
        verdict,
        passed=counted.passed,
        total=counted.total,
        failures=counted.failures,
        message=message,
        limited=at,
        **evidence(finished, said, verdict, counted.signals),
    )


def evidence(
    finished: Run, said: Said, verdict: Verdict, more: frozenset[str] = frozenset()
) -> dict[str, object]:
    """Return the hack signals visible in a run, and how a run without a report ended."""
    signals = [FORGED] if said.forged else []
    if verdict == "early_exit":
        signals.append("early_exit")
    signals += sorted(more)
    reported = said.done or said.reached or said.stopped or said.forged
    expected = reported or finished.ended.ending in LIMITS
    unreported = "" if expected else finished.how_it_ended()
    return {"hack_signals": tuple(signals), "unreported": unreported}
