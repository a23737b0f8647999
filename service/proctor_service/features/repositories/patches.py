"""Patches and edits as text, read and applied to a repository's files. Pure, no I/O, bounded."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from proctor_service.features.repositories.change import Base, Change, LeftOut


class PatchFailed(Exception):
    """A text that is no patch, or a patch that does not apply. Nothing of it is applied.

    `file`: the path as the patch names it, "" for the whole patch. `hunk`: counted from 1, or None.
    """

    def __init__(self, message: str, file: str = "", hunk: int | None = None) -> None:
        super().__init__(message)
        self.message, self.file, self.hunk = message, file, hunk


@dataclass(frozen=True, slots=True)
class Applied:
    """A patch on its base.

    `how`: repairs of the reading, such as "line_ends", "prefix", "fuzz 1"; empty for a patch as git
    writes it. `left_out`: files that the caller left out, and files without data.
    """

    change: Change
    how: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, slots=True)
class Patch:
    """A unified diff, parsed."""

    def needed(self, paths: Collection[bytes]) -> Collection[bytes]:
        """Return the files of the base whose bytes `applied` may ask for."""
        raise NotImplementedError

    def applied(self, base: Base, is_left_out: Callable[[bytes], bool]) -> Applied:
        """Return the change that the patch makes of the base. Raises PatchFailed.

        `is_left_out`: tells of a path that the caller leaves out whatever the patch does there; such a
        file need not fit. Takes time proportional to the patch and its files: call it in a thread.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Edits:
    """Blocks of search and replace, each with a path, parsed."""

    def needed(self, paths: Collection[bytes]) -> Collection[bytes]:
        """Return the files of the base whose bytes `applied` may ask for."""
        raise NotImplementedError

    def applied(self, base: Base, is_left_out: Callable[[bytes], bool]) -> Applied:
        """Return the change that the edits make of the base. Raises PatchFailed."""
        raise NotImplementedError


def read_patch(text: bytes) -> Patch:
    """Parse a unified diff. Raises PatchFailed for a text without one."""
    raise NotImplementedError


def read_edits(text: bytes) -> Edits:
    """Parse blocks of search and replace. Raises PatchFailed for a text without one."""
    raise NotImplementedError
