"""The level at which a suite is judged, decided from the tests alone.

calls    one sandbox: calls of the submission; the service compares the results
values   two sandboxes: test code runs in a test sandbox, and only data crosses
shared   one sandbox: test code runs in the submission's process, as in plain Python
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from proctor_service.errors import InvalidTask
from proctor_service.judge.analysis.answers import TooIntricate
from proctor_service.judge.analysis.literals import NotPlannable
from proctor_service.judge.analysis.names import Names, resolve
from proctor_service.judge.analysis.needs import why_shared
from proctor_service.judge.analysis.plan import Plan, plan_calls
from proctor_service.judge.analysis.rewrite import NotRewritable, calls_carry_literals, rewrite
from proctor_service.judge.analysis.suite import RunStep, Suite, parse_suite
from proctor_service.judge.analysis.values import Objects

if TYPE_CHECKING:
    from proctor_client.wire import AssertsGrader

Level = Literal["calls", "values", "shared"]


@dataclass(frozen=True, slots=True)
class TestSource:
    """The source of one test, and the steps to run after its statements."""

    __test__ = False  # keeps pytest from collecting the class

    source: str
    run: tuple[RunStep, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A suite for the test sandbox.

    `literal_calls`: the submission receives only constants. `asks_objects`: some tests ask an
    object of the submission for its length, items or truth.
    """

    setup: str
    tests: tuple[TestSource, ...]
    names: tuple[str, ...]
    imports: tuple[str, ...]
    literal_calls: bool
    asks_objects: bool


@dataclass(frozen=True, slots=True)
class Analysis:
    """Level of a suite. `plan` is set at the level `calls`, `rewritten` at `values`.

    `reason` says why the tests need this level.
    """

    level: Level
    reason: str
    tests: tuple[TestSource, ...]
    plan: Plan | None = None
    rewritten: Rewritten | None = None


class _NeedsSharing(Exception):
    """The tests need the submission's process; the message is the reason."""


def analyse(grader: AssertsGrader, *, calls: bool = True) -> Analysis:
    """Decide the level of a grader's tests; with `calls` false, skip the level `calls`.

    Raises InvalidTask for tests that do not parse, or that need the submission's process although
    the grader asks for `separated`.
    """
    return analyse_suite(grader, parse_suite(grader), calls=calls)


def analyse_suite(grader: AssertsGrader, suite: Suite, *, calls: bool = True) -> Analysis:
    """Decide the level of parsed tests, as `analyse`. Raises InvalidTask."""
    tests = sources_of(suite)
    if grader.integrity == "in_process":
        return Analysis("shared", "the grader asks for it", tests)
    try:
        return _separated(suite, tests, calls)
    except _NeedsSharing as error:
        reason = str(error)
    except RecursionError:
        reason = "the tests are nested too deeply to be analysed"
    except TooIntricate:
        reason = "the variables of the tests depend on each other too intricately to be analysed"
    return beside_the_submission(grader, tests, reason)


def sources_of(suite: Suite) -> tuple[TestSource, ...]:
    """Return the sources of a suite's tests."""
    return tuple(TestSource(test.text, test.run) for test in suite.tests)


def beside_the_submission(
    grader: AssertsGrader, tests: tuple[TestSource, ...], reason: str
) -> Analysis:
    """Return the analysis of tests that need the submission's process.

    Raises InvalidTask if the grader asks for `separated`.
    """
    if grader.integrity == "separated":
        raise InvalidTask(f"the tests must share the submission's process: {reason}")
    return Analysis("shared", reason, tests)


def _separated(suite: Suite, tests: tuple[TestSource, ...], calls: bool) -> Analysis:
    """Return the level `calls` or `values`. Raises _NeedsSharing."""
    names = resolve(suite)
    try:
        plan = plan_calls(suite, names)
        more = "a result that only numpy or an interpreter beside the tests can compare"
    except NotPlannable as error:
        plan, more = None, str(error)
    if plan is not None and calls:
        return Analysis("calls", "calls and conditions on their results", tests, plan)
    objects = Objects(suite, names)
    # Two sandboxes always suffice for a suite of calls, for any results.
    reason = None if plan is not None else why_shared(suite, objects)
    if reason is not None:
        raise _NeedsSharing(reason)
    try:
        return _with_values(suite, names, objects, tests, more)
    except NotRewritable as error:
        raise _NeedsSharing(f"the tests cannot be written out again: {error}") from None


def _with_values(
    suite: Suite, names: Names, objects: Objects, tests: tuple[TestSource, ...], more: str
) -> Analysis:
    literal_calls = calls_carry_literals(suite, objects)
    (setup, *texts), asks = rewrite(suite, objects)
    sources = tuple(TestSource(text, test.run) for text, test in zip(texts, tests, strict=True))
    submission = tuple(sorted(names.submission))
    rewritten = Rewritten(setup, sources, submission, names.imports, literal_calls, asks)
    return Analysis("values", f"more than calls and conditions: {more}", tests, None, rewritten)
