"""Patches and edits as text, read and applied to a repository's files. Pure, no I/O, bounded."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from proctor_service.features.repositories.applying import ReasonOf, applied_in
from proctor_service.features.repositories.change import Base, shown_path
from proctor_service.features.repositories.edits import Edits, read_edits
from proctor_service.features.repositories.failures import Applied, PatchFailed, Work
from proctor_service.features.repositories.patch_text import FilePatch, Parsed, parse
from proctor_service.features.repositories.readings import (
    Reading,
    folder_readings,
    plain_readings,
    sources,
    usual_stripped,
)

__all__ = ["Applied", "Edits", "Patch", "PatchFailed", "read_edits", "read_patch"]


def read_patch(text: bytes) -> Patch:
    """Parse a unified diff. Raises PatchFailed for a text without a diff, and for a cut or damaged diff."""
    return Patch(text, parse(text))


@dataclass(frozen=True, slots=True)
class Patch:
    """A unified diff. `parsed`: by the counts in its heads where these fit the text."""

    text: bytes
    parsed: Parsed

    def needed(self, paths: Collection[bytes]) -> Collection[bytes]:
        """Return the files of the base with bytes needed by `applied`."""
        index, needed = _set_of(paths), dict[bytes, None]()
        for parsed in self._parsings():
            readings = [
                each
                for number, each in enumerate(plain_readings(parsed.files))
                if number < 2 or _has_first(parsed.files, each, index)
            ]
            readings += folder_readings(parsed.files, index, Work())
            for reading in readings:
                for file in parsed.files:
                    found = (reading.path(file.old), reading.path(file.new))
                    needed.update(
                        (each, None) for each in found if each is not None and each in index
                    )
        return list(needed)

    def applied(self, base: Base, reason_of: ReasonOf = lambda _: None) -> Applied:
        """Return the change of the base made by the patch. Raises PatchFailed.

        `reason_of`: returns the reason of the caller for leaving a path out, whatever the patch does there,
        or None; such a file need not fit. Takes time proportional to the patch and its files, with a fixed
        upper bound of some seconds: call it in a thread.
        """
        paths, work = _set_of(base.paths()), Work()
        failure: PatchFailed | None = None
        for parsed in self._parsings():
            found, failed = _first_fit(parsed, base, paths, reason_of, work)
            if found is not None:
                return found
            failure = failure or failed
        raise failure or PatchFailed("the patch does not apply")

    def _parsings(self) -> Iterator[Parsed]:
        yield self.parsed
        try:
            counted = parse(self.text, is_counted=True)
        except PatchFailed:
            return
        yield replace(counted, how=tuple(dict.fromkeys((*counted.how, "counts"))))


def _set_of(paths: Collection[bytes]) -> Collection[bytes]:
    return paths if isinstance(paths, set | frozenset | dict) else frozenset(paths)


def _first_fit(
    parsed: Parsed, base: Base, paths: Collection[bytes], reason_of: ReasonOf, work: Work
) -> tuple[Applied | None, PatchFailed | None]:
    """Return the patch in the first fitting reading, or the failure of the likeliest reading."""
    failures: list[PatchFailed] = []
    usual = usual_stripped(parsed.files)

    def tried(reading: Reading) -> Applied | None:
        try:
            found = applied_in(parsed.files, reading, base, paths, reason_of, work)
        except PatchFailed as failure:
            failures.append(failure)
            return None
        how = (*parsed.how, *reading.how(usual), *found.how)
        return replace(found, how=tuple(dict.fromkeys(how)))

    absent: PatchFailed | None = None
    for number, reading in enumerate(plain_readings(parsed.files)):
        missing = _missing(parsed.files, reading, paths, reason_of)
        if missing is None:
            # a patch of new files alone tells nothing of another prefix
            has_source = next(sources(parsed.files, reading), None) is not None
            if (number == 0 or has_source) and (found := tried(reading)):
                return found, None
        elif absent is None:
            absent = PatchFailed(f"the repository has no file {missing}", missing)
    fitting = [
        found
        for reading in folder_readings(parsed.files, paths, work)
        if (found := tried(reading)) is not None
    ]
    if len(fitting) == 1:
        return fitting[0], None
    if fitting:
        return None, PatchFailed("the patch fits below several folders of the repository")
    return None, failures[0] if failures else absent


def _has_first(files: Sequence[FilePatch], reading: Reading, paths: Collection[bytes]) -> bool:
    """Return True if the base has the first file needed in a reading."""
    return any(each in paths for each in next(sources(files, reading), ()))


def _missing(
    files: Sequence[FilePatch], reading: Reading, paths: Collection[bytes], reason_of: ReasonOf
) -> str | None:
    """Return a file needed by the reading and missing in the base, as named by the patch."""
    for options in sources(files, reading):
        if not options:
            return next((file.shown for file in files), "")
        if not any(each in paths or reason_of(each) for each in options):
            return shown_path(options[0])
    return None
