"""The rule: which outcomes of named tests make a verdict, and how lists write names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from proctor_client.wire import RepositoryGrader
from proctor_service.features.repositories.names import NamedOutcomes
from proctor_service.features.repositories.reports.interface import Reported
from proctor_service.features.repositories.rule import Decision, decide


def decision(
    fields: Mapping[str, Any],
    outcomes: Mapping[str, Any],
    reference: Mapping[str, Any] | None = None,
    scoring: str = "all",
    kind: str = "pytest",
) -> Decision:
    grader = RepositoryGrader.model_validate({"kind": "repository", "test": ["true"], **fields})
    before = None if reference is None else Reported(reference, kind)
    return decide(grader, Reported(outcomes, kind), scoring, before)


LISTS = {"fail_to_pass": ["f", "g"], "pass_to_pass": ["p"]}
ALL = {"f": "passed", "g": "passed", "p": "passed"}
SKIPPED = {**ALL, "p": "skipped"}
VERDICTS: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any], Any, str]] = [
    ("all pass", LISTS, ALL, None, "passed"),
    ("another test fails", LISTS, {**ALL, "x": "failed"}, None, "passed"),
    ("one is missing", LISTS, {"f": "passed", "p": "passed"}, None, "failed"),
    ("one to pass is skipped", LISTS, {**ALL, "f": "skipped"}, None, "failed"),
    ("one passes unexpectedly", LISTS, {**ALL, "f": "unexpected_pass"}, None, "failed"),
    ("one broke", LISTS, {**ALL, "p": "failed"}, None, "failed"),
    ("a skip without a reference", LISTS, SKIPPED, None, "passed"),
    ("a skip as in the reference", LISTS, SKIPPED, SKIPPED, "passed"),
    ("a skip beside the reference", LISTS, SKIPPED, ALL, "failed"),
    ("another outcome than the reference", LISTS, {**ALL, "p": "expected_failure"}, SKIPPED, "failed"),
    ("missing is right by a rule", {**LISTS, "rule": {"pass_to_pass": ["passed", "missing"]}},
     {"f": "passed", "g": "passed"}, None, "passed"),
    ("a skip is wrong by a rule", {**LISTS, "rule": {"pass_to_pass": ["passed"]}},
     SKIPPED, SKIPPED, "failed"),
    ("an unlisted failure counts by a rule", {**LISTS, "rule": {"unlisted": "none_failed"}},
     {**ALL, "x": "failed"}, None, "failed"),
    ("a whole map", {"expected": {"a": "passed", "b": "failed"}},
     {"a": "passed", "b": "failed"}, None, "passed"),
    ("a whole map, one more", {"expected": {"a": "passed"}}, {"a": "passed", "b": "passed"}, None, "failed"),
    ("a whole map, a skip more", {"expected": {"a": "passed"}},
     {"a": "passed", "b": "skipped"}, None, "passed"),
    ("a whole map, another outcome", {"expected": {"a": "failed"}}, {"a": "passed"}, None, "failed"),
]  # fmt: skip


def test_verdicts_follow_from_named_tests() -> None:
    found = {
        name: decision(fields, outcomes, reference).verdict
        for name, fields, outcomes, reference, _ in VERDICTS
    }
    assert found == {name: verdict for name, *_, verdict in VERDICTS}


def test_the_decision_counts_and_names() -> None:
    made = decision(LISTS, {"f": "passed", "g": "error"})
    assert made.failures == [(1, "g", "error"), (2, "p", "missing")]
    assert (made.passed, made.total, made.reported) == (1, 3, 2)
    assert made.fail_to_pass.failed == ["g"]
    assert made.message == "fail_to_pass 1 of 2; pass_to_pass 0 of 1, broken: p"
    assert decision(LISTS, SKIPPED).needs_reference
    assert decision(LISTS, SKIPPED).signals == ("skipped_pass_to_pass",)
    assert decision(LISTS, SKIPPED, SKIPPED).signals == ()
    assert (
        decision({"report": "exit_code"}, {"test command": "passed"}, kind="exit_code").score == 1.0
    )


def test_a_fraction_is_of_fail_to_pass_where_nothing_broke() -> None:
    cases = [
        ({**ALL, "g": "failed"}, 0.5),
        ({**ALL, "g": "failed", "p": "failed"}, 0.0),
        (ALL, 1.0),
        ({}, 0.0),
    ]
    for outcomes, score in cases:
        assert decision(LISTS, outcomes, scoring="fraction").score == score
    assert decision(LISTS, {**ALL, "g": "failed"}).score == 0.0


NAMES: Sequence[tuple[str, str, str, str]] = [
    ("", "pytest", "t.py::test[a b]", "t.py::test[a b]"),
    ("cut_at_blank", "pytest", "t.py::test[a", "t.py::test[a b]"),
    ("dotted", "pytest", "TestRing.test_push", "tests/t.py::TestRing::test_push"),
    ("without_package", "go", "TestPush/a.b", "example.org/ring.TestPush/a.b"),
    ("without_timing", "jest", "Ring push [1.2 ms]", "Ring push [0.9 ms]"),
    ("without_timing", "jest", "Ring push", "Ring push (3 ms)"),
    ("prefix", "pytest", "t.py::test[a", "t.py::test[a b]"),
    ("", "django", "test_push (tests.Ring)", "tests.Ring.test_push"),
    ("", "unittest", "test_push (tests.Ring.test_push)", "tests.Ring.test_push"),
]  # fmt: skip


def test_names_meet_as_a_data_set_writes_them() -> None:
    for form, kind, listed, reported in NAMES:
        forms: Any = [form] if form else []
        named = NamedOutcomes(Reported({reported: "passed", "other": "failed"}, kind), forms)
        assert named.of(listed) == "passed", listed
        assert named.others([listed]) == {"other": "failed"} or form == "prefix"
        assert named.of("none") is None


@pytest.mark.parametrize("form", ["cut_at_blank", "prefix"])
def test_of_tests_with_one_cut_name_the_worst_counts(form: Any) -> None:
    outcomes: Any = {"t.py::test[a b]": "passed", "t.py::test[a c]": "failed"}
    assert NamedOutcomes(Reported(outcomes, "pytest"), [form]).of("t.py::test[a") == "failed"
