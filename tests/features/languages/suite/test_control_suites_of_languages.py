"""The negative control flags no right program in the languages that it has a grammar of."""

from __future__ import annotations

import pytest
from honest_suites import check_table
from state_judging import Places


@pytest.mark.parametrize("table", ["javascript.toml", "go.toml", "java.toml", "rust.toml"])
def test_a_right_program_fails_other_expected_values(places: Places, table: str) -> None:
    check_table(places, table, draws=2)
