"""A real service, and the client of whichever service a module has."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from command_line import no_settings
from harness import Service
from real_service import judge, places, service

__all__ = ["judge", "no_settings", "places", "service"]


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with service.client() as opened:
        yield opened
