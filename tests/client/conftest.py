"""A fixture for tests of both clients."""

from __future__ import annotations

import pytest
from client_blocking import Kind


@pytest.fixture(params=["threads", "loops"])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found
