"""A service with its default settings and real sandboxes, for the tests that train nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Service, running_service

from proctor_service.settings import Settings


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """Run the one service of a worker; a test asks for it only if it is slow."""
    with running_service(Settings(), judge=None) as running:
        yield running
