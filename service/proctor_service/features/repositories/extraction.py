"""The diff, or the edits, in a completion. Pure, no I/O, linear time."""

from __future__ import annotations

import re

from proctor_client.queries import without_special_tokens

_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([^\n`]*)$", re.M)
"""Matches "```diff", "~~~" and "   ````patch" as a whole line."""
_BEGIN = re.compile(r"^(?:diff --git |--- [^\n]+\n\+\+\+ [^\n]+\r?\n@@)", re.M)
"""Matches the first line of a diff: `diff --git …`, or `--- …` with `+++ …` and `@@` behind it."""
_BLOCK = re.compile(r"^(?:<{5,9}|-{5,9}) ?SEARCH>?[ \t\r]*$", re.M)
_END_OF_THOUGHTS = re.compile(r"</think(?:ing)?>", re.I)
_NAMES = ("diff", "patch", "udiff")


def diff_of(text: str) -> str:
    """Return the unified diff in a completion, or "".

    The diff is the content of the last fence named `diff` or `patch`; without such a fence, the diff begins
    at its first line, and ends with its fence or the text.
    """
    answer = _answer(text, _BEGIN)
    fences = _fences(answer)
    named = [body for name, body in fences if name in _NAMES and body.strip()]
    if named:
        return named[-1]
    begin = _BEGIN.search(answer)
    if begin is None:
        return ""
    inside = next((body for _, body in fences if _BEGIN.search(body)), None)
    return answer[begin.start() :] if inside is None else inside


def edits_of(text: str) -> str:
    """Return the blocks of search and replace in a completion, with their paths, or ""."""
    answer = _answer(text, _BLOCK)
    return answer if _BLOCK.search(answer) else ""


def _answer(text: str, begin: re.Pattern[str]) -> str:
    """Return a completion without special tokens, and behind its thoughts if the answer lies there."""
    plain = without_special_tokens(text) if text.rstrip().endswith((">", "]")) else text
    ends = [each.end() for each in _END_OF_THOUGHTS.finditer(plain)]
    for end in reversed(ends[-4:]):
        if begin.search(plain, end) or any(name in _NAMES for name, _ in _fences(plain[end:])):
            return plain[end:].lstrip("\n")
    return plain


def _fences(text: str) -> list[tuple[str, str]]:
    """Return name and content of all fences; the content loses the indentation of its fence.

    An indented fence behind the begin of a diff outside of fences is a line of context.
    """
    found = []
    opened: re.Match[str] | None = None
    behind = 0
    for mark in _FENCE.finditer(text):
        if opened is None:
            if not mark[1] or _BEGIN.search(text, behind, mark.start()) is None:
                opened = mark
        elif (
            mark[2].startswith(opened[2]) and not mark[3].strip() and len(mark[1]) <= len(opened[1])
        ):
            found.append(
                (_name(opened), _dedented(text[opened.end() + 1 : mark.start()], opened[1]))
            )
            opened, behind = None, mark.end()
    if opened is not None:
        found.append((_name(opened), _dedented(text[opened.end() + 1 :], opened[1])))
    return found


def _name(fence: re.Match[str]) -> str:
    words = fence[3].split()
    return words[0].lower() if words else ""


def _dedented(body: str, indent: str) -> str:
    if not indent:
        return body
    return "".join(line.removeprefix(indent) for line in body.splitlines(keepends=True))
