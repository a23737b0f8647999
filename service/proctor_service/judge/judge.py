"""The judge: takes a submission, its grader and a backend, and returns a verdict."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace

from proctor_client.wire import (
    AssertsGrader,
    CallsGrader,
    CommandGrader,
    ExecGrader,
    HarborGrader,
    PytestGrader,
    StdioGrader,
)
from proctor_service.codec.limits import MAX_LINE_BYTES, ValueTooLarge
from proctor_service.errors import InvalidTask, JudgeFailed
from proctor_service.features.environments import harbor
from proctor_service.features.languages import programs, runners
from proctor_service.features.languages.compilers import Compilers
from proctor_service.judge.analysis.formulas import NotDecidable
from proctor_service.judge.analysis.levels import Analysis, analyse
from proctor_service.judge.analysis.process import analyse_apart
from proctor_service.judge.control import second_run
from proctor_service.judge.graders import asserts_calls, asserts_test_sandbox, calls, in_process
from proctor_service.judge.rest import with_rest
from proctor_service.judge.run import JobTooLong, Unfit
from proctor_service.judge.submission import Judgement, Submission, integrity_of, test_count
from proctor_service.sandbox.interface import Sandboxes
from proctor_service.settings.languages import Language

_BYTE_ORDER_MARK = "\ufeff"
_LONGEST_ESCAPE = 6  # of a character in JSON
_REMEMBERED_CHARACTERS = 1 << 25  # of tests and plans in all; bounds the memory of the analyses
_ENTRY_CHARACTERS = 1024  # that count for each analysis, however short its tests are
_LARGE_CHARACTERS = 1 << 15
_MOST_LARGE = 2  # large suites that are analysed at once, each in a process of its own


_Key = tuple[tuple[str, ...], str, str | None, str, str | None]
"""What an analysis depends on: tests, setup, entry point and its method, and integrity."""


class Judge:
    """Holder of state shared by all submissions: languages, and analyses of test code."""

    def __init__(self, languages: Mapping[str, Language]) -> None:
        self._compilers = Compilers(languages)
        self._analyses: OrderedDict[_Key, asyncio.Future[Analysis]] = OrderedDict()
        self._characters = 0
        self._large = asyncio.Semaphore(_MOST_LARGE)

    async def __call__(self, submission: Submission, backend: Sandboxes) -> Judgement:
        """Return the judgement. Raises a `Failure` when a verdict is impossible."""
        _check_language(submission, backend)
        judgement = await self._judge(submission, backend)
        judgement = await second_run.controlled(self._judge, submission, backend, judgement)
        _check_language(submission, backend)  # by now the sandboxes of its environment are known
        return judgement

    async def _judge(self, submission: Submission, backend: Sandboxes) -> Judgement:
        if submission.source.startswith(_BYTE_ORDER_MARK):
            # Python accepts a byte order mark in files but rejects one in text.
            submission = replace(submission, source=submission.source[1:])
        grader = submission.grader
        analysis = await self._analysed(grader) if isinstance(grader, AssertsGrader) else None
        integrity = integrity_of(grader) if analysis is None else analysis.level
        try:
            judgement = await self._by_grader(submission, backend)
            if judgement.limited is not None:
                judgement = await with_rest(self._by_grader, submission, backend, judgement)
        except Unfit as unfit:
            judgement = unfit.judgement
        except (JobTooLong, ValueTooLarge):
            judgement = _too_large(submission)
        return replace(judgement, integrity=integrity)

    async def _by_grader(self, submission: Submission, backend: Sandboxes) -> Judgement:
        compilers, languages = self._compilers, self._compilers.languages
        match submission.grader:
            case AssertsGrader() as grader:
                analysis = await self._analysed(grader)
                return await self._judge_asserts(submission, grader, backend, analysis)
            case CallsGrader() as grader:
                return await calls.judge(submission, grader, backend)
            case StdioGrader() as grader:
                return await programs.judge_stdio(submission, grader, backend, compilers)
            case ExecGrader() as grader:
                return await programs.judge_exec(submission, grader, backend, compilers)
            case PytestGrader() as grader:
                return await in_process.judge_pytest(submission, grader, backend)
            case CommandGrader(runner="pytest") as grader:
                by_pytest = PytestGrader(kind="pytest", files=grader.files, reveal=grader.reveal)
                return await in_process.judge_pytest(submission, by_pytest, backend)
            case CommandGrader(runner=str()) as grader:
                return await runners.judge_runner(submission, grader, backend, languages)
            case CommandGrader() as grader:
                return await programs.judge_command(submission, grader, backend, languages)
            case HarborGrader() as grader:
                return await harbor.judge(submission, grader, backend)

    async def _judge_asserts(
        self,
        submission: Submission,
        grader: AssertsGrader,
        backend: Sandboxes,
        analysis: Analysis,
    ) -> Judgement:
        """Judge by test statements; only the tests decide the level (`judge/analysis/levels.py`)."""
        if analysis.level == "in_process":
            judgement = await in_process.judge_shared(submission, grader, backend, analysis)
            return replace(judgement, level="shared")
        if analysis.plan is not None:
            with contextlib.suppress(NotDecidable):
                plan, setup = analysis.plan, analysis.setup[0]
                judgement = await asserts_calls.judge(submission, grader, backend, plan, setup)
                return replace(judgement, level="calls")
        judgement = await asserts_test_sandbox.judge(submission, grader, backend, analysis)
        return replace(judgement, level="values")

    async def _analysed(self, grader: AssertsGrader) -> Analysis:
        """Return the result of `analyse`, remembered: the submissions of a group share their tests.

        A thread or a process analyses, and goes on for the others if one is cancelled.
        """
        entry = grader.entry_point, grader.method
        key = (tuple(grader.tests), grader.setup, *entry, grader.integrity)
        known = self._analyses.get(key)
        if known is None:
            known = asyncio.ensure_future(self._analyse(grader, _length(key)))
            self._analyses[key] = known
            self._characters += _length(key)
            known.add_done_callback(lambda done: self._remember(key, done))
        self._analyses.move_to_end(key)
        return known.result() if known.done() else await asyncio.shield(known)

    async def _analyse(self, grader: AssertsGrader, length: int) -> Analysis:
        if length <= _LARGE_CHARACTERS:
            return await asyncio.to_thread(analyse, grader)
        async with self._large:
            return await asyncio.to_thread(analyse_apart, grader)

    def _remember(self, key: _Key, done: asyncio.Future[Analysis]) -> None:
        """Forget an analysis that failed, and the oldest ones above the bound."""
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


def _too_large(submission: Submission) -> Judgement:
    """Return the judgement of a submission that no sandbox takes: a policy may write such a file.

    Raises InvalidTask if its tests are what is too large.
    """
    own = len(submission.source) + sum(map(len, submission.files.values()))
    if own * _LONGEST_ESCAPE < MAX_LINE_BYTES // 2:
        raise InvalidTask("the tests are larger than a sandbox takes")
    message = "The program and its files are larger than a sandbox takes."
    return Judgement("runtime_error", total=test_count(submission.grader), message=message)


def _check_language(submission: Submission, backend: Sandboxes) -> None:
    """Raise JudgeFailed if the image of an environment is known to lack the language."""
    grader = submission.grader
    if isinstance(grader, CommandGrader) and grader.runner is None:
        return
    missing_languages = backend.traits.missing_languages.get(submission.environment, ())
    if submission.language in missing_languages:
        where = f"the image of {submission.environment}"
        raise JudgeFailed(f"{where} has not all programs of {submission.language}")
