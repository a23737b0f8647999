"""The negative control flags no right program in Python."""

from __future__ import annotations

from honest_suites import check_table
from state_judging import Places


def test_a_right_program_fails_other_expected_values(places: Places) -> None:
    check_table(places, "python.toml", draws=4)
