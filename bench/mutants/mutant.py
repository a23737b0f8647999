"""One fault in one line of a file, found again by the text of this line, and the lists of such faults."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


def content_hash(*parts: object) -> str:
    """A digest of texts and numbers, equal in each run, for names and for an order by chance."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def occurrence(lines: list[str], index: int) -> int:
    """The number of equal lines before the line at `index`."""
    return lines[:index].count(lines[index])


@dataclass(frozen=True, slots=True)
class Mutant:
    """A replacement of the text `before` by `after` at a line and column, counted from 1 and 0."""

    path: str
    line: int
    column: int
    operator: str
    before: str
    after: str
    line_text: str
    line_occurrence: int

    @property
    def name(self) -> str:
        """A short digest, stable where other lines of the file change."""
        return content_hash(
            *(self.path, self.line_text, self.line_occurrence),
            *(self.column, self.operator, self.before, self.after),
        )[:12]

    def line_in(self, source: str) -> int | None:
        """The number of the mutant's line in a later text of the file, None if the line is gone."""
        lines = source.split("\n")
        equal = [number for number, text in enumerate(lines, 1) if text == self.line_text]
        if self.line_occurrence >= len(equal):
            return None
        number = equal[self.line_occurrence]
        start = sum(len(text) + 1 for text in lines[: number - 1]) + self.column
        return number if source.startswith(self.before, start) else None

    def applied(self, source: str) -> str:
        """The text of the file with this fault.

        Raises ValueError if the line is gone.
        """
        number = self.line_in(source)
        if number is None:
            raise ValueError(f"{self.path} has no line {self.line_text!r} any more")
        lines = source.split("\n")
        start = sum(len(text) + 1 for text in lines[: number - 1]) + self.column
        return source[:start] + self.after + source[start + len(self.before) :]


def write_list(path: Path, mutants: Iterable[Mutant]) -> None:
    records = [asdict(mutant) for mutant in mutants]
    path.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n")


def read_list(path: Path) -> list[Mutant]:
    return [Mutant(**record) for record in json.loads(path.read_text())]
