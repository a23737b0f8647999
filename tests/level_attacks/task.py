"""One task of the level attacks: tests, a right solution, and wrong ones that want the reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Task:
    """Tests with a right solution and wrong ones, by name.

    `secret`: a word of the expected values, which no result of a wrong submission may hold when `reveal`
    is false.
    """

    name: str
    tests: str
    right: str
    wrong: dict[str, str]
    setup: str = ""
    secret: str = ""
    entry_point: str | None = None

    def grader(self) -> dict[str, Any]:
        """Return the grader that judges by these tests."""
        grader: dict[str, Any] = {"kind": "asserts", "tests": [self.tests], "setup": self.setup}
        if self.entry_point:
            grader["entry_point"] = self.entry_point
        if self.secret:
            grader["reveal"] = False
        return grader
