"""The questions for every backend, asked of Aviato's with the stand-in."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from aviato_gateway.stand_in import stand_in
from core.contract import test_contract_sandbox as questions
from core.contract.rooms_for_tests import Ask, asking
from proctor_service.composition import make_backend

globals().update(
    (name, test)
    for name, test in vars(questions).items()
    if name.startswith("test_") and "ask" in inspect.signature(test).parameters
)


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    with stand_in() as gateway:
        backend = make_backend(gateway.settings())
        with asking(backend, lambda sandbox: gateway.order("lost", 1)) as ask:
            yield ask
