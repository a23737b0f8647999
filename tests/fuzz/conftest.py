"""Says how many cases the fuzzers tried, and which took longest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fuzzing import ReplayCounts

TALLY = pytest.StashKey[ReplayCounts]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TALLY] = ReplayCounts()
    # A failing case is worth reading, however long it is.
    config.addinivalue_line("filterwarnings", "ignore:Generating overly large repr")


@pytest.fixture(scope="session")
def tally(pytestconfig: pytest.Config) -> ReplayCounts:
    """Where every case is counted."""
    return pytestconfig.stash[TALLY]


@pytest.fixture(autouse=True)
def no_case_takes_for_ever(tally: ReplayCounts) -> Iterator[None]:
    """A case that takes longer than this would hold up a service."""
    yield
    tally.check()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    tally = config.stash[TALLY]
    if tally.count:
        terminalreporter.write_line(str(tally))
