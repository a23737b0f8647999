"""Blocks of search and replace, each with the path of its file: read and applied. Pure, bounded.

The public forms are those of aider, Agentless and SWE-RL (`<<<<<<< SEARCH`, `=======`, `>>>>>>> REPLACE`) and
of Cline (`------- SEARCH`, `=======`, `+++++++ REPLACE`). The path stands in a line before the block, around
or inside the fence; a block without a path is for the file of the block before. The searched lines must occur
in one place; an empty search makes a new file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from proctor_service.features.repositories.applying import ReasonOf, WorkingFiles, stated_reason
from proctor_service.features.repositories.change import (
    LONGEST_PATH_BYTES,
    Base,
    FileState,
    LeftOut,
    is_possible,
    shown_path,
)
from proctor_service.features.repositories.failures import (
    MAX_PATCH_BYTES,
    MAX_PATCH_LINES,
    Applied,
    PatchFailed,
    Work,
)
from proctor_service.features.repositories.hunks import COMPARISONS, FileLines, with_line_end
from proctor_service.features.repositories.patch_text import FilePatch, Name
from proctor_service.features.repositories.readings import (
    MAX_STRIPPED,
    Reading,
    folder_readings,
)

_SEARCH = re.compile(rb"(?:<{5,9}|-{5,9}) ?SEARCH>?\s*$")
"""Matches `<<<<<<< SEARCH` and `------- SEARCH`."""
_DIVIDER = re.compile(rb"={5,9}\s*$")
_REPLACE = re.compile(rb"(?:>{5,9}|\+{5,9}) ?REPLACE>?\s*$")
"""Matches `>>>>>>> REPLACE` and `+++++++ REPLACE`."""
_FENCE = re.compile(rb"\s*(?:`{3,}|~{3,})\s*([^`]*)$")
_LABEL = re.compile(rb"(?:file ?(?:path|name)?|path)\s*[:=]\s*", re.I)
"""Matches `File: ` and `path=` before a path."""
MAX_BLOCKS = 10_000
MAX_DIVIDERS = 16


@dataclass(frozen=True, slots=True)
class Block:
    """One block. `names`: possible paths, the likeliest first. `lines`: with their ends.

    `own_names`: number of the names between the block before and this block. `dividers`: places in `lines` of
    possible dividers between search and replacement.
    """

    number: int
    names: tuple[bytes, ...]
    own_names: int
    lines: list[bytes]
    dividers: tuple[int, ...]

    def halves(self) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield search and replacement, the longest search first."""
        for at in reversed(self.dividers):
            yield self.lines[:at], self.lines[at + 1 :]


def read_edits(text: bytes) -> Edits:
    """Parse blocks of search and replace. Raises PatchFailed for a text without complete blocks."""
    if len(text) > MAX_PATCH_BYTES or text.count(b"\n") > MAX_PATCH_LINES:
        raise PatchFailed(
            f"the text has more than {MAX_PATCH_BYTES} bytes or {MAX_PATCH_LINES} lines"
        )
    lines = text.split(b"\n")
    blocks: list[Block] = []
    at, before = 0, 0
    names: tuple[bytes, ...] = ()
    while at < len(lines):
        if not _SEARCH.match(lines[at]):
            at += 1
            continue
        begin = at + 1
        found = _names_before(lines, before, at)
        names = tuple(dict.fromkeys((*found, *names)))[:6]
        while at < len(lines) and not _REPLACE.match(lines[at]):
            at += 1
            if at < len(lines) and _SEARCH.match(lines[at]):
                raise PatchFailed(
                    f"line {at + 1}: a block begins within another", hunk=len(blocks) + 1
                )
        inner = lines[begin:at]
        dividers = [place for place, line in enumerate(inner) if _DIVIDER.match(line)]
        if at >= len(lines) or not dividers or len(dividers) > MAX_DIVIDERS:
            raise PatchFailed(
                f"line {begin}: a block without `=======` and `>>>>>>> REPLACE`",
                hunk=len(blocks) + 1,
            )
        if len(blocks) == MAX_BLOCKS:
            raise PatchFailed(f"the text has more than {MAX_BLOCKS} blocks")
        if not names:
            raise PatchFailed(
                f"line {begin}: a block without the path of its file", hunk=len(blocks) + 1
            )
        blocks.append(
            Block(
                len(blocks) + 1,
                names,
                len(found),
                [line + b"\n" for line in inner],
                tuple(dividers),
            )
        )
        at += 1
        before = at
    if not blocks:
        raise PatchFailed("the text has no block of search and replace")
    return Edits(tuple(blocks))


def _names_before(lines: Sequence[bytes], begin: int, at: int) -> list[bytes]:
    """Return the possible paths in the last lines before a block, the nearest first."""
    found: list[bytes] = []
    texts = 0
    for place in range(at - 1, max(begin, at - 8) - 1, -1):
        line = lines[place]
        fence = _FENCE.match(line)
        if fence is not None:
            found += [word for word in fence[1].split() if b"/" in word or b"." in word][:1]
            continue
        if not line.strip() or len(line) > LONGEST_PATH_BYTES:
            continue
        if name := _undecorated(line):
            found.append(name)
        texts += 1
        if texts == 2:
            break
    return found


def _undecorated(line: bytes) -> bytes:
    """Return the path in `### src/app.py`, `**src/app.py**`, "File: `src/app.py`", `src/app.py:`."""
    text = line.strip().lstrip(b"#*-> \t").lstrip(b"`\"'<")
    label = _LABEL.match(text)
    return text[label.end() if label else 0 :].strip(b"`*\"'<>: \t").removeprefix(b"./")


@dataclass(frozen=True, slots=True)
class Edits:
    """Blocks of search and replace, parsed."""

    blocks: tuple[Block, ...]

    def needed(self, paths: Collection[bytes]) -> Collection[bytes]:
        """Return the files of the base with bytes needed by `applied`."""
        index = frozenset(paths)
        needed = dict[bytes, None]()
        for reading in (*_PLAIN_READINGS, *self._folders(index, Work())):
            for block in self.blocks:
                found = (reading.path(Name(each)) for each in block.names)
                needed.update((each, None) for each in found if each in index)
        return list(needed)

    def applied(self, base: Base, reason_of: ReasonOf = lambda _: None) -> Applied:
        """Return the change of the base made by the edits. Raises PatchFailed.

        `reason_of`: returns the reason of the caller for leaving a path out, or None. Takes time proportional
        to the text and its files, with a fixed upper bound: call it in a thread.
        """
        paths, work = frozenset(base.paths()), Work()
        failure: PatchFailed | None = None
        for reading in _PLAIN_READINGS:
            if reading.stripped and not self._has_file(reading, paths):
                continue
            try:
                return self._applied_in(reading, base, paths, reason_of, work)
            except PatchFailed as failed:
                failure = failure or failed
        fitting = []
        for reading in self._folders(paths, work):
            try:
                fitting.append(self._applied_in(reading, base, paths, reason_of, work))
            except PatchFailed:
                continue
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise PatchFailed("the edits fit below several folders of the repository")
        raise failure or PatchFailed("the edits do not apply")

    def _has_file(self, reading: Reading, paths: Collection[bytes]) -> bool:
        """Return True if a block names a file of the base in a reading."""
        return any(
            reading.path(Name(each)) in paths for block in self.blocks for each in block.names
        )

    def _folders(self, paths: Collection[bytes], work: Work) -> Iterator[Reading]:
        """Yield readings below a folder with a file of the nearest name of each block."""
        names = {
            block.names[0]: None for block in self.blocks if any(map(bytes.strip, _search(block)))
        }
        files = [FilePatch(old=Name(each), new=Name(each)) for each in names]
        return (each for each in folder_readings(files, paths, work) if each.stripped == 0)

    def _applied_in(
        self,
        reading: Reading,
        base: Base,
        paths: Collection[bytes],
        reason_of: ReasonOf,
        work: Work,
    ) -> Applied:
        working = WorkingFiles(base, paths)
        how = dict.fromkeys(reading.how(0) if reading.folder or reading.stripped else ())
        left_out: dict[LeftOut, None] = {}
        for block in self.blocks:
            path = _path_of(block, reading, working)
            if path is None:
                raise PatchFailed("no file has the name before the block", hunk=block.number)
            try:
                _edit(working, path, block, work, how)
            except PatchFailed:
                if (reason := stated_reason(reason_of(path))) is None:
                    raise
                left_out[LeftOut(shown_path(path), reason)] = None
        conflict = next(working.conflicts(), None)
        if conflict is not None:
            raise PatchFailed("a file would lie below another file", shown_path(conflict[0]))
        return Applied(working.change(), tuple(how), tuple(left_out))


def _path_of(block: Block, reading: Reading, working: WorkingFiles) -> bytes | None:
    """Return the path of a block's file: an existing path, or for a new file the name before the block."""
    options = [reading.path(Name(each)) for each in block.names]
    own = [each for each in options[: block.own_names] if each is not None and _is_plausible(each)]
    if own and not any(map(bytes.strip, _search(block))):
        return own[0]
    existing = (each for each in options if each is not None and working.exists(each))
    return next(existing, own[0] if own else None)


_PLAIN_READINGS = tuple(map(Reading, range(MAX_STRIPPED + 1)))


def _search(block: Block) -> list[bytes]:
    return block.lines[: block.dividers[0]]


def _is_plausible(path: bytes) -> bool:
    """Return True for a plausible path of a new file: with a folder or an ending, without blanks."""
    is_name = b"/" in path or b"." in path
    return is_name and is_possible(path) and not re.search(rb"\s", path)


def _edit(
    working: WorkingFiles, path: bytes, block: Block, work: Work, how: dict[str, None]
) -> None:
    before = working.state(path)
    results = []
    for search, replacement in block.halves():
        if not any(line.strip() for line in search):
            if before is None or not before.content.strip():
                results.append((b"".join(replacement), ""))
        elif before is not None and before.mode != "link":
            found = _replaced(before.content, search, replacement, work)
            results += [found] if found is not None else []
    shown = shown_path(path)
    if before is None and not results:
        raise PatchFailed(f"the repository has no file {shown}", shown, block.number)
    if not results:
        raise PatchFailed(
            f"block {block.number}: the searched lines are not in the file", shown, block.number
        )
    content, repair = results[0]
    how.update({repair: None} if repair else {})
    mode = before.mode if before is not None else "644"
    working.changed[path] = FileState(mode, content)


def _replaced(
    content: bytes, search: list[bytes], replacement: list[bytes], work: Work
) -> tuple[bytes, str] | None:
    """Return the content with the searched lines replaced, and the repair; None if the lines are absent."""
    lines = FileLines(content, work)
    for level, (repair, key) in enumerate(COMPARISONS):
        places = lines.places(level, [key(line) for line in search])
        if len(places) > 1:
            raise PatchFailed("the searched lines are in several places of the file")
        if places:
            begin, end = places[0], places[0] + len(search)
            usual = lines.line_end(begin, end)
            made = with_line_end(replacement, usual) if level else replacement
            if end == len(lines.lines) and not content.endswith(b"\n") and made:
                made = [*made[:-1], made[-1].removesuffix(b"\n").removesuffix(b"\r")]
            parts = [*lines.lines[:begin], *made, *lines.lines[end:]]
            work.spend(size_bytes=len(content))
            return b"".join(parts), repair
    return None
