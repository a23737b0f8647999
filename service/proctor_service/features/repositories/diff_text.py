"""A change as a unified diff, for a task that applies the diff by a script. Pure, no I/O, linear time.

Each file has one hunk, from the first to the last changed line. Binary files are in git's form (literals of
zlib's data in base85, as in gitformat-pack's `GIT binary patch`).
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Iterator

from proctor_service.features.repositories.change import Base, Change, FileState

_MODES = {"644": b"100644", "755": b"100755", "link": b"120000"}
_PLAIN_NAME = re.compile(rb"[ !#-\[\]-~]+")
"""Matches a name that git does not quote: `a b.py`; not `a"b` or a name with bytes beyond ASCII."""
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
"""Matches a line with its end, also `a\r` followed by `b\n`, which is one line; the last may lack its end."""
_CONTEXT = 3
_LINE_BYTES = 52
_ABSENT = b"0" * 40


def diff_of_change(change: Change, base: Base) -> bytes:
    """Return the diff between the base and the base with this change."""
    return b"".join(
        each
        for path, state in sorted(change.files.items())
        for each in _file_diff(path, base.state(path), state)
    )


def _file_diff(path: bytes, old: FileState | None, new: FileState | None) -> Iterator[bytes]:
    if old == new:
        return
    if (
        old is not None
        and new is not None
        and "link" in (old.mode, new.mode)
        and old.mode != new.mode
    ):
        yield from _file_diff(path, old, None)
        yield from _file_diff(path, None, new)
        return
    before, after = _quoted(b"a/" + path), _quoted(b"b/" + path)
    yield b"diff --git %s %s\n" % (before, after)
    if old is None and new is not None:
        yield b"new file mode %s\n" % _MODES[new.mode]
    elif new is None and old is not None:
        yield b"deleted file mode %s\n" % _MODES[old.mode]
    elif old is not None and new is not None and old.mode != new.mode:
        yield b"old mode %s\nnew mode %s\n" % (_MODES[old.mode], _MODES[new.mode])
    contents = [b"" if each is None else each.content for each in (old, new)]
    if contents[0] == contents[1]:
        return
    yield b"index %s..%s\n" % (_blob(old), _blob(new))
    if any(b"\0" in each for each in contents):
        yield b"GIT binary patch\n" + _literal(contents[1]) + _literal(contents[0])
        return
    yield b"--- %s\n" % (b"/dev/null" if old is None else before)
    yield b"+++ %s\n" % (b"/dev/null" if new is None else after)
    yield from _hunk(_LINE.findall(contents[0]), _LINE.findall(contents[1]))


def _hunk(old: list[bytes], new: list[bytes]) -> Iterator[bytes]:
    shorter = min(len(old), len(new))
    same = 0
    while same < shorter and old[same] == new[same]:
        same += 1
    same_behind = 0
    while same_behind < shorter - same and old[-1 - same_behind] == new[-1 - same_behind]:
        same_behind += 1
    first = max(0, same - _CONTEXT)
    behind = max(0, same_behind - _CONTEXT)
    counts = len(old) - first - behind, len(new) - first - behind
    yield b"@@ -%s +%s @@\n" % (_range(first, counts[0]), _range(first, counts[1]))
    parts = (
        (b" ", old[first:same]),
        (b"-", old[same : len(old) - same_behind]),
        (b"+", new[same : len(new) - same_behind]),
        (b" ", old[len(old) - same_behind : len(old) - behind]),
    )
    for sign, lines in parts:
        for line in lines:
            yield sign + line
            if not line.endswith(b"\n"):
                yield b"\n\\ No newline at end of file\n"


def _range(first: int, count: int) -> bytes:
    return b"%d,%d" % (first + 1 if count else first, count)


def _blob(state: FileState | None) -> bytes:
    if state is None:
        return _ABSENT
    head = b"blob %d\0" % len(state.content)
    return hashlib.sha1(head + state.content, usedforsecurity=False).hexdigest().encode()


def _literal(content: bytes) -> bytes:
    data = zlib.compress(content)
    lines = [b"literal %d\n" % len(content)]
    for start in range(0, len(data), _LINE_BYTES):
        part = data[start : start + _LINE_BYTES]
        letter = chr(len(part) + (64 if len(part) <= 26 else 70)).encode()
        lines.append(letter + base64.b85encode(part, pad=True) + b"\n")
    return b"".join(lines) + b"\n"


def _quoted(path: bytes) -> bytes:
    if _PLAIN_NAME.fullmatch(path):
        return path
    escaped = b"".join(
        bytes([each]) if 32 <= each < 127 and each not in b'"\\' else b"\\%03o" % each
        for each in path
    )
    return b'"' + escaped + b'"'
