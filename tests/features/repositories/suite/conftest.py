"""Says what is missing before anything runs."""

from __future__ import annotations

import pytest
from needed_programs import refusal


def pytest_configure() -> None:
    """End the run where programs are missing, and name them."""
    if (words := refusal("images")) is not None:
        pytest.exit(words, returncode=1)
