"""The rule of a repository's task: from outcomes of named tests to a verdict and a score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proctor_client.wire import NamedTests, RepositoryGrader, RepositoryRule, Verdict
from proctor_service.features.repositories.names import NamedOutcomes
from proctor_service.features.repositories.reports.exit_code import COMMAND
from proctor_service.features.repositories.reports.interface import Outcome, Reported

MOST_NAMES = 10
NEEDS_REFERENCE = frozenset(["skipped", "expected_failure", "unexpected_pass"])
"""Outcomes of `pass_to_pass` that are right where the reference has the same."""
OF_A_WHOLE_MAP = frozenset(["passed", "failed", "error"])
"""Outcomes of tests beside `expected` that make a failure; those maps do not have others."""

Wrong = tuple[str, str]
"""A test's name, and its outcome or `missing`."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The meaning of outcomes. `reported`: number of listed tests with a report."""

    verdict: Verdict
    score: float
    passed: int
    total: int
    fail_to_pass: NamedTests
    pass_to_pass: NamedTests
    failures: Sequence[tuple[int, str, str]]
    """Index among all listed tests, name, and what it was."""
    message: str
    signals: tuple[str, ...]
    reported: int
    needs_reference: bool
    """True: a listed test was skipped or so, which the reference's run must have, too."""


class _Lists:
    """The two lists under a rule."""

    def __init__(
        self, grader: RepositoryGrader, reported: Reported, reference: Reported | None
    ) -> None:
        self._rule = grader.rule or RepositoryRule()
        self._run = NamedOutcomes(reported, grader.names)
        self._reference = None
        if reference is not None:
            self._reference = NamedOutcomes(reference, grader.names)
        self.needs_reference = False

    def outcome(self, name: str) -> Outcome | None:
        """Return the outcome of a listed test in the submission's run."""
        return self._run.of(name)

    def wrong_of_fail_to_pass(self, names: Iterable[str]) -> list[Wrong]:
        """Return the tests of `fail_to_pass` without an accepted outcome."""
        accepted = self._rule.fail_to_pass or ["passed"]
        found = ((name, self.outcome(name) or "missing") for name in names)
        return [(name, outcome) for name, outcome in found if outcome not in accepted]

    def wrong_of_pass_to_pass(self, names: Iterable[str]) -> list[Wrong]:
        """Return the broken tests of `pass_to_pass`."""
        return [(name, word) for name in names if not self._holds(name, word := self._word(name))]

    def _word(self, name: str) -> str:
        return self.outcome(name) or "missing"

    def _holds(self, name: str, outcome: str) -> bool:
        if self._rule.pass_to_pass is not None:
            return outcome in self._rule.pass_to_pass
        if outcome == "passed":
            return True
        if outcome not in NEEDS_REFERENCE:
            return False
        self.needs_reference = True
        return self._reference is None or self._reference.of(name) == outcome

    def wrong_of_others(self, names: Sequence[str]) -> list[Wrong]:
        """Return the failed tests outside all lists, if the rule counts them."""
        if self._rule.unlisted != "none_failed":
            return []
        others = self._run.others(names).items()
        return [(name, outcome) for name, outcome in others if outcome in ("failed", "error")]

    def wrong_of_map(self, grader: RepositoryGrader) -> list[Wrong]:
        """Return the tests with an outcome other than in `expected`, and tests outside `expected`."""
        expected = grader.expected or {}
        found = ((name, self._word(name)) for name in expected)
        wrong = [(name, word) for name, word in found if word != expected[name]]
        if self._rule.unlisted == "ignored":
            return wrong
        others = self._run.others(expected).items()
        return wrong + [(name, word) for name, word in others if word in OF_A_WHOLE_MAP]


def decide(
    grader: RepositoryGrader, reported: Reported, scoring: str, reference: Reported | None
) -> Decision:
    """Return the decision about a run. `reference`: the reference's run, if made.

    `scoring` is `all`, or `fraction`: the share of `fail_to_pass` where all of `pass_to_pass` hold.
    """
    lists = _Lists(grader, reported, reference)
    if reported.kind == "exit_code":
        first, second = [COMMAND], list[str]()
        wrong_first, wrong_second = lists.wrong_of_fail_to_pass(first), list[Wrong]()
    elif grader.expected is not None:
        first, second = [], list(grader.expected)
        wrong_first, wrong_second = [], lists.wrong_of_map(grader)
    else:
        first, second = grader.fail_to_pass, grader.pass_to_pass
        wrong_first = lists.wrong_of_fail_to_pass(first)
        wrong_second = lists.wrong_of_pass_to_pass(second)
        wrong_second += lists.wrong_of_others([*first, *second])
    names = [*first, *second]
    is_right = not wrong_first and not wrong_second
    share = 1 - len(wrong_first) / len(first) if first and not wrong_second else 0.0
    by_list = (_named(first, wrong_first), _named(second, wrong_second))
    index_of = {name: index for index, name in reversed(list(enumerate(names)))}
    has_skipped = lists.needs_reference and reference is None
    return Decision(
        "passed" if is_right else "failed",
        1.0 if is_right else share if scoring == "fraction" else 0.0,
        by_list[0].passed + by_list[1].passed,
        len(names),
        *by_list,
        [(index_of.get(n, len(names)), n, word) for n, word in (*wrong_first, *wrong_second)],
        "" if is_right else _message(*by_list),
        ("skipped_pass_to_pass",) if has_skipped else (),
        sum(lists.outcome(name) is not None for name in names),
        lists.needs_reference,
    )


def _named(names: Sequence[str], wrong: Sequence[Wrong]) -> NamedTests:
    failed = [name for name, _ in wrong]
    passed = len(names) - len(set(failed) & set(names)) if failed else len(names)
    return NamedTests(passed=max(0, passed), total=len(names), failed=failed[:MOST_NAMES])


def _message(first: NamedTests, second: NamedTests) -> str:
    """`fail_to_pass 2 of 3; pass_to_pass 40 of 41, broken: tests/test_ring.py::test_push`."""
    parts = [f"fail_to_pass {first.passed} of {first.total}"] if first.total else []
    if second.total or second.failed:
        parts.append(f"pass_to_pass {second.passed} of {second.total}")
        if second.failed:
            parts[-1] += f", broken: {second.failed[0]}"
    return "; ".join(parts)
