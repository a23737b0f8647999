"""Readings of the names in a patch: with a prefix such as `a/`, without, below one folder. Pure.

A reading is for the whole patch. The first reading with existing and fitting files counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from proctor_service.features.repositories.failures import Work
from proctor_service.features.repositories.patch_text import FilePatch, Name
from proctor_service.features.repositories.quoted_names import without_components

MAX_STRIPPED = 6
MAX_FOLDERS = 16
_PREFIXES = (b"a/", b"b/", b"i/", b"w/", b"c/", b"o/", b"1/", b"2/")
"""Prefixes of git: by default, and with diff.mnemonicPrefix."""


@dataclass(frozen=True, slots=True)
class Reading:
    """`stripped`: components cut from a name's begin. `folder`: put before the name; "" or with a slash."""

    stripped: int
    folder: bytes = b""

    def path(self, name: Name | None) -> bytes | None:
        """Return the path of a name; None for an absent name, and for too short a name."""
        if name is None:
            return None
        stripped = max(self.stripped - 1, 0) if name.is_bare else self.stripped
        path = without_components(name.raw, stripped)
        return None if path is None else self.folder + path

    def how(self, usual: int) -> tuple[str, ...]:
        """Return this reading as a repair; `usual`: number of components in the patch's own prefixes."""
        if self.folder:
            return (f"folder {self.folder.decode('utf-8', 'backslashreplace')}",)
        return () if self.stripped == usual == 1 else ("prefix",)


def has_prefix(file: FilePatch) -> bool | None:
    """Return True if the names of one file have prefixes; None if the names leave this open."""
    old, new = file.old, file.new
    if file.header is not None and file.kind not in ("rename", "copy"):
        return file.header[0] != file.header[1]
    if old is not None and new is not None:
        if old.is_bare or new.is_bare:
            return None
        return old.raw != new.raw
    name = new or old
    return None if name is None else name.raw.startswith(_PREFIXES)


def usual_stripped(files: Iterable[FilePatch]) -> int:
    """Return 0 for a patch with names without prefixes, else 1."""
    return 0 if False in {has_prefix(file) for file in files} else 1


def sources(files: Sequence[FilePatch], reading: Reading) -> Iterator[tuple[bytes, ...]]:
    """Yield the possible paths of each file needed in the base.

    Files made by an earlier part of the patch are passed over. A name too short for the reading is left out.
    """
    made, found = set[bytes](), set[tuple[bytes, ...]]()
    for file in files:
        old, new = reading.path(file.old), reading.path(file.new)
        if file.kind != "create" and not file.may_create and not file.is_stub:
            paths = (new, old) if file.kind == "modify" else (old,)
            options = tuple(dict.fromkeys(each for each in paths if each is not None))
            if not made.intersection(options) and options not in found:
                found.add(options)
                yield options
        if new is not None:
            made.add(new)


def plain_readings(files: Sequence[FilePatch]) -> Iterator[Reading]:
    """Yield the readings from the repository's own folder, the likeliest first."""
    usual = usual_stripped(files)
    yield from map(Reading, (usual, 1 - usual, *range(2, MAX_STRIPPED + 1)))


def folder_readings(
    files: Sequence[FilePatch], paths: Collection[bytes], work: Work
) -> Iterator[Reading]:
    """Yield readings below a folder with all files, of at most MAX_FOLDERS folders."""
    usual = usual_stripped(files)
    for stripped in (usual, 1 - usual):
        needed = list(sources(files, Reading(stripped)))
        if not needed or not all(needed):
            continue
        found = 0
        for folder in _folders_with(needed[0], paths):
            work.spend(lines=len(needed) // 16 + 1)
            if all(any(folder + each in paths for each in options) for options in needed):
                found += 1
                if found > MAX_FOLDERS:
                    return
                yield Reading(stripped, folder)


def _folders_with(options: tuple[bytes, ...], paths: Collection[bytes]) -> Iterator[bytes]:
    endings = tuple(b"/" + each for each in options)
    found = set()
    for path in paths:
        if path.endswith(endings):
            ending = next(each for each in endings if path.endswith(each))
            folder = path[: len(path) - len(ending) + 1]
            if folder not in found:
                found.add(folder)
                yield folder
