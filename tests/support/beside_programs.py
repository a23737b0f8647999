"""Honest programs and their tests in one process: what plain Python accepts must pass.

Each does something that a protection of the tests might take for an attack. `beside_programs.txt` has
a name, a setup if there is one, the submission, the names that the tests import, and the tests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

# Such as "--- tests of f, helper"; and before a submission, behind a setup, "--- submission".
_TESTS = re.compile(r"^--- tests of (.*)\n", re.MULTILINE)
_SUBMISSION = "--- submission\n"


@dataclass(frozen=True)
class Program:
    setup: str
    source: str
    names: str
    tests: str

    @property
    def plain(self) -> str:
        """One file with setup, submission and tests."""
        return "\n".join((self.setup, self.source, self.tests))

    @property
    def test_file(self) -> str:
        """A file for pytest with the same tests."""
        body = "".join(f"    {line}\n" for line in self.tests.strip().split("\n"))
        return f"{self.setup}\nfrom solution import {self.names}\ndef test_it():\n{body}"


def _programs(text: str) -> dict[str, Program]:
    found = {}
    for part in text.split("=== ")[1:]:
        name, _, rest = part.partition("\n")
        first, names, tests = _TESTS.split(rest)
        setup, _, source = first.rpartition(_SUBMISSION)
        found[name] = Program(setup, source, names, tests)
    return found


HONEST = _programs(Path(__file__).with_suffix(".txt").read_text("utf-8"))
