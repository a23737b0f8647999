"""Names of files in the lines of a patch: git's quoting, times behind a name."""

from __future__ import annotations

import re

_ESCAPES = {
    b"a": b"\a",
    b"b": b"\b",
    b"t": b"\t",
    b"n": b"\n",
    b"v": b"\v",
    b"f": b"\f",
    b"r": b"\r",
    b'"': b'"',
    b"\\": b"\\",
}
_QUOTED = re.compile(rb'"((?:[^"\\]|\\(?:[abtnvfr"\\]|[0-3][0-7]{2}))*+)"')
r"""Matches `"a/caf\303\251 \"x\".py"`, by git's quote.c."""
_ESCAPED = re.compile(rb'\\([abtnvfr"\\]|[0-3][0-7]{2})')
_TIME = re.compile(
    rb"[ \t]+((?:\d{4}-\d\d-\d\d|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d)[ \t]+\d\d:\d\d:\d\d.*)$", re.S
)
"""Matches ` 2024-02-29 10:00:00.0 +0000` and ` Thu Feb 29 10:00:00 2024` behind a name."""
_EPOCH = re.compile(rb"\s*(?:1970-01-01|1969-12-31)\b")
"""Matches the time that `diff -N` writes for a file that does not exist."""


def unquoted(text: bytes) -> tuple[bytes, bytes] | None:
    """Return the name at the begin of a text with a leading `"`, and the rest; None if malformed."""
    found = _QUOTED.match(text)
    if found is None:
        return None
    return _ESCAPED.sub(_unescaped, found[1]), text[found.end() :]


def _unescaped(found: re.Match[bytes]) -> bytes:
    code = found[1]
    return _ESCAPES[code] if len(code) == 1 else bytes([int(code, 8)])


def name_of(rest: bytes) -> bytes | None:
    """Return the name in a line `--- NAME` or `+++ NAME`; None for an absent file."""
    if rest.startswith(b'"') and (found := unquoted(rest)) is not None:
        name, behind = found
    elif b"\t" in rest:
        name, _, behind = rest.partition(b"\t")
    elif timed := _TIME.search(rest):
        name, behind = rest[: timed.start()], timed[1]
    else:
        name, behind = rest.rstrip(b" \r"), b""
    return None if name == b"/dev/null" or _EPOCH.match(behind) else name


def bare_name(rest: bytes) -> bytes:
    """Return the name in a line such as `rename from NAME`."""
    found = unquoted(rest) if rest.startswith(b'"') else None
    return rest if found is None else found[0]


def without_components(name: bytes, count: int) -> bytes | None:
    """Return a name without its first components, as `patch -p` cuts it; None if too short."""
    parts = [each for each in name.split(b"/") if each]
    if len(parts) <= count:
        return None
    return b"/".join(each for each in parts[count:] if each != b".") or None


LONGEST_TRIED_LINE = 4096


def names_of_header(rest: bytes) -> tuple[bytes, bytes] | None:
    """Return both names of a line `diff --git X Y`; None where the line can be cut in several ways.

    The two names are equal, or equal behind their first components: git writes names with other differences
    in lines of their own.
    """
    if rest.startswith(b'"'):
        first = unquoted(rest)
        if first is None:
            return None
        behind = first[1].lstrip(b" ")
        second = unquoted(behind) if behind.startswith(b'"') else (behind, b"")
        return None if second is None else (first[0], second[0])
    if rest.endswith(b'"') and b' "' in rest:
        before, _, behind = rest.partition(b' "')
        second = unquoted(b'"' + behind)
        return None if second is None else (before, second[0])
    middle = len(rest) // 2
    places = [middle] if rest[middle : middle + 1] == b" " else []
    if len(rest) <= LONGEST_TRIED_LINE:
        places += [at for at, each in enumerate(rest) if each == 0x20]
    for at in places:
        names = rest[:at], rest[at + 1 :]
        if names[0] == names[1] or _behind_first(names[0]) == _behind_first(names[1]) != b"":
            return names
    found = rest.split(b" ")
    return (found[0], found[1]) if len(found) == 2 else None


def _behind_first(name: bytes) -> bytes:
    return name.partition(b"/")[2]
