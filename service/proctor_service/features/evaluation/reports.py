"""Report of an audit: the findings for each problem, and their harm to training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from proctor_client import wire
from proctor_client.tasks.task import Task, submission_of
from proctor_service.cli.judging import message_of
from proctor_service.errors import InvalidTask
from proctor_service.features.evaluation.checks import EMPTY, EQUAL
from proctor_service.judge.analysis.levels import analyse
from proctor_service.judge.control.graders import clear_expectations
from proctor_service.judge.run import OBJECT_FOR_DATA
from proctor_service.judge.submission import Graders

Kind = Literal[
    "broken_tests",
    "reference_fails",
    "needs_objects",
    "flaky",
    "passes_for_anything",
    "vacuous_test",
    "slow",
    "no_reference",
    "shared_process",
    "passes_wrong_tests",
]
TITLES: dict[Kind, str] = {
    "broken_tests": "tests that are broken by themselves",
    "reference_fails": "references that fail",
    "needs_objects": "references that return an object where their tests need data",
    "flaky": "flaky tests",
    "passes_for_anything": "problems that pass for anything",
    "vacuous_test": "tests that hold for an empty program",
    "slow": "slow references",
    "no_reference": "problems without a reference",
    "shared_process": "tests that share the submission's process",
    "passes_wrong_tests": "references that pass wrong expected values, too",
}
HARMLESS: frozenset[Kind] = frozenset(
    {"slow", "no_reference", "shared_process", "passes_wrong_tests"}
)
LEVELS: tuple[wire.Integrity, ...] = ("separated", "in_process")
_INVALID = "invalid_task"


@dataclass(frozen=True, slots=True)
class Reading:
    """Facts from the text of a problem's tests, before anything runs.

    `level`: None where the kind of the grader alone decides. `clear_expectations`: how many
    expected values a negative control can change.
    """

    level: wire.Integrity | None
    reason: str
    clear_expectations: int


def reading_of(task: Task, graders: Graders) -> Reading | None:
    """Return the facts from the tests' text; None for broken tests."""
    submission = submission_of(task, "")
    grader, language = submission.grader, submission.language
    if grader is None:
        return None
    source = task.reference if isinstance(task.reference, str) else ""
    try:
        level: wire.Integrity | None = None
        reason = ""
        if isinstance(grader, wire.AssertsGrader):
            analysis = analyse(grader)
            level, reason = analysis.level, analysis.reason
    except InvalidTask:
        return None
    find = graders[grader.kind].control
    control = None if find is None else find(grader)
    return Reading(level, reason, clear_expectations(control, source, language))


@dataclass(frozen=True, slots=True)
class ProblemReport:
    """Finding about a problem."""

    kind: Kind
    detail: str

    @property
    def harms(self) -> bool:
        """True if the finding gives unearned rewards or takes earned rewards away."""
        return self.kind not in HARMLESS


@dataclass(slots=True)
class Examined:
    """Problem with all results: of its reference, run by run, and of each check program."""

    task: Task
    reference: list[wire.Result] = field(default_factory=list)
    checks: dict[str, wire.Result] = field(default_factory=dict)
    reading: Reading | None = None

    @property
    def level(self) -> str | None:
        """Level of the tests, from their text, or else from the results."""
        stated = self.reading.level if self.reading else None
        return stated or next((run.integrity for run in self.reference), None)

    @property
    def fields(self) -> dict[str, str]:
        """Fields needed by the problem, or possible, in a task."""
        if any(OBJECT_FOR_DATA in run.hack_signals for run in self.reference):
            return {"integrity": "in_process"}
        if self.reference and {run.negative_control for run in self.reference} == {"clear"}:
            return {"negative_control": "verdict"}
        return {}

    @property
    def seconds(self) -> list[float]:
        """CPU time of each judged run of the reference, in seconds."""
        return [run.usage.cpu_seconds for run in self.reference if run.error is None]

    @property
    def negative_control(self) -> str | None:
        """Outcome of the references' negative controls; a caught problem cannot bear `verdict`."""
        outcomes = {run.negative_control for run in self.reference}
        return next((each for each in ("caught", "clear", "none") if each in outcomes), None)

    @property
    def failures(self) -> list[wire.Result]:
        """Results without a verdict for reasons outside the problem."""
        results = [*self.reference, *self.checks.values()]
        return [each for each in results if each.error and each.error.reason != _INVALID]

    def reports(self, slow_seconds: float) -> list[ProblemReport]:
        """Return the findings for the problem."""
        results = [*self.reference, *self.checks.values()]
        for result in results:
            if result.error is not None and result.error.reason == _INVALID:
                return [ProblemReport("broken_tests", result.error.message)]
        found = [*self._of_reference(), *self._of_checks()]
        # The fastest run counts: the other runs may have shared a cache or a core.
        if self.seconds and min(self.seconds) > slow_seconds:
            found.append(ProblemReport("slow", f"{min(self.seconds):.2f} s of CPU time"))
        if self.negative_control == "caught":
            detail = "cannot bear the negative control `verdict`"
            found.append(ProblemReport("passes_wrong_tests", detail))
        return [*found, *self._of_reading()]

    def _of_reading(self) -> Iterator[ProblemReport]:
        reading = self.reading
        if reading is not None and reading.level == "in_process":
            yield ProblemReport("shared_process", reading.reason)

    def _of_reference(self) -> list[ProblemReport]:
        runs = [run for run in self.reference if run.error is None]
        if self.task.reference is None:
            return [ProblemReport("no_reference", "only probed")]
        failed = [run for run in runs if run.verdict != "passed"]
        if not failed:
            return []
        if any(OBJECT_FOR_DATA in run.hack_signals for run in failed):
            return [ProblemReport("needs_objects", 'ask for `"integrity": "in_process"`')]
        if len(failed) == len(runs) and len({_outcome(run) for run in runs}) == 1:
            return [
                ProblemReport("reference_fails", f"{failed[0].verdict}: {message_of(failed[0])}")
            ]
        detail = (
            f"failed {len(failed)} of {len(runs)} times{_unsteady(runs)}: {message_of(failed[0])}"
        )
        return [ProblemReport("flaky", detail)]

    def _of_checks(self) -> list[ProblemReport]:
        # Beside the submission any test believes an object that equals everything; the level says so.
        passed = [
            name
            for name, result in self.checks.items()
            if result.verdict == "passed" and (name, result.integrity) != (EQUAL, "in_process")
        ]
        if passed:
            return [ProblemReport("passes_for_anything", ", ".join(passed))]
        empty = self.checks.get(EMPTY)
        if empty is None or empty.tests.passed == 0:
            return []
        held = f"{empty.tests.passed} of {empty.tests.total}"
        failed = {failure.index for failure in empty.tests.failures}
        if len(failed) + empty.tests.passed == empty.tests.total:
            indexes = [str(index) for index in range(empty.tests.total) if index not in failed]
            held += f": test {', '.join(indexes)}"
        return [ProblemReport("vacuous_test", held)]


def _outcome(run: wire.Result) -> tuple[object, ...]:
    """Return the part of a result with equal values in all runs of a deterministic program."""
    return run.verdict, run.tests.passed, tuple(_failed(run))


def _failed(run: wire.Result) -> list[int]:
    return [failure.index for failure in run.tests.failures]


def _unsteady(runs: Sequence[wire.Result]) -> str:
    """Return the tests with different results between runs, as far as results name them."""
    times = Counter(index for run in runs for index in _failed(run))
    unsteady = sorted(index for index, count in times.items() if count < len(runs))
    return f", test {', '.join(map(str, unsteady))}" if unsteady else ""


def report(examined: Sequence[Examined], slow_seconds: float) -> list[dict[str, Any]]:
    """Return the results of each problem in JSON form."""
    return [
        {
            "id": each.task.id,
            "place": each.task.place,
            "level": each.level,
            "level_reason": each.reading.reason if each.reading else "",
            "clear_expectations": each.reading.clear_expectations if each.reading else 0,
            "negative_control": each.negative_control,
            "fields": each.fields,
            "findings": [
                {"kind": report.kind, "harms": report.harms, "detail": report.detail}
                for report in each.reports(slow_seconds)
            ],
            "reference": [_run(run) for run in each.reference],
            "probes": {name: _run(run) for name, run in each.checks.items()},
        }
        for each in examined
    ]


def _run(result: wire.Result) -> dict[str, Any]:
    return {
        "verdict": result.verdict,
        "error": None if result.error is None else result.error.reason,
        "passed": result.tests.passed,
        "total": result.tests.total,
        "failed_tests": _failed(result),
        "wall_seconds": result.usage.wall_seconds,
        "cpu_seconds": result.usage.cpu_seconds,
        "message": message_of(result),
    }
