"""A real service, for environments and images. Says what is missing before anything runs."""

from __future__ import annotations

import pytest
from needed_programs import refusal
from real_service import client, judge, places, service

__all__ = ["client", "judge", "places", "service"]


def pytest_configure() -> None:
    """End the run where programs are missing, and name them."""
    if (words := refusal("images")) is not None:
        pytest.exit(words, returncode=1)
