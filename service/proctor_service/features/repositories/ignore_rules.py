"""Untracked files named by the `.gitignore` files of a repository, as in gitignore(5). Pure.

Standard library only: this module runs in a sandbox, too, from Python 3.8. Each pattern takes at most time
proportional to pattern and name.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from typing import NamedTuple

MAX_PATTERNS = 10_000
MAX_BYTES = 1 << 20
_STAR, _ANY = b"*", b"?"
_NONE = b"none"
"""Token of a class that is not closed, which matches nothing."""
_CLASSES = {
    b"alpha": bytes.isalpha, b"digit": bytes.isdigit, b"alnum": bytes.isalnum, b"lower": bytes.islower,
    b"upper": bytes.isupper, b"space": bytes.isspace,
}  # fmt: skip
_NAMED_CLASS = re.compile(rb"\[:([a-z]+):\]")
"""Matches `[:alpha:]` in `[[:alpha:]_]`."""


class NamePattern:
    """A pattern with `*`, `?` and `[…]` for a single component of a path."""

    def __init__(self, pattern: bytes) -> None:
        self.is_any_number = pattern == b"**"
        self._plain = None if re.search(rb"[*?\[\\]", pattern) else pattern
        is_ending = pattern[:1] == b"*" and not re.search(rb"[*?\[\\]", pattern[1:])
        self._ending = pattern[1:] if is_ending else None
        self._tokens = _tokens(pattern)

    def matches(self, name: bytes) -> bool:
        """Return True if the pattern matches the whole name."""
        if self._plain is not None:
            return name == self._plain
        if self._ending is not None:
            return name.endswith(self._ending)
        return _tokens_match(self._tokens, name)


class Pattern(NamedTuple):
    """A line of a `.gitignore`. `parts`: components, `**` for any number of them."""

    parts: tuple[NamePattern, ...]
    is_negated: bool
    is_folder: bool


def read_patterns(text: bytes) -> list[Pattern]:
    """Return the patterns of a `.gitignore`, in their order."""
    found = []
    for raw in text.split(b"\n")[:MAX_PATTERNS]:
        line = raw.rstrip(b"\r")
        while line.endswith(b" ") and not line.endswith(b"\\ "):
            line = line[:-1]
        if not line or line.startswith(b"#"):
            continue
        is_negated = line.startswith(b"!")
        if is_negated:
            line = line[1:]
        is_folder = line.endswith(b"/")
        line = line.rstrip(b"/") if is_folder else line
        is_anchored = b"/" in line
        parts = [part for part in line.split(b"/") if part]
        if not parts:
            continue
        if not is_anchored:
            parts.insert(0, b"**")
        found.append(Pattern(tuple(map(NamePattern, parts)), is_negated, is_folder))
    return found


def matches(parts: tuple[NamePattern, ...], names: list[bytes]) -> bool:
    """Return True if the components of a pattern match the components of a path, from begin to end."""
    if len(parts) == 2 and parts[0].is_any_number and not parts[1].is_any_number:
        return parts[1].matches(names[-1])
    reachable = {0}
    for index, part in enumerate(parts):
        if part.is_any_number:
            first, is_last = min(reachable, default=len(names) + 1), index == len(parts) - 1
            # at the end, `**` matches what lies in a folder, not the folder
            reachable = set(range(first + is_last, len(names) + 1))
        else:
            reachable = {at + 1 for at in reachable if at < len(names) and part.matches(names[at])}
        if not reachable:
            return False
    return len(names) in reachable


def _tokens_match(tokens: list[bytes], name: bytes) -> bool:
    at, token, star, retried = 0, 0, -1, 0
    while at < len(name):
        if token < len(tokens) and tokens[token] == _STAR:
            star, retried = token, at
            token += 1
        elif token < len(tokens) and _one_matches(tokens[token], name[at]):
            at, token = at + 1, token + 1
        elif star >= 0:  # the last star takes one byte more
            retried += 1
            at, token = retried, star + 1
        else:
            return False
    return all(each == _STAR for each in tokens[token:])


_TOKEN = re.compile(rb"\\(.)|(\[[!^]?\]?(?:\[:[a-z]+:\]|[^\]])*\])|(\*+)|(.)", re.S)
r"""Matches `\*`, `[a-z]`, `**`, `x`."""


def _tokens(pattern: bytes) -> list[bytes]:
    r"""Return the tokens of a pattern: `*`, `?`, `[…]`, and `\x` for one byte."""
    found = []
    for each in _TOKEN.finditer(pattern):
        if each[3]:
            found.append(_STAR)
        elif each[2]:
            found.append(each[2])
        elif each[1]:
            found.append(b"\\" + each[1])
        elif each[4] == b"[":
            found.append(_NONE)
        else:
            found.append(_ANY if each[4] == b"?" else b"\\" + each[4])
    return found


def _one_matches(token: bytes, byte: int) -> bool:
    if token == _ANY:
        return True
    if token[:1] == b"\\":
        return token[1] == byte
    return token[:1] == b"[" and _in_class(token[1:-1], byte)


def _in_class(inner: bytes, byte: int) -> bool:
    is_negated = inner[:1] in (b"!", b"^")
    inner = inner[is_negated:]
    one = bytes([byte])
    found = any(_CLASSES[each](one) for each in _NAMED_CLASS.findall(inner) if each in _CLASSES)
    inner, at = _NAMED_CLASS.sub(b"", inner), 0
    while at < len(inner):
        if at + 2 < len(inner) and inner[at + 1] == 0x2D:
            found = found or inner[at] <= byte <= inner[at + 2]
            at += 3
        else:
            found = found or inner[at] == byte
            at += 1
    return found != is_negated


class IgnoreRules:
    """Decides whether the `.gitignore` files name a path. `read`: content of a file, None if absent."""

    def __init__(self, read: Callable[[bytes], bytes | None]) -> None:
        self._read = read
        self._patterns: dict[bytes, list[Pattern]] = {}
        self._folders: dict[bytes, bool] = {b"": False}

    def _patterns_of(self, folder: bytes) -> list[Pattern]:
        if folder not in self._patterns:
            text = self._read(folder + b".gitignore")
            self._patterns[folder] = read_patterns(text) if text else []
        return self._patterns[folder]

    def is_ignored(self, path: bytes, is_folder: bool = False) -> bool:
        """Return True for a path ignored by git. Files below an ignored folder are ignored, too."""
        names = path.split(b"/")
        for depth in range(1, len(names)):
            folder = b"/".join(names[:depth]) + b"/"
            if folder not in self._folders:
                self._folders[folder] = self._decide(names[:depth], True)
            if self._folders[folder]:
                return True
        return self._decide(names, is_folder)

    def _decide(self, names: list[bytes], is_folder: bool) -> bool:
        """Return the decision of the last matching pattern, the innermost file first."""
        for depth in range(len(names) - 1, -1, -1):
            folder = b"".join(name + b"/" for name in names[:depth])
            for pattern in reversed(self._patterns_of(folder)):
                if pattern.is_folder and not is_folder:
                    continue
                if matches(pattern.parts, names[depth:]):
                    return not pattern.is_negated
        return False


def rules_of(patterns: Iterable[str]) -> IgnoreRules:
    """Return the rules of patterns, written as lines of a `.gitignore`."""
    text = b"\n".join(each.encode("utf-8", "surrogateescape") for each in patterns)
    return IgnoreRules(lambda name: text if name == b".gitignore" else None)


def rules_of_folder(folder: bytes) -> IgnoreRules:
    """Return the rules of the `.gitignore` files below a folder of this machine. Links are not followed."""

    def read(path: bytes) -> bytes | None:
        try:
            number = os.open(
                os.path.join(folder, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            )
        except OSError:
            return None
        with os.fdopen(number, "rb") as file:
            is_regular = stat.S_ISREG(os.fstat(number).st_mode)
            return file.read(MAX_BYTES) if is_regular else None

    return IgnoreRules(read)
