"""Says what is missing before anything runs, and installs nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from deploy.images import Builder, Image, building

NEEDED = {  # any of these programs, and what has them
    ("kubectl", "kustomize"): "kubectl 1.27 or kustomize 4.5",
    ("buildah",): "buildah",
    ("runc",): "runc",
    ("mmdebstrap",): "mmdebstrap",
    ("promtool",): "prometheus",
    ("prometheus",): "prometheus",
    ("redis-server",): "redis-server",
}


def pytest_configure() -> None:
    """Ends the run when the machine lacks something."""
    missing = [package for any_of, package in NEEDED.items() if not any(map(shutil.which, any_of))]
    if missing:
        words = ", ".join(dict.fromkeys(missing))
        pytest.exit(f"make test-deploy needs programs that are not here: {words}", returncode=1)
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
