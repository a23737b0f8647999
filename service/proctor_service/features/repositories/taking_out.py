"""What of a change crosses into the grading sandbox, and the state in which it is graded. Pure, no I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from proctor_service.features.repositories.change import Base, Change, FileState, LeftOut


@dataclass(frozen=True, slots=True)
class Protection:
    """Facts of a task that decide which files are the task's.

    `report`: kind of report of the grader, such as "pytest". `listed`: names of tests. `brought`: paths of
    the task's own files (`files`, `test_patch`, `files_from`). `command`: the test command, one text or
    words each. `protect`: more patterns; `writable`: patterns of files that tests rewrite.
    """

    report: str = "pytest"
    listed: Collection[str] = ()
    brought: Collection[bytes] = ()
    command: Sequence[str] = ()
    protect: Sequence[str] = ()
    writable: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Crossing:
    """What crosses of a change. `signals`: names of docs/signals.md."""

    change: Change
    left_out: tuple[LeftOut, ...] = ()
    signals: tuple[str, ...] = ()


def take_out(change: Change, base: Base, protection: Protection) -> Crossing:
    """Return the part of a change that crosses, and the list of the rest with reasons."""
    raise NotImplementedError


def graded(
    base: Base,
    crossing: Change,
    reference: Change | None,
    tests: Mapping[bytes, FileState],
    remove: Collection[bytes],
    protection: Protection,
) -> Change:
    """Return the state in which grading happens, as a change of the base.

    Protected files have the state of the reference, or else of the base; the task's tests lie on top.
    """
    raise NotImplementedError
