"""Imports of the helper modules in `support/`, and a fixture for tests that press Ctrl-C."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent
sys.path[:0] = [str(_TESTS / "support"), str(_TESTS)]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Has Ctrl-C interrupt this process, and those that it starts meanwhile.

    A job in the background of a shell begins with SIGINT ignored, and so do all processes below it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
