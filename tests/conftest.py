"""Lets every test import what stands in this folder, and be interrupted where it asks for that."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Has Ctrl-C interrupt this process, and those that it starts meanwhile.

    A job in the background of a shell begins with SIGINT ignored, and so do all processes below it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
