"""Languages that are rows alone, each with programs that add, fail, spin, hoard, peek and swarm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import Service
from installed import are_installed
from judging import judge
from row_samples import PEEKED, SAMPLES

from proctor_service.settings.language_rows import KNOWN_LANGUAGES
from proctor_service.settings.languages import LANGUAGES

ROWS = {name: row for name, row in KNOWN_LANGUAGES.items() if name not in LANGUAGES}
HERE = [name for name, row in ROWS.items() if are_installed(row.needs)]
SUM = {
    "kind": "stdio",
    "cases": [{"stdin": "2 3\n", "stdout": "5\n"}, {"stdin": "40 -7\n", "stdout": "33\n"}],
}
LIMITS = {"cpu_seconds": 6}
SLOW_STARTS = ("clojure",)


def test_each_row_has_programs() -> None:
    assert set(SAMPLES) == set(ROWS)
