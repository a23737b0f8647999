"""The command line, called in the test's own process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from proctor_service.cli import build


def proctor(*arguments: str | Path, **environment: str) -> Result:
    """Runs a command in this process, with these variables beside those of the process."""
    return CliRunner().invoke(
        build(), [str(each) for each in arguments], prog_name="proctor", env=environment
    )


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves no setting of whoever runs the tests."""
    forget_settings(monkeypatch)


def forget_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves no setting of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("PROCTOR_")]:
        monkeypatch.delenv(name)
