"""The failure of a patch, the result of a patch, and the bounds of the work for a patch."""

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
    """A text without a patch, or a patch that does not apply. The repository stays unchanged.

    `file`: the path as named by the patch, "" for the whole patch. `hunk`: counted from 1, or None.
    """

    def __init__(self, message: str, file: str = "", hunk: int | None = None) -> None:
        super().__init__(message)
        self.message, self.file, self.hunk = message, file, hunk


@dataclass(frozen=True, slots=True)
class Applied:
    """A patch on its base.

    `how`: repairs of the reading, such as "line_ends", "prefix", "fuzz 1"; empty for a patch in git's own
    form. `left_out`: files left out by the caller, and files without data.
    """

    change: Change
    how: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


class Work:
    """The remaining work allowed for one text. Raises PatchFailed when used up."""

    def __init__(self) -> None:
        self._bytes, self._lines = MAX_WORK_BYTES, MAX_WORK_LINES

    def spend(self, *, size_bytes: int = 0, lines: int = 0) -> None:
        self._bytes -= size_bytes
        self._lines -= lines
        if self._bytes < 0 or self._lines < 0:
            raise PatchFailed("applying this text takes more work than one may cause")
