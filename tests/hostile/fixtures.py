"""Services under attack, and a sandbox in them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hostile import outside
from hostile.attacks import attacked_service
from hostile.rooms import Room
from hostile.services import Started


@pytest.fixture(scope="module", params=[False, True], ids=["as root", "as an ordinary user"])
def service(request: pytest.FixtureRequest) -> Iterator[Started]:
    with attacked_service(ordinary=request.param) as started:
        yield started


@pytest.fixture
def room(service: Started) -> Iterator[Room]:
    with service.client() as client:
        opened = Room(client)
        yield opened
        opened.stop()
    outside.wait_for_rest(service)
