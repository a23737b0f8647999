"""The reverse of a unified diff, as text. Pure, no I/O, linear time."""

from __future__ import annotations

import re

_HUNK = re.compile(rb"@@ -(\d+(?:,\d+)?) \+(\d+(?:,\d+)?) @@(.*)", re.DOTALL)
"""Matches `@@ -1,7 +1,6 @@ def f():`; the groups are both ranges, and the rest of the line."""
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
"""Matches a line with its end; the last may lack it."""
_PAIRS = (
    (b"--- ", b"+++ "),
    (b"new file mode ", b"deleted file mode "),
    (b"old mode ", b"new mode "),
    (b"rename from ", b"rename to "),
)
_SIGNS = {b"+": b"-", b"-": b"+"}


def reversed_patch(text: bytes) -> bytes:
    """Return the reverse of a diff; its binary patches stay as they are.

    The files come in the reverse order: a link turned into a file is two diffs of one path.
    """
    sections: list[list[bytes]] = []
    found: list[bytes] = []
    waiting: list[bytes] = []
    old = new = 0
    for line in _LINE.findall(text):
        if old > 0 or new > 0:
            sign = line[:1]
            old -= sign != b"+" and sign != b"\\"
            new -= sign != b"-" and sign != b"\\"
            found.append(_SIGNS.get(sign, sign) + line[1:])
            continue
        if line.startswith(b"diff --git "):
            sections.append(found + waiting)
            found, waiting = [], []
        match = _HUNK.match(line)
        if match:
            found += waiting
            waiting = []
            before, after, rest = match.groups()
            old, new = _length(before), _length(after)
            found.append(b"@@ -%s +%s @@%s" % (after, before, rest))
        else:
            _add_head(line, found, waiting)
    sections.append(found + waiting)
    return b"".join(line for section in reversed(sections) for line in section)


def _length(range_text: bytes) -> int:
    _, comma, length = range_text.partition(b",")
    return int(length) if comma else 1


def _add_head(line: bytes, found: list[bytes], waiting: list[bytes]) -> None:
    """Add a line before the hunks, with its word for the other side; of a pair the old side comes first."""
    for first, second in _PAIRS:
        if line.startswith(first):
            turned = second + _other_side(line[len(first) :], first)
            (found if first == b"new file mode " else waiting).append(turned)
            return
        if line.startswith(second):
            turned = first + _other_side(line[len(second) :], second)
            found.append(turned)
            if waiting:
                found.append(waiting.pop())
            return
    found += waiting
    waiting.clear()
    found.append(line)


def _other_side(path: bytes, word: bytes) -> bytes:
    """Return the path in a head with the letter of the other side: `a/x` of `b/x`."""
    if word == b"--- " and path.startswith(b"a/"):
        return b"b/" + path[2:]
    if word == b"+++ " and path.startswith(b"b/"):
        return b"a/" + path[2:]
    return path
