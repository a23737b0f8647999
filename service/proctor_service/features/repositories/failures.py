"""The failure of a patch, the result of one, and the bounds of the work on one."""

from __future__ import annotations

from dataclasses import dataclass

from proctor_service.features.repositories.change import Change, LeftOut

MAX_PATCH_BYTES = 64 * 1024 * 1024
MAX_PATCH_LINES = 1_000_000
MAX_PATCHED_FILES = 50_000
MAX_FILE_LINES = 2_000_000
"""Lines of a file that hunks or blocks may change."""
MAX_WORK_BYTES = 256 * 1024 * 1024
"""Bytes of files that one text may have read, split and written, over all readings."""
MAX_WORK_LINES = 20_000_000
"""Lines of files that one text may have split and compared, over all readings."""


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


class Work:
    """The work that one text may still cause. Raises PatchFailed where it is used up."""

    def __init__(self) -> None:
        self._bytes, self._lines = MAX_WORK_BYTES, MAX_WORK_LINES

    def spend(self, *, size_bytes: int = 0, lines: int = 0) -> None:
        self._bytes -= size_bytes
        self._lines -= lines
        if self._bytes < 0 or self._lines < 0:
            raise PatchFailed("applying this text takes more work than one may cause")
