"""Limits of a row for a test: time in seconds, memory in megabytes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from proctor_client.tasks.task import Row

_MEGABYTE = 1 << 20
_DURATION = re.compile(r"\s*([0-9.]+)\s*(?:(ms|milliseconds?)|s|sec|seconds?)?\s*", re.IGNORECASE)
"""A time limit such as `2.0 seconds` or `500 ms`; without a unit, seconds."""
_SIZE = re.compile(r"\s*([0-9.]+)\s*(?:mi?b|megabytes?)\s*", re.IGNORECASE)
"""A memory limit such as `256.0 megabytes`."""
_HARNESS_SECONDS: Mapping[str, float] = {"apps": 4.0, "livecodebench": 6.0, "hardtests": 5.0}
"""Time limit of one test in the harnesses of rows that bring none of their own."""


def limits_of(row: Row, form: str = "") -> dict[str, Any] | None:
    """Return a row's limits for a test, in seconds and megabytes. `form`: its harness may set a limit."""
    seconds = _seconds(row.get("time_limit"), row.get("time_limit_seconds"))
    limits = {
        "cpu_seconds": seconds or _HARNESS_SECONDS.get(form),
        "memory_mb": _megabytes(row.get("memory_limit"), row.get("memory_limit_bytes")),
    }
    return {name: value for name, value in limits.items() if value} or None


def _seconds(*values: Any) -> float | None:
    for value in values:
        if isinstance(value, Mapping):
            value = (value.get("seconds") or 0) + (value.get("nanos") or 0) / 1e9
        if isinstance(value, str):
            matched = _DURATION.fullmatch(value)
            value = float(matched[1]) / (1000 if matched[2] else 1) if matched else None
        if isinstance(value, int | float) and value > 0:
            return float(value)
    return None


def _megabytes(megabytes: Any, size_bytes: Any) -> int | None:
    if isinstance(megabytes, str):
        matched = _SIZE.fullmatch(megabytes)
        megabytes = float(matched[1]) if matched else None
    if isinstance(megabytes, int | float) and megabytes > 0:
        return math.ceil(megabytes)
    if isinstance(size_bytes, int | float) and size_bytes > 0:
        return math.ceil(size_bytes / _MEGABYTE)
    return None
