"""The values of a report: facts of an image, a run of the tests, the outcomes by test."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Outcome = Literal["passed", "failed", "error", "skipped", "expected_failure", "unexpected_pass"]

SEVERITY: Mapping[Outcome, int] = {
    "passed": 0,
    "unexpected_pass": 1,
    "expected_failure": 2,
    "skipped": 3,
    "failed": 4,
    "error": 5,
}
"""Of several outcomes of one name the one with the highest number counts."""


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """Facts of an image, found once at fetching."""

    site_packages: tuple[str, ...] = ()
    """Absolute paths of the folders in which the image's Python interpreters process `.pth` files."""


@dataclass(frozen=True, slots=True)
class TestRun:
    """A run of the test command, as left in the sandbox."""

    __test__ = False  # pytest collects classes with this name

    events: Sequence[bytes] = ()
    """Lines that the listener recorded, in order."""
    stdout: bytes = b""
    stderr: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Collected files by absolute path."""
    exit_status: int | None = None
    """None: the command did not end by itself."""


@dataclass(frozen=True, slots=True)
class Reported:
    """Outcomes by test name, and how they were obtained."""

    outcomes: Mapping[str, Outcome]
    kind: str
    signals: tuple[str, ...] = ()
    is_complete: bool = True
    """False: the runner did not report its end, so tests without an outcome may not have run."""
    aliases: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Names in `outcomes` that are other ways to write tests, and these tests."""


class Report(Protocol):
    """A way to obtain outcomes, for one run of the tests. By default the run stays as it is."""

    def files(self, image: ImageFacts) -> Mapping[str, bytes]:
        """Files to put into the grading sandbox before the run, by absolute path."""
        return {}

    def variables(self, present: Mapping[str, str]) -> Mapping[str, str]:
        """Return environment variables for the test command; `present`: its variables so far."""
        return {}

    def collects(self) -> Sequence[str]:
        """Patterns (fnmatch, below the repository's folder or absolute) of files to read afterwards."""
        return ()

    def read(self, run: TestRun) -> Reported:
        """Return the outcomes; pure, in time proportional to the outputs of the run."""
        ...


def add_outcome(outcomes: dict[str, Outcome], name: str, outcome: Outcome) -> None:
    """Add an outcome; of several outcomes of a name the worst stays."""
    before = outcomes.get(name)
    if before is None or SEVERITY[before] < SEVERITY[outcome]:
        outcomes[name] = outcome


def add_aliases(
    outcomes: dict[str, Outcome],
    others: Mapping[str, Outcome],
    written: Mapping[str, Collection[str]],
) -> Mapping[str, frozenset[str]]:
    """Add outcomes by other names, `others`, unless a test has the same name; return `Reported.aliases`.

    `written`: the tests by each of these names.
    """
    aliases = {name: frozenset(written[name]) for name in others if name not in outcomes}
    outcomes.update((name, others[name]) for name in aliases)
    return aliases
