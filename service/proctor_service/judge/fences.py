"""Fenced blocks of a completion, as policies write them: unclosed, late in a line, one in another."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

_MARK = re.compile(r"([`~])\1{2,}+")  # "```", "~~~~"
_LANGUAGE = re.compile(r"[\s{.]*((?:\w[\w+#-]*)?)")  # " python", "{.python}", "c++17"
_INFO_OF_LATE_FENCE = re.compile(r"[\w+#.-]*\s*")
_INDENTED = re.compile(r"(?:\s*\n)?[ \t]{1,100}\S")  # "\n\n  x"


class Fence(NamedTuple):
    """A line that may open or close a block."""

    mark: str
    indent: str
    is_bare: bool  # no language or quote follows on the line, and the line is no comment
    is_late: bool  # other text precedes the fence on its line
    language: str
    end: int  # of the block that it closes
    body: int  # begin of the block that it opens

    def closes(self, opened: Fence) -> bool:
        """Tell whether the fence closes the block of `opened`."""
        deeper = len(self.indent) > len(opened.indent) + 3  # as Markdown has it
        return self.is_bare and self.mark.startswith(opened.mark) and not deeper

    def reopens(self, opened: Fence) -> bool:
        """Tell whether the fence opens a new block though `opened` is unclosed."""
        return bool(self.language) and not self.is_late and len(self.indent) <= len(opened.indent)


OPENED = Fence("```", "", False, False, "", end=0, body=0)  # the prompt ends with it


def fences_of(text: str) -> Iterator[Fence]:
    """Yield the fences, at most one a line."""
    start = 0
    while found := _MARK.search(text, start):
        begin, after = max(start, text.rfind("\n", start, found.start()) + 1), found.end()
        start = text.find("\n", after) + 1 or len(text) + 1
        before, mark, info = text[begin : found.start()], found[0], text[after : start - 1]
        is_late = bool(before.strip())
        is_odd = is_late and (mark[0] == "~" or not _INFO_OF_LATE_FENCE.fullmatch(info))
        if is_odd or "```" in info or "~~~" in info:  # a quotation
            continue
        named = next(_LANGUAGE.finditer(info))[1].lower()
        language = named[:1] + named[1:].rstrip("0123456789")  # a version
        is_bare = not language and info[:1] not in tuple("\"'\\") and "#" not in before.lstrip()[:1]
        indent, end = ("", found.start()) if is_late else (before, begin)
        yield Fence(mark, indent, is_bare, is_late, language, end, min(start, len(text)))


def blocks_of(text: str, names: frozenset[str], opened: Fence | None) -> Iterator[tuple[str, str]]:
    """Yield name and code of the blocks of `names` and of none; `opened`: a fence before the text."""
    for fence in chain(fences_of(text), (None,)):
        end = len(text) if fence is None else fence.end
        closes = fence is None or (opened is not None and fence.closes(opened))
        if opened is None or not (closes or (fence is not None and fence.reopens(opened))):
            opened = opened or fence
            continue
        if opened.language in names | {""} and text[opened.body : end].strip():
            yield opened.language, text[opened.body : end]
        opened = None if closes else fence


def is_unpaired(text: str) -> bool:
    """Tell whether the text begins or ends within a block: fences come in pairs otherwise."""
    return sum(1 for _ in fences_of(text)) % 2 == 1


def first_end(text: str) -> Fence | None:
    """Return the fence that closes a block that the text begins in."""
    ends = (
        each for each in fences_of(text) if each.is_late or each.language or each.closes(OPENED)
    )
    first = next(ends, None) if is_unpaired(text) else None
    return first if first is not None and first.closes(OPENED) else None


def tidy(block: str) -> str:
    """Return the code without blank lines around it and without common indentation."""
    return (textwrap.dedent(block) if _INDENTED.match(block) else block).strip()
