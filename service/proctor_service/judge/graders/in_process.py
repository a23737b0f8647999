"""Graders with tests and submission in a single interpreter: `pytest`, and `asserts` at level `in_process`.

The tests see the submission's real objects, so every test of plain Python works. The submission can see
the tests too: the result is `in_process`. The messages of the test runner are untrusted: each line must
carry a secret word of the runner, and the last line a second secret. A line from the submission in the
runner's place is a forgery.

Test files without a test for pytest are found from their text alone.
"""

from __future__ import annotations

import ast
import asyncio
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from proctor_client.wire import MAX_FAILURES, AssertsGrader, Failure, PytestGrader, Verdict
from proctor_service.codec.values import Malformed, loads_message
from proctor_service.errors import InvalidTask
from proctor_service.guest.same_process.pytest_reporter import configures, files_to_collect
from proctor_service.judge.analysis.levels import Analysis
from proctor_service.judge.control.graders import of_pytest
from proctor_service.judge.python_source import syntax_tree
from proctor_service.judge.run import (
    FORGED,
    LIMITS,
    Raised,
    Run,
    message,
    not_loaded,
    of_silence,
    parsed,
    run,
)
from proctor_service.judge.submission import Control, GraderRules, Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes

_Argument = TypeVar("_Argument")
_Found = TypeVar("_Found")
_OUTCOMES = ("passed", "failed", "excused", "raised", "exit")
_VERDICTS: dict[str, Verdict] = {"raised": "runtime_error", "exit": "early_exit"}
_FINISHED_WELL = (0, 1)  # exit codes of pytest: all tests passed, some tests failed
_SHOWN = 300
_MOST_TESTS = 1_000_000  # a larger number is a forgery
_FEW_BYTES = 1 << 16  # total size of messages parsed on the event loop


@dataclass(slots=True)
class Report:
    """Messages of the test runner: number of tests, outcome of each test, and exit code.

    `loaded`: the tests have begun. `tests`: name, outcome and text of each test. `stopped`: the reason
    of a failed load.
    """

    collected: int = 0
    tests: list[tuple[str, str, str]] = field(default_factory=list)
    status: int | None = None
    stopped: Raised | None = None
    broken: str | None = None
    left: bool = False
    loaded: bool = False
    forged: bool = False


async def judge_pytest(
    submission: Submission, grader: PytestGrader, backend: Sandboxes
) -> Judgement:
    """Judge by test files importing the module `solution`; test files replace submitted files.

    Raises InvalidTask for files without a test, decided from their text, or files that cannot run.
    """
    if await _few_or_in_thread(sum(map(len, grader.files.values())), has_no_test, grader.files):
        raise InvalidTask("the grader's files have no test that pytest would collect")
    from_state = submission.state is not None and not submission.source
    source = None if from_state else submission.source
    finished, report = await _run(
        submission, backend, "pytest", grader.reveal, source=source, tests=grader.files
    )
    failed = [(name, text) for name, outcome, text in report.tests if outcome == "failed"]
    counted = sum(outcome != "excused" for _, outcome, _ in report.tests)
    not_told = max(report.collected - len(report.tests), 0)
    return _judgement(
        (finished, report, grader.reveal),
        pytest_verdict(finished, report, len(failed), counted),
        counted - len(failed),
        max(counted + not_told, 1),
        [
            Failure(index=index, test=name, message=text)
            for index, (name, text) in enumerate(failed[:MAX_FAILURES])
        ],
    )


async def judge_shared(
    submission: Submission, grader: AssertsGrader, backend: Sandboxes, analysis: Analysis
) -> Judgement:
    """Judge by test statements. Raises InvalidTask for invalid tests or missing modules."""
    tests = analysis.tests
    listed = [{"source": test.source, "run": test.run} for test in tests]
    before, setup = analysis.setup
    finished, report = await _run(
        submission, backend, "shared", grader.reveal,
        source=submission.source, before=before, setup=setup, tests=listed,
    )  # fmt: skip
    outcomes = _outcomes(report, len(tests))
    failed = [index for index, (outcome, _) in enumerate(outcomes) if outcome != "passed"]
    failures = [
        Failure(
            index=index,
            test=tests[index].source[:_SHOWN] if grader.reveal else f"test {index}",
            message=outcomes[index][1],
        )
        for index in failed[:MAX_FAILURES]
    ]
    verdict = _verdict_of(finished, report) or _shared_verdict(report, outcomes)
    passed = len(tests) - len(failed)
    judgement = _judgement((finished, report, grader.reveal), verdict, passed, len(tests), failures)
    limited = finished.ended.ending in LIMITS and report.loaded and not report.forged
    return replace(judgement, limited=len(report.tests) if limited else None)


async def _few_or_in_thread(
    size: int, function: Callable[[_Argument], _Found], argument: _Argument
) -> _Found:
    """Return `function(argument)`; for a large size, from a thread."""
    return function(argument) if size <= _FEW_BYTES else await asyncio.to_thread(function, argument)


async def _run(
    submission: Submission, backend: Sandboxes, kind: str, reveal: bool, **fields: object
) -> tuple[Run, Report]:
    word, end = secrets.token_hex(16), secrets.token_hex(16)
    files, tools = dict(submission.files), backend.traits.tools
    job = message(kind, files=files, tools=tools, word=word, end=end, **fields)
    finished = await run(
        backend,
        job,
        submission.limits,
        submission.environment,
        state=submission.state,
        reports_tests=True,
    )
    report = await parsed(finished, _FEW_BYTES, partial(read, finished, word, end, reveal=reveal))
    return finished, report


def _judgement(
    of: tuple[Run, Report, bool],
    verdict: tuple[Verdict, str],
    passed: int,
    total: int,
    failures: Sequence[Failure],
) -> Judgement:
    finished, report, reveal = of
    tried = {FORGED: report.forged, "early_exit": verdict[0] == "early_exit"}
    whole = report.status is not None or report.stopped is not None or report.left
    shown: dict[str, object] = {} if reveal else {"stdout": "", "stderr": ""}
    return finished.judgement(
        verdict[0],
        passed=0 if report.forged else passed,  # a forged report proves no passed test
        total=total,
        failures=tuple(failures),
        message=verdict[1],
        integrity="in_process",
        hack_signals=tuple(name for name, was in tried.items() if was),
        unreported="" if whole or LIMITS.get(finished.ended.ending) else finished.how_it_ended(),
        **shown,
    )


def read(finished: Run, word: str, end: str, *, reveal: bool) -> Report:
    """Parse the runner's lines. The report holds test content only with `reveal`."""
    report = Report()
    for line in finished.lines:
        try:
            first_word, *frame = loads_message(line)
        except (Malformed, TypeError, ValueError):
            first_word, frame = None, []
        if first_word != word or report.status is not None:
            report.forged = True
            continue
        try:
            _take(report, frame, end, reveal=reveal)
        except (TypeError, ValueError):
            report.forged = True
    return report


def _take(report: Report, frame: list[object], end: str, *, reveal: bool) -> None:
    match frame:
        case ["loaded"]:
            report.loaded = True
        case ["collected", int(count)] if not report.collected and 0 <= count <= _MOST_TESTS:
            report.collected = count
        case ["test", str(name), str(outcome), str(hint), str(text)] if outcome in _OUTCOMES:
            # A test's parameters may be expected values.
            shown = name if reveal else name.partition("[")[0]
            report.tests.append((shown, outcome, text if reveal else hint))
        case ["finished", str(proof), int(status)] if proof == end:
            report.status = status
        case ["syntax", _] | ["raised" | "exit", "load", *_]:
            report.stopped = not_loaded(frame)
        case ["broken", str(hint), str(text)]:
            report.broken = report.broken or (text if reveal else hint)
        case ["left"]:
            report.left = True
        case _:
            report.forged = True


def _verdict_of(finished: Run, report: Report) -> tuple[Verdict, str] | None:
    """Return the verdict in place of the tests' outcomes, if any."""
    limited = LIMITS.get(finished.ended.ending)
    if limited is not None:
        return limited
    if report.stopped is not None:
        return report.stopped.verdict, report.stopped.traceback or report.stopped.summary
    if report.left or (report.status is None and finished.ended.exit_code is not None):
        return "early_exit", "the program left before the tests had finished"
    if report.status is None:
        return of_silence(finished.ended)
    if report.forged or report.status != finished.ended.exit_code:
        return "failed", "the test report is not the runner's own"
    return None


def pytest_verdict(finished: Run, report: Report, failed: int, counted: int) -> tuple[Verdict, str]:
    """Return the verdict from the numbers of failed and counted tests."""
    found = _verdict_of(finished, report)
    if found is not None:
        return found
    if report.broken is not None:
        return "runtime_error", f"the tests can't be collected: {report.broken}"
    if report.status not in _FINISHED_WELL or report.collected == 0:
        return "runtime_error", f"pytest ended with code {report.status}"
    if failed or report.status != 0:
        return "failed", f"{failed} of {counted} tests failed"
    if counted == 0 or len(report.tests) < report.collected:
        return "failed", "no test ran" if counted == 0 else "not every test ran"
    return "passed", ""


def _outcomes(report: Report, total: int) -> list[tuple[str, str]]:
    """Return the outcome and text of each test. A repeated or unknown test is a forgery."""
    reported: dict[str, tuple[str, str]] = {}
    numbers = {str(index) for index in range(total)}
    for name, outcome, text in report.tests:
        if name in reported or name not in numbers:
            report.forged = True
        reported.setdefault(name, (outcome, text))
    return [reported.get(str(index), ("failed", "not reached")) for index in range(total)]


def _shared_verdict(report: Report, outcomes: Sequence[tuple[str, str]]) -> tuple[Verdict, str]:
    for outcome, text in outcomes:
        if outcome != "passed":
            return _VERDICTS.get(outcome, "failed"), text or "a test failed"
    if report.status != 0 or not outcomes:
        return "failed", "no test ran" if not outcomes else "a test failed"
    return "passed", ""


def _pytest_control(grader: PytestGrader) -> Control:
    return partial(of_pytest, grader)


def rules(_: object) -> tuple[GraderRules, ...]:
    """Return the rules of `pytest`, for the registry."""
    return (GraderRules("pytest", judge_pytest, control=_pytest_control),)


# Of most files, one that says `def test_it` or `async def testIt` needs no syntax tree.
_TEST = re.compile(r"\bdef[ \t]+test")
# Settings, and hooks of a conftest.py, with which pytest may find tests elsewhere:
# `python_functions = check_*`, `addopts = --doctest-modules`, `-p plugin`, `def pytest_collect_file`.
_ELSEWHERE = re.compile(r"python_(?:files|classes|functions)|doctest|-p\b|plugins|def[ \t]+pytest_")
_DOCUMENTS = (".txt", ".rst")  # may hold doctests
_DYNAMIC = frozenset(["exec", "globals", "setattr", "vars", "type", "__getattr__", "load_tests"])


def has_no_test(files: Mapping[str, str]) -> bool:
    """Return True if pytest finds no test in a grader's files, for any submission.

    False wherever the text cannot tell: hooks, names of tests by settings, doctests, classes that
    may inherit tests, names from another module or a call.
    """
    texts = dict(files)
    if any(path.endswith(_DOCUMENTS) for path in texts):
        return False
    if any(configures(path) and _ELSEWHERE.search(text) for path, text in texts.items()):
        return False
    collected = [texts[path[2:]] for path in files_to_collect(texts)]
    return not any(map(_TEST.search, collected)) and not any(map(_may_have_test, collected))


def _may_have_test(text: str) -> bool:
    try:
        return any(map(_may_be_test, ast.walk(syntax_tree(text))))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True


def _may_be_test(node: ast.AST) -> bool:
    if isinstance(node, ast.ClassDef) and any(_dotted(base) != "object" for base in node.bases):
        return True
    return any(
        name == "*" or name in _DYNAMIC or name[:4] in ("test", "Test") for name in _names(node)
    )


def _dotted(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _names(node: ast.AST) -> Iterator[str]:
    """Iterate over bound and loaded names of a node."""
    if isinstance(node, ast.Name):
        loads_test = isinstance(node.ctx, ast.Load) and node.id not in _DYNAMIC
        yield "" if loads_test else node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (each.asname or each.name for each in node.names)
