"""A program in a fresh sandbox: its messages, its ending, and its judgement.

The submission's snapshot is restored in each of its sandboxes before the program starts. A failed restore
is a verdict: only the agent's files can cause the failure, and an error would let the agent avoid a bad
reward. The sandbox always has room for an honest snapshot.

The messages of the submission's interpreter are untrusted: a hostile submission may write anything on the
channel. Any line out of an honest interpreter's order is forged: the judgement gets the signal
`forged_result`, and later lines are ignored.
"""

from __future__ import annotations

import asyncio
import json
import math
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

from proctor_client.wire import MAX_FAILURES, Failure, Verdict
from proctor_service.codec.limits import MAX_LINE_BYTES
from proctor_service.codec.values import Malformed, loads_message
from proctor_service.errors import InvalidTask, SandboxLost
from proctor_service.guest.channel import BEGAN, LOADED, TIMED
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Ended, GuestMessage, Limits, Sandbox, Sandboxes

T = TypeVar("T")

_LOADED = LOADED.rstrip(b"\n")
_ANSWERS = (b'["value",', b'["raised",')
_LOADED_FRAME, _DONE_FRAME = b'["loaded"]', b'["done"]'
_ROOM_STEP_MB = 64  # few disk sizes, so sandboxes with a snapshot are easier to reuse
_MOST_PADDING_BYTES = 64 << 20  # one page for each file a sandbox may hold
_LONGER_AT_MOST = 8  # a file's header in the archive against the page of the file on disk


class RunnerFailed(Exception):
    """Failure of our runner before the submission began. The message is the traceback."""


class Unfit(Exception):
    """The submission's files could not be restored or written. Carries the resulting judgement."""

    def __init__(self, judgement: Judgement) -> None:
        super().__init__(judgement.message)
        self.judgement = judgement


class JobTooLong(Exception):
    """The line with a job is longer than a sandbox reads."""


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run: the lines on the channel, the ending, and the sandbox's name."""

    lines: tuple[bytes, ...]
    ended: Ended
    sandbox_id: str
    loaded: bool = False
    """The program of a run of calls was loaded before its first answer; may be forged."""
    fault: str = ""
    """Traceback of a runner with a failure after the submission's start; may be forged."""

    def how_it_ended(self) -> str:
        """Describe, for the logs, an ending without a report; omits all text of the submission."""
        ended = self.ended
        last = (
            self.lines[-1][:12].partition(b",")[0].decode("ascii", "replace") if self.lines else ""
        )
        failed = self.fault.rstrip().rpartition("\n")[2].partition(":")[0][:100]
        return (
            f"{ended.ending}, code {ended.exit_code}, signal {ended.signal}, "
            f"{len(self.lines)} lines, the last {last or 'none'}"
            + (f", runner failed: {failed}" if failed else "")
        )

    def check_blame(self) -> None:
        """Raise SandboxLost if the cause of this run's failure may be outside the submission."""
        if self.ended.doubt:
            raise SandboxLost(self.ended.doubt)

    def judgement(self, verdict: str, **more: object) -> Judgement:
        """Return a judgement with this run's output, usage and exit code.

        Raises SandboxLost as `check_blame`, except for `passed`.
        """
        ended = self.ended
        if verdict != "passed":
            self.check_blame()
        fields: dict[str, object] = {
            "stdout": text_of(ended.stdout),
            "stderr": text_of(ended.stderr),
            "truncated": ended.truncated,
            "exit_code": ended.exit_code,
            "usage": ended.usage,
            "sandbox_id": self.sandbox_id,
            **more,
        }
        return Judgement(verdict=verdict, **fields)  # type: ignore[arg-type]


async def parsed(finished: Run, few_bytes: int, parse: Callable[[], T]) -> T:
    """Return `parse()` of the run's lines; of more than `few_bytes` in a thread.

    A submission chooses the size of its lines, which must not hold up the event loop.
    """
    if sum(map(len, finished.lines)) <= few_bytes:
        return parse()
    return await asyncio.to_thread(parse)


def text_of(output: bytes) -> str:
    """Decode output as UTF-8; invalid bytes become backslash escapes."""
    return output.decode("utf-8", "backslashreplace")


def message(kind: str, **fields: object) -> bytes:
    """Return the line that tells a sandbox its job. Raises JobTooLong."""
    line = json.dumps({"kind": kind, **fields}).encode("ascii") + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise JobTooLong
    return line


def python_message(submission: Submission, mode: str, **fields: object) -> bytes:
    """Return the job of running a Python submission: `calls`, `script` or `serve`."""
    if mode == "calls" and submission.scoring != "all":
        fields["says_loaded"] = True  # tells whether a limit ended the load or the first call
    return message(
        "python", mode=mode, source=submission.source, files=dict(submission.files), **fields
    )


def room_for(limits: Limits, state: bytes | None) -> Limits:
    """Return the limits of a sandbox with this snapshot; `disk_mb` grows to make room."""
    if not state:
        return limits
    size = len(state)
    unpacked = size + min(size * _LONGER_AT_MOST, _MOST_PADDING_BYTES)
    steps = math.ceil(unpacked / (_ROOM_STEP_MB << 20))
    return replace(limits, disk_mb=limits.disk_mb + steps * _ROOM_STEP_MB)


def begin(sandbox: Sandbox, program: GuestMessage, state: bytes | None) -> None:
    """Start a program of the submission after restoring its snapshot."""
    if not state:
        sandbox.begin(program)
        return
    sandbox.begin(replace(program, line=message("state", size_bytes=len(state))))
    sandbox.send(state)
    sandbox.send(program.line)


async def run(
    backend: Sandboxes,
    job: bytes,
    limits: Limits,
    environment: str,
    keep_stdout_bytes: int = 0,
    state: bytes | None = None,
    data: bytes = b"",
    reports_tests: bool = False,
) -> Run:
    """Run a job to its end. `data`: bytes behind the job's line, which the line announces.

    Raises SandboxUnavailable and SandboxLost, and from `check_outcome` Unfit, InvalidTask and
    RunnerFailed. `reports_tests`: with each of its lines a test begins, which has its own limits of time.
    Forged lines gain the limits of all tests together, at most.
    """
    async with backend.lease(room_for(limits, state), environment) as sandbox:

        def on_line(_: bytes) -> None:
            sandbox.begin_test()

        heard = on_line if reports_tests else None
        begin(sandbox, GuestMessage(job, limits, keep_stdout_bytes, on_line=heard), state)
        if data:
            sandbox.send(data)
        finished = await _finished(sandbox)
    return check_outcome(finished)


async def _finished(sandbox: Sandbox) -> Run:
    ended = await sandbox.ended()
    lines = []
    while (line := await sandbox.receive()) is not None:
        lines.append(line)
    return Run(tuple(lines), ended, sandbox.id)


async def run_calls(
    backend: Sandboxes,
    job: bytes,
    limits: Limits,
    environment: str,
    calls: Sequence[bytes],
    state: bytes | None,
) -> Run:
    """Run a job of calls to its end: each call is a line, sent after the answer to the previous call.

    Each call has its own limits of time, and so has a long load of the program. Raises as `run`.
    """
    unsent = iter(calls)
    async with backend.lease(room_for(limits, state), environment) as sandbox:

        def on_line(line: bytes) -> None:
            if line.startswith(_ANSWERS) and (call := next(unsent, b"")):
                sandbox.begin_test()
                sandbox.send(call)
            elif line == _LOADED:
                sandbox.begin_test()

        # The first call comes with the job: each message wakes the program.
        first = job + next(unsent)
        begin(sandbox, GuestMessage(first, limits, takes_turns=True, on_line=on_line), state)
        return check_outcome(await _finished(sandbox))


async def opening(sandbox: Sandbox) -> tuple[bytes, ...]:
    """Return the first line, plus the second if the first reports the submission's start.

    A line with the start of the time, before the tests' setup, is left out.
    """
    first = await sandbox.receive()
    if first is not None and first.startswith(TIMED):
        first = await sandbox.receive()
    second = await sandbox.receive() if first is not None and first.startswith(BEGAN) else None
    return tuple(line for line in (first, second) if line is not None)


def check_outcome(finished: Run) -> Run:
    """Return the run without the lines of our runner: submission's start, later runner failure.

    Raises Unfit when putting the submission's files in place failed, InvalidTask when the grader's files
    are unusable, and RunnerFailed when a runner failed before the submission began. Only the first line
    can report these failures, because our runner always writes first.
    """
    lines = finished.lines
    if lines and lines[0].startswith(TIMED):
        lines = lines[1:]
        finished = replace(finished, lines=lines)
    first = lines[0] if lines else b""
    if first.startswith(BEGAN):
        loaded = lines[1:2] == (_LOADED,)
        fault = _second_item(lines[-1], b'["broken",')
        lines = lines[1 + loaded : len(lines) - (fault is not None)]
        return replace(finished, lines=lines, loaded=loaded, fault=fault or "")
    why = _second_item(first, b'["unfit",')
    if why is not None:
        text = f"its files could not be put in place: {why}"[:2000]
        raise Unfit(finished.judgement("runtime_error", message=text))
    why = _second_item(first, b'["unusable",')
    if why is not None:
        stderr = text_of(finished.ended.stderr)[-1000:].strip()
        raise InvalidTask(f"the tests cannot be run: {why}{stderr and chr(10)}{stderr}")
    fault = _second_item(first, b'["broken",')
    if fault is not None:
        raise RunnerFailed(f"before the submission began:\n{fault}")
    if finished.ended.ending in ("exited", "signalled"):
        how = finished.how_it_ended()
        raise RunnerFailed(f"the sandbox ended before the submission began: {how}")
    return finished


def _second_item(line: bytes, beginning: bytes) -> str | None:
    """Return the text in a two-item line with this beginning, else None.

    A submission may have forged the line.
    """
    if not line.startswith(beginning):
        return None
    try:
        _, text = loads_message(line)
    except (Malformed, ValueError):
        return None
    return text if isinstance(text, str) else None


def with_files(submission: Submission, name: str, source: str) -> dict[str, str]:
    """Return the submission's files plus its source, as a whole program, under `name`.

    An empty source leaves the snapshot's own file under `name` in place.
    """
    files = dict(submission.files)
    if submission.source or submission.state is None:
        files[name] = source
    return files


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
class Messages:
    """All messages of a run. `answers`: for each call its encoded value or its exception.

    `reached`: the word sent by a script at its end.
    """

    loaded: bool = False
    reached: str | None = None
    done: bool = False
    forged: bool = False
    stopped: Raised | None = None
    answers: list[bytes | Raised] = field(default_factory=list)


NOT_REACHED = Raised("failed", "not reached")


def understand(lines: Iterable[bytes], calls: int = 0) -> Messages:
    """Parse the lines of a run with `calls` requested calls.

    Values stay unparsed: the expected value decides how much of a value is parsed.
    """
    messages = Messages()
    for line in lines:
        if messages.done or messages.stopped is not None:
            messages.forged = True
            break
        expected = b'["value",%d,' % len(messages.answers)
        if messages.loaded and len(messages.answers) < calls and line.startswith(expected):
            messages.answers.append(line[len(expected) : -1])
            continue
        if line == _LOADED_FRAME and not messages.loaded:
            messages.loaded = True
            continue
        if line == _DONE_FRAME and messages.loaded and len(messages.answers) == calls:
            messages.done = True
            continue
        try:
            _take(messages, loads_message(line), calls)
        except (Malformed, TypeError, ValueError, IndexError, KeyError):
            messages.forged = True
        if messages.forged:
            break
    return messages


def _take(messages: Messages, frame: Any, calls: int) -> None:
    match frame:
        case ["reached", str(word)] if messages.reached is None:
            messages.reached = word
        case ["syntax", _] | ["raised" | "exit", "load", *_] if not messages.loaded:
            messages.stopped = not_loaded(frame)
        case [str(), int(index), *_] if messages.loaded and index == len(messages.answers) < calls:
            _take_answer(messages, frame)
        case _:
            messages.forged = True


def _take_answer(messages: Messages, frame: list[Any]) -> None:
    match frame:
        case ["raised", _, *rest]:
            messages.answers.append(_raised(rest))
        case ["exit", _, int(code)]:
            messages.stopped = _left(code)
        case ["ended", _, str(name)]:
            messages.stopped = Raised("runtime_error", f"the program ended itself: {name[:200]}")
        case _:
            messages.forged = True


def answer_to(line: bytes, index: int) -> Messages:
    """Parse a loaded program's line in answer to call `index`; see `understand`."""
    messages = Messages(loaded=True)
    expected = b'["value",%d,' % index
    if line.startswith(expected):
        messages.answers.append(line[len(expected) : -1])
        return messages
    try:
        frame = loads_message(line)
        messages.forged = type(frame) is not list or len(frame) < 3 or frame[1] != index
        if not messages.forged:
            _take_answer(messages, frame)
    except (Malformed, TypeError, ValueError, IndexError, KeyError):
        messages.forged = True
    return messages


def not_loaded(frame: list[Any]) -> Raised:
    """Return the load failure in a message. Raises ValueError for another message."""
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
    """Return the verdict of a program with an end within its limits, before its answer.

    Raises SandboxLost if the service ended the program: the submission then has no verdict.
    """
    if ended.ending == "killed":
        raise SandboxLost("the sandbox was ended before the submission had answered")
    if ended.signal is not None:
        return "runtime_error", f"the program died of {_signal_name(ended.signal)}"
    return "early_exit", f"the program left with code {ended.exit_code} before it had answered"


def of_exception(names: object) -> Verdict:
    """Return the verdict of an exception, from the names of its class and base classes."""
    classes = names if isinstance(names, list) else []
    if "MemoryError" in classes:
        return "memory_limit"
    if "AssertionError" in classes:
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
    messages: Messages,
    tests: Iterable[tuple[str, Raised | None]],
    test_of: Callable[[int], int | None] = lambda call: call,
) -> Judgement:
    """Return the judgement from the interpreter's messages and the outcome of each test.

    `test_of`: returns the test of a call.
    """
    counted = count_tests(tests)
    limited = LIMITS.get(finished.ended.ending)
    problem = messages.stopped or counted.first
    at = None
    if limited is not None:
        verdict, message = limited
        if finished.loaded or messages.loaded:
            at = test_of(len(messages.answers))
    elif not messages.done and messages.stopped is None:
        if messages.forged:
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
        **evidence(finished, messages, verdict, counted.signals),
    )


def evidence(
    finished: Run, messages: Messages, verdict: Verdict, more: frozenset[str] = frozenset()
) -> dict[str, object]:
    """Return the hack signals visible in a run, and how a run without a report ended."""
    signals = [FORGED] if messages.forged else []
    if verdict == "early_exit":
        signals.append("early_exit")
    signals += sorted(more)
    reported = messages.done or messages.reached or messages.stopped or messages.forged
    expected = reported or finished.ended.ending in LIMITS
    unreported = "" if expected else finished.how_it_ended()
    return {"hack_signals": tuple(signals), "unreported": unreported}
