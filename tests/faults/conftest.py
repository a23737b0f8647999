"""Says what is missing before anything runs, and installs nothing."""

from __future__ import annotations

import pytest

from fault_rig.programs import missing_packages


def pytest_configure() -> None:
    """Ends the run when the machine lacks something."""
    if missing := missing_packages():
        words = ", ".join(missing)
        pytest.exit(f"make test-faults needs packages that are not here: {words}", returncode=1)
