"""A real service, and the two sides of a connection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from real_service import client, judge, places, service
from values_runtime import Pairs

__all__ = ["client", "judge", "places", "service"]


@pytest.fixture(scope="module")
def pairs() -> Iterator[Pairs]:
    both = Pairs()
    yield both
    both.close()
