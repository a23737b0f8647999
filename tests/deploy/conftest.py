"""Says what is missing before anything runs, and installs nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from needed_programs import refusal

from deploy.images import Builder, Image, building


def pytest_configure() -> None:
    """End the run where the machine lacks something, and name it."""
    if (words := refusal("deploy")) is not None:
        pytest.exit(words, returncode=1)
    if os.geteuid() != 0:
        pytest.exit("make test-deploy needs root: it starts containers", returncode=1)


@pytest.fixture(scope="session")
def builder() -> Iterator[Builder]:
    """What builds the image of this working tree."""
    with building() as found:
        yield found


@pytest.fixture(scope="session")
def image(builder: Builder) -> Image:
    """That image, unpacked."""
    return builder.image()
