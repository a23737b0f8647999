"""Texts of unified diffs in rows: the files of a diff, its reverse, and a diff made from a parsed commit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proctor_client.tasks.task import BadTask

_HEAD = re.compile(r"diff --git (?P<names>.*)")
"""The first line of a file's part: `diff --git a/x.py b/x.py`."""
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)", re.DOTALL)
"""The head of a hunk: `@@ -1,3 +1,4 @@ def f():`, in which a count of 1 may be left out."""
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
"""An escape in git's quoted names: `\\303` in `"b/na\\303\\257ve.py"`."""
_LETTERS: Mapping[bytes, bytes] = {
    b"n": b"\n",
    b"t": b"\t",
    b"r": b"\r",
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"v": b"\v",
}
_SWAPPED: Mapping[str, str] = {
    "new file mode": "deleted file mode",
    "deleted file mode": "new file mode",
    "rename from": "rename to",
    "rename to": "rename from",
    "old mode": "new mode",
    "new mode": "old mode",
}
_INDEX = re.compile(r"index ([0-9a-f]+)\.\.([0-9a-f]+)(.*)", re.DOTALL)
"""The line of the contents' names: `index 83db48f..bf2a3c1 100644`."""
_TESTS = frozenset({"tests", "Tests", "test", "Test"})


@dataclass(frozen=True, slots=True)
class FileOfDiff:
    """A file changed by a diff: its path after the change, or before a deletion."""

    path: str
    is_deleted: bool = False


def files_of_diff(text: str) -> list[FileOfDiff]:
    """Return the files of a diff in their order, each once."""
    found: dict[str, FileOfDiff] = {}
    for lines in _parts(text):
        path, is_deleted = _path(lines[0]), False
        for place, line in enumerate(lines):
            if line.startswith("--- ") and lines[place + 1 : place + 2]:
                old, new = _name(line[4:]), _name(lines[place + 1].removeprefix("+++ "))
                is_deleted = is_deleted or new == "/dev/null"
                path = _without_prefix(old if new == "/dev/null" else new)
                break
            if line.startswith("rename to "):
                path = _name(line.removeprefix("rename to "))
            if line.startswith("deleted file mode"):
                is_deleted = True
            if line.startswith("@@ "):
                break
        if path:
            found[path] = FileOfDiff(path, is_deleted)
    return list(found.values())


def reversed_diff(text: str) -> str:
    """Return the reverse of a diff. Raises BadTask for a copy, and for cut data."""
    return "".join(_reversed_part(part) for part in _parts(text, keep_ends=True))


def diff_of_commit(commit: Mapping[str, Any]) -> str:
    """Return the diff of a parsed commit of R2E-Gym: its Python files, without the tests.

    Raises BadTask, KeyError and TypeError.
    """
    parts = []
    for each in commit["file_diffs"]:
        path = str(each["header"]["file"]["path"])
        if path.endswith(".py") and not _is_test(path) and not each.get("is_binary_file"):
            parts.append("".join(_lines_of_file(path, each)))
    return "".join(parts)


def _parts(text: str, *, keep_ends: bool = False) -> Iterator[list[str]]:
    """Yield the lines of each file's part; text before the first part is left out."""
    part: list[str] = []
    lines = text.split("\n")
    lines = [f"{each}\n" for each in lines] if keep_ends else lines
    if keep_ends:
        lines = lines[:-1] if text.endswith("\n") else lines
    for number, line in enumerate(lines):
        is_plain = (
            line.startswith("--- ")
            and "".join(lines[number + 1 : number + 2]).startswith("+++ ")
            and not _is_in_head(part)
            and not _is_open(part)
        )
        if (line.startswith("diff --git ") and not _is_open(part)) or is_plain:
            if part:
                yield part
            part = [line]
        elif part:
            part.append(line)
    if part:
        yield part


def _is_in_head(part: list[str]) -> bool:
    return bool(part) and not any(line.startswith(("@@ ", "--- ")) for line in part)


def _is_open(part: list[str]) -> bool:
    """Tell whether lines of the last hunk are still to come, by the counts in its head."""
    place = next((at for at in range(len(part) - 1, -1, -1) if _HUNK.match(part[at])), None)
    if place is None:
        return False
    found = _HUNK.match(part[place])
    assert found is not None
    old, new = int(found[2] or 1), int(found[4] or 1)
    for line in part[place + 1 :]:
        old -= line[:1] in (" ", "-", "\n", "")
        new -= line[:1] in (" ", "+", "\n", "")
    return old > 0 or new > 0


def _path(line: str) -> str:
    found = _HEAD.match(line)
    if found is None:
        return _without_prefix(_name(line[4:])) if line.startswith("--- ") else ""
    names = found["names"]
    if names.startswith('"') or names.endswith('"'):
        return _without_prefix(_name(names[names.rfind(' "') + 1 :] if ' "' in names else names))
    half = (len(names) - 1) // 2  # both names are equal but for their first letter
    if names[:half][2:] == names[half + 1 :][2:]:
        return _without_prefix(names[half + 1 :])
    return _without_prefix(names.rpartition(" b/")[2] if " b/" in names else names)


def _name(text: str) -> str:
    """Return a path of a diff without a time behind the path; a quoted path is decoded."""
    text = text.rstrip("\r\n")
    if not text.startswith('"'):
        return text.partition("\t")[0]
    quoted = text[1 : text.rfind('"')].encode("utf-8", "surrogateescape")

    def letter(found: re.Match[bytes]) -> bytes:
        code = found[1]
        return bytes([int(code, 8) & 255]) if len(code) == 3 else _LETTERS.get(code, code)

    return _ESCAPE.sub(letter, quoted).decode("utf-8", "surrogateescape")


def _without_prefix(path: str) -> str:
    return path[2:] if path.startswith(("a/", "b/")) else path


def _reversed_part(lines: list[str]) -> str:
    head: list[str] = []
    place = 0
    while place < len(lines) and not _HUNK.match(lines[place]):
        if lines[place].startswith("GIT binary patch"):
            return "".join([*_reversed_head(head), *_reversed_binary(lines[place:])])
        head.append(lines[place])
        place += 1
    return "".join([*_reversed_head(head), *map(_reversed_line, lines[place:])])


def _reversed_head(lines: list[str]) -> list[str]:
    found = []
    for line in lines:
        if line.startswith(("copy from", "copy to")):
            raise BadTask("patch: the reverse of a copied file is not known")
        word = next((each for each in _SWAPPED if line.startswith(f"{each} ")), None)
        index = _INDEX.match(line)
        if word is not None:
            line = _SWAPPED[word] + line[len(word) :]
        elif index is not None:
            line = f"index {index[2]}..{index[1]}{index[3]}"
        found.append(line)
    for place, line in enumerate(found[:-1]):
        if line.startswith("--- ") and found[place + 1].startswith("+++ "):
            old, new = line[4:], found[place + 1][4:]
            found[place], found[place + 1] = f"--- {_side(new, 'a')}", f"+++ {_side(old, 'b')}"
    for first, second in (("old mode", "new mode"), ("rename from", "rename to")):
        places = [n for n, line in enumerate(found) if line.startswith((f"{first} ", f"{second} "))]
        ordered = sorted((found[n] for n in places), key=lambda line: not line.startswith(first))
        for place, line in zip(places, ordered, strict=True):
            found[place] = line
    return found


def _side(name: str, letter: str) -> str:
    """Return a name with the prefix of its side."""
    quote = '"' if name.startswith('"') else ""
    rest = name[len(quote) :]
    return f"{quote}{letter}{rest[1:]}" if rest.startswith(("a/", "b/")) else name


def _reversed_line(line: str) -> str:
    found = _HUNK.match(line)
    if found is not None:
        old, new = (
            start if count is None else f"{start},{count}"
            for start, count in ((found[1], found[2]), (found[3], found[4]))
        )
        return f"@@ -{new} +{old} @@{found[5]}"
    swapped = {"+": "-", "-": "+"}.get(line[:1])
    return line if swapped is None else swapped + line[1:]


def _reversed_binary(lines: list[str]) -> list[str]:
    """Return a binary patch with its two blocks, there and back, exchanged."""
    blocks: list[list[str]] = []
    for line in lines[1:]:
        if line.startswith(("literal ", "delta ")):
            blocks.append([])
        if blocks and line.strip():
            blocks[-1].append(line)
    if len(blocks) != 2:
        raise BadTask("patch: binary data without the data of its reverse")
    return [lines[0], *blocks[1], "\n", *blocks[0], "\n"]


def _is_test(path: str) -> bool:
    """Tell whether R2E-Gym takes a file for a test."""
    parts = path.split("/")
    named = parts[-1].startswith("test_") or path.endswith("_test.py")
    return named or not _TESTS.isdisjoint(parts)


def _lines_of_file(path: str, each: Mapping[str, Any]) -> Iterable[str]:
    yield f"diff --git a/{path} b/{path}\n"
    if each["header"].get("misc_line"):
        yield f"{each['header']['misc_line']}\n"
    if each.get("minus_file") and each.get("plus_file"):
        yield f"--- {each['minus_file']['path']}\n"
        yield f"+++ {each['plus_file']['path']}\n"
    for hunk in each.get("hunks") or []:
        ranges = [hunk["descriptor"][name] for name in ("old_range", "new_range")]
        old, new = (
            str(side["start"])
            if side.get("length") is None
            else f"{side['start']},{side['length']}"
            for side in ranges
        )
        section = hunk["descriptor"].get("section")
        yield f"@@ -{old} +{new} @@{f' {section}' if section else ''}\n"
        for line in hunk["line_group"]["all_lines"]:
            mark = {"context": " ", "added": "+", "deleted": "-", "note": "\\ "}[line["type"]]
            yield f"{mark}{line['content']}\n"
