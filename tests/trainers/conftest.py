"""Fixtures that several files of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Service, running_service

from proctor_service.settings import Settings


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """Run the one service of a worker; a test asks for it only if it is slow."""
    with running_service(Settings(), judge=None) as running:
        yield running


@pytest.fixture
def old_trl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has an older version of TRL, as far as a package's version goes."""
    (tmp_path / "trl-1.14.0.dist-info").mkdir()
    (tmp_path / "trl-1.14.0.dist-info" / "METADATA").write_text("Name: trl\nVersion: 1.14.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
