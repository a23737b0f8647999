"""The change of a submission: of a text, or of an agent's sandbox."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from proctor_service.features.repositories.applying import ReasonOf
from proctor_service.features.repositories.base import SandboxBase
from proctor_service.features.repositories.change import (
    Change,
    FileState,
    LeftOut,
    Mode,
    StoredFiles,
    shown_path,
)
from proctor_service.features.repositories.patches import Edits, Patch, read_edits, read_patch
from proctor_service.features.repositories.trees import SavedFiles

EDITS = "edits\n"
"""First line of a submission's source that has edits; a diff has none."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """The changes of a submission, before anything is taken out."""

    change: Change
    how: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


async def of_text(text: str, base: SandboxBase, reason_of: ReasonOf) -> Submitted:
    """Return the change of a diff, or of edits behind EDITS. Raises PatchFailed.

    `reason_of`: returns the reason for leaving a path out.
    """
    has_edits = text.startswith(EDITS)
    data = text.removeprefix(EDITS).encode("utf-8", "surrogateescape")
    read: Callable[[bytes], Patch | Edits] = read_edits if has_edits else read_patch
    patch = await asyncio.to_thread(read, data)
    await base.load(patch.needed(base.paths()))
    applied = await asyncio.to_thread(patch.applied, base, reason_of)
    return Submitted(applied.change, applied.how, applied.left_out)


async def of_patch(text: bytes, base: SandboxBase) -> Change:
    """Return the change of a diff of the task. Raises PatchFailed."""
    patch = await asyncio.to_thread(read_patch, text)
    await base.load(patch.needed(base.paths()))
    return (await asyncio.to_thread(patch.applied, base)).change


async def of_saved(
    saved: SavedFiles, base: SandboxBase, hidden: Callable[[bytes], bool]
) -> Submitted:
    """Return the difference of an agent's repository from the base.

    `hidden`: returns True for a file absent from the agent's sandbox from the beginning.
    """
    sizes = {path: saved.size(path) for path in saved}
    changed = await base.unequal(saved, sizes)
    present = saved.unchanged | sizes.keys()
    deleted = [path for path in base.paths() if path not in present and not hidden(path)]
    others = [path for path in saved.others if base.size(path) is None]
    files = _Part(saved, dict.fromkeys(changed, True) | dict.fromkeys(deleted, False))
    left_out = [LeftOut(shown_path(each), "no_regular_file") for each in others]
    left_out += [LeftOut(shown_path(each), "environment") for each in saved.environments]
    left_out += [LeftOut(shown_path(each), "git") for each in saved.nested]
    return Submitted(Change(files), left_out=tuple(left_out))


def hiding(patterns: Sequence[str], directory: str) -> Callable[[bytes], bool]:
    """Return a function that returns True for paths matched by the patterns of `hide`, or below a match."""
    own = [
        each.removeprefix(f"{directory}/").strip("/")
        for each in patterns
        if not each.startswith("/") or each.startswith(f"{directory}/")
    ]

    def is_hidden(path: bytes) -> bool:
        text = os.fsdecode(path)
        return any(fnmatchcase(text, each) or fnmatchcase(text, f"{each}/*") for each in own)

    return is_hidden


class _Part(StoredFiles):
    """Some saved files, read on demand; False: a deleted file."""

    def __init__(self, saved: SavedFiles, is_present: Mapping[bytes, bool]) -> None:
        self._saved = saved
        self._is_present = is_present

    def __getitem__(self, path: bytes) -> FileState | None:
        return self._saved[path] if self._is_present[path] else None

    def __contains__(self, path: object) -> bool:
        return path in self._is_present

    def mode(self, path: bytes) -> Mode | None:
        """See `change.StoredFiles`."""
        return self._saved.mode(path) if self._is_present[path] else None

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._is_present)

    def __len__(self) -> int:
        return len(self._is_present)
