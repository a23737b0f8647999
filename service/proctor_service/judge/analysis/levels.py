"""The level at which a suite is judged, decided from the tests alone.

separated    tests and expected values never enter the submission's sandbox: calls go in, data come back
in_process   the tests run in the submission's process, as plain Python runs them

A separated suite is judged by a plan of calls, which the service compares itself, or by a test sandbox, in
which the test code runs; these differ in speed alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from proctor_service.errors import InvalidTask
from proctor_service.judge.analysis.flow import records_of
from proctor_service.judge.analysis.functions import FunctionsOnly
from proctor_service.judge.analysis.literals import NotPlannable
from proctor_service.judge.analysis.names import Names, names_of
from proctor_service.judge.analysis.plan import CallPlan, plan_calls
from proctor_service.judge.analysis.setups import split_setup
from proctor_service.judge.analysis.suite import RunStep, Suite, parse_suite

if TYPE_CHECKING:
    from proctor_client.wire import AssertsGrader, Integrity

_FUNCTIONS = "the tests call functions"


@dataclass(frozen=True, slots=True)
class TestSource:
    """The source of a test, and the steps to run after its statements."""

    __test__ = False  # keeps pytest from collecting the class

    source: str
    run: tuple[RunStep, ...] = ()


@dataclass(frozen=True, slots=True)
class Analysis:
    """Level of a suite, and the reason for it.

    `setup`: sources for before the submission, and for behind. `names`: of a separated suite. `plan`: of a
    separated suite of calls and conditions. `constant_calls`: all arguments of the submission are literals
    in the tests.
    """

    level: Integrity
    reason: str
    setup: tuple[str, str]
    tests: tuple[TestSource, ...]
    names: Names = field(default=Names(frozenset()))
    records: frozenset[str] = frozenset()
    plan: CallPlan | None = None
    constant_calls: bool = False


def analyse(grader: AssertsGrader) -> Analysis:
    """Decide the level of a grader's tests.

    Raises InvalidTask for tests with errors of syntax, and for tests which must run in the
    submission's process although the grader asks for `separated`.
    """
    suite = parse_suite(grader)
    return with_plan(level_of(grader, suite), suite)


def level_of(grader: AssertsGrader, suite: Suite) -> Analysis:
    """Decide the level of parsed tests, without a plan of calls. Raises InvalidTask as `analyse`."""
    tests = sources_of(suite)
    submission = names_of(suite)
    setup = split_setup(suite.setup_text, suite.setup.body)
    if grader.integrity == "in_process":
        return Analysis("in_process", "the grader asks for it", setup, tests)
    records = frozenset() if setup[1] else records_of(suite.setup)
    try:
        functions = FunctionsOnly(suite, submission, records)
        reason = functions.reason
        if reason is None:
            names = Names(submission, functions.fresh)
            constant_calls = functions.calls_carry_constants()
            return Analysis(
                "separated", _FUNCTIONS, setup, tests, names, records, None, constant_calls
            )
    except RecursionError:
        reason = "the tests are nested too deeply to be analysed"
    return beside_the_submission(grader, tests, reason, setup)


def with_plan(analysis: Analysis, suite: Suite) -> Analysis:
    """Return the analysis of a separated suite with a plan of its calls, if calls suffice."""
    if analysis.level == "in_process":
        return analysis
    try:
        plan = plan_calls(suite, analysis.names)
    except NotPlannable as error:
        return replace(
            analysis, reason=f"{_FUNCTIONS}, and more than conditions on answers: {error}"
        )
    except RecursionError:
        return analysis
    return replace(analysis, reason=f"{_FUNCTIONS}, and conditions on their answers", plan=plan)


def sources_of(suite: Suite) -> tuple[TestSource, ...]:
    """Return the sources of a suite's tests."""
    return tuple(TestSource(test.text, test.run) for test in suite.tests)


def beside_the_submission(
    grader: AssertsGrader, tests: tuple[TestSource, ...], reason: str, setup: tuple[str, str]
) -> Analysis:
    """Return the analysis of tests in need of the submission's process.

    Raises InvalidTask if the grader asks for `separated`.
    """
    if grader.integrity == "separated":
        raise InvalidTask(f"the tests must share the submission's process: {reason}")
    return Analysis("in_process", reason, setup, tests)
