"""The service's own log, as a collector reads it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from proctor_service.observe.logs import configure_logging


@contextmanager
def log_lines(
    capsys: pytest.CaptureFixture[str], level: str = "info", *more: Any
) -> Iterator[list[dict[str, Any]]]:
    """Log as JSON until the block ends; the list has the lines from then on."""
    root = logging.getLogger()
    before, root_level = root.handlers[:], root.level
    lines: list[dict[str, Any]] = []
    try:
        configure_logging(level, "json", *more)
        yield lines
    finally:
        root.handlers[:] = before
        root.setLevel(root_level)
    lines += [json.loads(line) for line in capsys.readouterr().err.splitlines()]
