"""When output counts as the expected one, and what is said when it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor_service.judge.text import EXACT, Closeness, Compare, Comparison

MODES: tuple[Compare, ...] = ("tokens", "lines", "trimmed", "exact")


def by(compare: Compare, tolerance: float) -> Comparison:
    return Comparison(compare, Closeness.of(tolerance))


SAME: list[tuple[Compare, float, str, str]] = [
    ("tokens", 0, "1 2\n3", "1\n2   3\n\n"),
    ("tokens", 0, "", " \n"),
    ("tokens", 0, "1\r\n2", "1\n2\n"),
    ("tokens", 1e-6, "0.3333333", "0.33333331"),
    ("tokens", 1e-6, "3", "3.0"),
    ("tokens", 1e-6, "1e3 -.5", "1000 -0.50"),
    ("tokens", 1e-6, "1000000.5", "1000000.9"),
    ("tokens", 1e-6, "+7 -0 7e0", "7 0 7"),
    ("tokens", 1e-6, "2.9999999999", "3"),
    ("tokens", 1e-5, "0.500001 1000000007", "0.5 1000000007"),
    ("tokens", 1e-6, "NaN inf -Infinity", "nan INF -inf"),
    ("tokens", 1e-6, "yes 0.5000001", "yes 0.5"),
    ("tokens", 0, "1\v2\f3", "1 2 3"),
    ("lines", 0, "a b  \nc\r\n\n\n", "a b\nc"),
    ("lines", 0, "", "\n\n"),
    ("lines", 1e-3, "x = 0.5001 m", "x = 0.5 m"),
    ("trimmed", 0, "\n  a b\t\r\n\n c ", "a b\nc"),
    ("trimmed", 0, "\n", ""),
    ("trimmed", 1e-6, " 1  2.50\n10 11", "1 2.5\n 10\t11"),
    ("trimmed", 1e-6, "x = 2.50", "x = 2.5"),
    ("exact", 0, "a\n", "a\n"),
    ("exact", 1e-3, "", ""),
]
DIFFERENT: list[tuple[Compare, float, str, str]] = [
    ("tokens", 0, "1 2", "1 2 3"),
    ("tokens", 0, "1 2 3", "1 2"),
    ("tokens", 0, "3", "3.0"),
    ("tokens", 1e-6, "0.333", "0.334"),
    ("tokens", 1e-5, "0.5 1000000008", "0.5 1000000007"),
    ("tokens", 1e-5, "1000000007.5", "1000000007"),
    ("tokens", 1.0, "4", "3"),
    ("tokens", 1.0, "inf", "3"),
    ("tokens", 1.0, "nan", "3"),
    ("tokens", 1.0, "1e400", "3"),
    ("lines", 1e-5, "x = 0.5 8", "x = 0.5 7"),
    ("tokens", 1e-6, "nan", "1"),
    ("tokens", 1e-6, "inf", "-inf"),
    ("tokens", 1e-6, "inf", "1e999"),
    ("tokens", 1e-6, "1e400", "2e400"),
    ("tokens", 1e-6, "1" * 500, "1" * 499 + "2"),
    ("tokens", 1e-6, "1_0", "10"),
    ("tokens", 1e-6, "0x10", "16"),
    ("tokens", 1e-6, "11", "0011"),
    ("trimmed", 1e-6, "9:5 07", "9:5 7"),
    ("tokens", 1e-6, "١", "1"),
    ("tokens", 1e-6, "1e99", "1"),
    ("tokens", 1e-6, "", "1"),
    ("tokens", 0, "1\xa02", "1 2"),
    ("tokens", 0, "1\x1c2", "1 2"),
    ("tokens", 0, "a\u20032", "a 2"),
    ("lines", 1e-3, "0.5\xa01", "0.5 1"),
    ("lines", 0, "a b\nc", "a  b\nc"),
    ("lines", 0, " a", "a"),
    ("lines", 0, "a\n\nb", "a\nb"),
    ("lines", 1e-3, "0.5  1", "0.5 1"),
    ("trimmed", 0, "1 2", "1\n2"),
    ("trimmed", 0, "*   *", "* *"),
    ("trimmed", 1e-6, "x  2.5", "x 2.5"),
    ("trimmed", 1e-6, "1 2 3", "1 23"),
    ("exact", 0, "a", "a\n"),
    ("exact", 0, "a\r\n", "a\n"),
    ("exact", 1.0, "1", "1.0"),
]


@pytest.mark.parametrize(("compare", "tolerance", "actual", "expected"), SAME)
def test_same(compare: Compare, tolerance: float, actual: str, expected: str) -> None:
    comparison = by(compare, tolerance)
    assert comparison.is_same(actual, expected)
    assert comparison.first_difference(actual, expected) == ""


@pytest.mark.parametrize(("compare", "tolerance", "actual", "expected"), DIFFERENT)
def test_different(compare: Compare, tolerance: float, actual: str, expected: str) -> None:
    comparison = by(compare, tolerance)
    assert not comparison.is_same(actual, expected)
    assert comparison.first_difference(actual, expected)


@pytest.mark.parametrize(
    ("comparison", "actual", "expected", "same"),
    [
        (Comparison(ignore_case=True), "Yes\nno", "YES NO", True),
        (Comparison(ignore_case=True), "straße", "STRASSE", True),
        (Comparison(ignore_case=True), "1E5", "1e5", True),
        (Comparison(ignore_case=True), "yes", "no", False),
        (Comparison("exact", ignore_case=True), "Yes\n", "YES\n", True),
        (Comparison("exact", ignore_case=True), "Yes", "YES\n", False),
        (Comparison(closeness=Closeness(absolute=1e-3)), "1000500.25", "1000000.25", False),
        (Comparison(closeness=Closeness(absolute=1e-3)), "1000000.2505", "1000000.25", True),
        (Comparison(closeness=Closeness(absolute=1e-3)), "2.9995", "3", True),
        (Comparison(closeness=Closeness(absolute=2)), "4", "3", False),
        (Comparison(closeness=Closeness(relative=1e-5)), "0.0000001", "0.0000004", False),
        (Comparison(closeness=Closeness(relative=1e-5)), "1000000.5", "1000001", True),
        (Comparison(closeness=Closeness(relative=1e-5)), "1000001", "1000000", False),
        (Comparison(closeness=Closeness(1e-8, 1e-5)), "0.0", "0.0000005", False),
        (by("tokens", 1e-15), "12345678901234567.0", "12345678901234567", True),
        (by("tokens", 1e-15), "1.2345678901234567e16", "12345678901234567", True),
        (by("tokens", 1e-15), "1.2345678901234568e16", "12345678901234567", False),
        (by("tokens", 1e-15), "1e-99999999999999999999", "12345678901234567", False),
        (Comparison(closeness=Closeness(1e-8, 1e-5)), "0.5", "1" * 390, False),
        (
            Comparison("lines", Closeness(relative=1e-5), ignore_case=True),
            "X 1.000001",
            "x 1.0",
            True,
        ),
    ],
)
def test_case_and_closeness(comparison: Comparison, actual: str, expected: str, same: bool) -> None:
    assert comparison.is_same(actual, expected) is same
    assert (comparison.first_difference(actual, expected) == "") is same


@pytest.mark.parametrize(
    ("compare", "actual", "expected", "hidden", "revealed"),
    [
        ("tokens", "1 2\n7", "1 2 8", "token 3 (line 2) differs: got '7'", ", expected '8'"),
        ("tokens", "1", "1 8", "the output ends too early, after 1 token", ", expected '8'"),
        ("tokens", "", "8", "nothing was printed", ", expected '8'"),
        ("tokens", "1 2", "1", "the output should have ended before token 2 (line 1): got '2'", ""),
        ("lines", "a\nb", "a\nc", "line 2 differs: got 'b'", ", expected 'c'"),
        (
            "lines",
            "a\nb",
            "a\nb\nc\nd",
            "the output ends too early, after 2 lines",
            ", expected 'c'",
        ),
        ("exact", "a ", "a", "line 1 differs: got 'a '", ", expected 'a'"),
        ("exact", "a\n", "a", "the output should have ended before line 2: got ''", ""),
    ],
)
def test_what_is_said(
    compare: Compare, actual: str, expected: str, hidden: str, revealed: str
) -> None:
    comparison = Comparison(compare)
    assert comparison.first_difference(actual, expected) == hidden
    assert comparison.first_difference(actual, expected, reveal=True) == hidden + revealed


def test_a_long_token_is_cut_short() -> None:
    said = Comparison().first_difference("x" * 1_000_000, "y")
    assert len(said) < 200
    assert said.endswith("x'…")


@given(st.text(), st.sampled_from(MODES))
def test_the_expected_output_is_never_quoted(actual: str, compare: Compare) -> None:
    secret = "\N{SNOWMAN}secret"
    shown = actual.replace("\N{SNOWMAN}", "")
    assert secret not in Comparison(compare).first_difference(shown, secret)


@given(
    st.text(),
    st.text(),
    st.builds(
        Comparison,
        st.sampled_from(MODES),
        st.sampled_from([EXACT, Closeness.of(1e-6), Closeness(1.0, 0.5)]),
        st.booleans(),
    ),
)
def test_a_difference_is_described_exactly_when_there_is_one(
    actual: str, expected: str, comparison: Comparison
) -> None:
    same = comparison.is_same(actual, expected)
    assert same is (comparison.first_difference(actual, expected) == "")
    assert comparison.is_same(actual, actual)


@pytest.mark.parametrize("compare", MODES)
@pytest.mark.parametrize(
    "text", ["x" * 4_000_000, " " * 4_000_000, "1 " * 1_000_000, "\n" * 4_000_000]
)
def test_large_outputs_come_to_an_end(text: str, compare: Compare) -> None:
    assert not Comparison(compare).is_same(text + "1", text + "2")
    assert by(compare, 1e-9).first_difference(text + "1", text + "2")
