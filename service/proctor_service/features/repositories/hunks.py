"""Finds the places of hunks in a file, strictest reading first, and changes the file there. Pure, bounded.

A hunk is compared with its context cut by zero, one or two lines (fuzz, as in patch(1)), and for each cut
with exact bytes, then without line ends, then without blanks at the ends of lines. The first comparison with
a match counts. A hunk that fits at the place stated by its head is there; otherwise all hunks of the file are
moved by the single distance at which all fit, or each must fit in exactly one place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proctor_service.features.repositories.failures import MAX_FILE_LINES, PatchFailed, Work
from proctor_service.features.repositories.patch_text import Hunk

MAX_FUZZ = 2
MAX_PLACES = 64
COMPARISON_LINES = 20
"""Work of a comparison itself, as a number of lines."""
_CONTEXT, _ADDED = 0x20, 0x2B


def _as_is(line: bytes) -> bytes:
    return line


def _without_end(line: bytes) -> bytes:
    return line.rstrip(b"\r\n")


def _without_blanks(line: bytes) -> bytes:
    return line.rstrip()


COMPARISONS: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("", _as_is),
    ("line_ends", _without_end),
    ("blanks", _without_blanks),
)


class FileLines:
    """The lines of a file with their ends, and where each line occurs, by comparison."""

    def __init__(self, content: bytes, work: Work) -> None:
        if content.count(b"\n") >= MAX_FILE_LINES:
            raise PatchFailed(f"a file of more than {MAX_FILE_LINES} lines")
        work.spend(size_bytes=len(content))
        *whole, last = content.split(b"\n")
        self.lines = [line + b"\n" for line in whole] + [last] * bool(last)
        work.spend(lines=len(self.lines))
        self._work = work
        self._keys: dict[int, list[bytes]] = {0: self.lines}
        self._places: dict[int, dict[bytes, list[int]]] = {}

    def keys(self, level: int) -> list[bytes]:
        if level not in self._keys:
            self._work.spend(lines=len(self.lines))
            self._keys[level] = [COMPARISONS[level][1](line) for line in self.lines]
        return self._keys[level]

    def fits(self, level: int, wanted: list[bytes], at: int) -> bool:
        """Return True if these keys equal the keys of the lines from `at`."""
        self._work.spend(lines=COMPARISON_LINES + len(wanted))
        keys = self.keys(level)
        return 0 <= at <= len(keys) - len(wanted) and keys[at : at + len(wanted)] == wanted

    def places(self, level: int, wanted: list[bytes]) -> list[int]:
        """Return all places of these keys, up to MAX_PLACES + 1."""
        if level not in self._places:
            places: dict[bytes, list[int]] = {}
            for at, key in enumerate(self.keys(level)):
                places.setdefault(key, []).append(at)
            self._work.spend(lines=len(self.lines))
            self._places[level] = places
        index = self._places[level]
        rarest = min(range(len(wanted)), key=lambda each: len(index.get(wanted[each], ())))
        found: list[int] = []
        for at in index.get(wanted[rarest], ()):
            if self.fits(level, wanted, at - rarest):
                found.append(at - rarest)
                if len(found) > MAX_PLACES:
                    break
        return found

    def line_end(self, begin: int, end: int) -> bytes:
        """Return the usual line end of these lines, or of the file if these lines have no end."""
        for lines in (self.lines[begin:end], self.lines[:100]):
            ended = [line for line in lines if line.endswith(b"\n")]
            if ended:
                crlf = sum(line.endswith(b"\r\n") for line in ended)
                return b"\r\n" if 2 * crlf > len(ended) else b"\n"
        return b"\n"


@dataclass(slots=True)
class _Match:
    """The places of a hunk. `stated`: the place by its head, from 0. `places`: None until needed."""

    hunk: Hunk
    stated: int | None
    is_stated: bool
    level: int = 0
    fuzz: int = 0
    wanted: list[bytes] | None = None
    skipped: int = 0
    places: list[int] | None = None

    def all_places(self, file: FileLines) -> list[int]:
        if self.wanted is None:
            return [self.stated] if self.is_stated and self.stated is not None else []
        if self.places is None:
            found = file.places(self.level, self.wanted)
            self.places = [each - self.skipped for each in found]
        return self.places


@dataclass(frozen=True, slots=True)
class _Edit:
    """Lines `begin` to `end` of the old file are replaced."""

    begin: int
    end: int
    lines: list[bytes]


def patched(
    content: bytes, hunks: Sequence[Hunk], work: Work, file: str
) -> tuple[bytes, tuple[str, ...]]:
    """Return the content with all hunks applied, and the repairs. Raises PatchFailed."""
    if not hunks:
        return content, ()
    lines = FileLines(content, work)
    matches = [_match(lines, hunk, work, file) for hunk in hunks]
    places = _places_of(matches, lines, file)
    edits, how = [], []
    for match, place in zip(matches, places, strict=True):
        edits += _edits_of(match, place, lines)
        how += [COMPARISONS[match.level][0]] * (match.level > 0)
        how += [f"fuzz {match.fuzz}"] * (match.fuzz > 0)
        how += ["offset"] * (match.stated is not None and place != match.stated)
    result = _replaced(lines, edits, file)
    work.spend(size_bytes=len(result))
    return result, tuple(dict.fromkeys(how))


def _match(file: FileLines, hunk: Hunk, work: Work, name: str) -> _Match:
    """Return the strictest matching comparison for a hunk."""
    old = hunk.old
    work.spend(lines=len(hunk.lines))
    if not old:
        return _insertion(file, hunk, name)
    stated = None if hunk.start is None else max(hunk.start - 1, 0)
    leading, trailing = _context(hunk.marks)
    seen = set()
    for fuzz in range(MAX_FUZZ + 1):
        longest = max(leading, trailing)
        head = min(max(0, fuzz + leading - longest), leading)
        tail = min(max(0, fuzz + trailing - longest), trailing)
        part = old[head : len(old) - tail]
        if (head, tail) in seen or (not any(line.strip() for line in part) and fuzz):
            continue
        seen.add((head, tail))
        for level, (_, key) in enumerate(COMPARISONS):
            wanted = [key(line) for line in part] if level else part
            match = _Match(hunk, stated, False, level, fuzz, wanted, head)
            match.is_stated = stated is not None and file.fits(level, wanted, stated + head)
            if match.is_stated or match.all_places(file):
                return match
    raise PatchFailed(
        f"hunk {hunk.number} fits nowhere: its context and removed lines are not in the file",
        name,
        hunk.number,
    )


def _insertion(file: FileLines, hunk: Hunk, name: str) -> _Match:
    """Return the place of a hunk without old lines: behind the line named by its head."""
    at = hunk.start if hunk.start is not None else 0 if not file.lines else None
    if at is not None and not file.lines:
        at = 0
    if at is None or at > len(file.lines):
        raise PatchFailed(
            f"hunk {hunk.number} names no place: it has neither context nor a line of the file",
            name,
            hunk.number,
        )
    return _Match(hunk, at, True)


def _context(marks: bytes) -> tuple[int, int]:
    """Return the numbers of lines of context at the begin and at the end of a hunk."""
    plain = bytes([_CONTEXT])
    return len(marks) - len(marks.lstrip(plain)), len(marks) - len(marks.rstrip(plain))


def _places_of(matches: list[_Match], file: FileLines, name: str) -> list[int]:
    """Return a place for each hunk. Raises PatchFailed where several fit."""
    if all(match.is_stated for match in matches):
        return [match.stated or 0 for match in matches]
    distance = _common_distance(matches, file)
    if distance is not None:
        return [(match.stated or 0) + distance for match in matches]
    places = [
        match.stated
        if match.is_stated and match.stated is not None
        else found[0]
        if len(found := match.all_places(file)) == 1
        else None
        for match in matches
    ]
    chosen: list[int] = []
    for number, (match, place) in enumerate(zip(matches, places, strict=True)):
        if match.wanted is None and (place != match.stated or len(matches) > 1):
            raise _ambiguous(match, name)  # the lines around it have moved
        if place is None:
            before = chosen[-1] + len(matches[number - 1].hunk.old) if chosen else 0
            behind = next((each for each in places[number + 1 :] if each is not None), None)
            between = _between(match.all_places(file), before, behind)
            if len(between) != 1:
                raise _ambiguous(match, name)
            place = between[0]
        chosen.append(place)
    return chosen


def _between(places: list[int], begin: int, end: int | None) -> list[int]:
    return [each for each in places if each >= begin and (end is None or each < end)]


def _ambiguous(match: _Match, name: str) -> PatchFailed:
    number = match.hunk.number
    return PatchFailed(
        f"hunk {number} fits in several places, and not where its head says", name, number
    )


def _common_distance(matches: list[_Match], file: FileLines) -> int | None:
    """Return the only distance from the stated places at which all hunks fit; None for zero or several."""
    common: set[int] | None = None
    for match in matches:
        found = match.all_places(file) if match.wanted is not None else []
        if match.stated is None or not found or len(found) > MAX_PLACES:
            return None
        distances = {each - match.stated for each in found}
        common = distances if common is None else common & distances
        if not common:
            return None
    return common.pop() if common is not None and len(common) == 1 else None


def _edits_of(match: _Match, place: int, file: FileLines) -> list[_Edit]:
    """Return the changed runs of a hunk; lines of context stay as the file has them."""
    marks, lines = match.hunk.marks, match.hunk.lines
    end = file.line_end(place, place + len(marks)) if match.level else b""
    edits: list[_Edit] = []
    at, number = place, 0
    while number < len(marks):
        if marks[number] == _CONTEXT:
            at, number = at + 1, number + 1
            continue
        begin, added = at, list[bytes]()
        while number < len(marks) and marks[number] != _CONTEXT:
            if marks[number] == _ADDED:
                added.append(lines[number])
            else:
                at += 1
            number += 1
        edits.append(_Edit(begin, at, with_line_end(added, end) if end else added))
    return edits


def with_line_end(lines: list[bytes], end: bytes) -> list[bytes]:
    """Return lines with another end; a line without an end stays so."""
    return [
        line.removesuffix(b"\n").removesuffix(b"\r") + end if line.endswith(b"\n") else line
        for line in lines
    ]


def _replaced(file: FileLines, edits: list[_Edit], name: str) -> bytes:
    edits.sort(key=lambda each: (each.begin, each.end))
    parts: list[bytes] = []
    at = 0
    for number, edit in enumerate(edits):
        previous = edits[number - 1] if number else None
        is_same_point = (
            previous is not None and previous.begin == previous.end == edit.begin == edit.end
        )
        if edit.begin < at or is_same_point:
            raise PatchFailed("two hunks change the same lines of the file", name)
        parts += file.lines[at : edit.begin]
        parts += edit.lines
        at = edit.end
    parts += file.lines[at:]
    for number in range(len(parts) - 1):
        if not parts[number].endswith(b"\n"):  # once the last line of the file or of the patch
            parts[number] += file.line_end(0, 0)
    return b"".join(parts)
