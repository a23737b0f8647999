"""Says what is missing before anything runs, and installs nothing."""

from __future__ import annotations

import pytest

from fault_rig.postgres import program
from fault_rig.programs import missing_packages


def pytest_configure() -> None:
    """Ends the run when the machine lacks something."""
    missing = missing_packages()
    if program("postgres") is None:
        missing.append("postgresql")
    if missing:
        words = ", ".join(missing)
        pytest.exit(f"make test-faults needs packages that are not here: {words}", returncode=1)
