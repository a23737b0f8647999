"""Extraction of code from a completion.

A completion is any text of a policy: prose, drafts, broken markup, or an attack on this module.
The wire contract sets the rules; this module decides the cases left open:

- Tags match in any case. A tag between two quotes, `"<answer>"`, is a mention and is ignored. If
  several opening tags precede a closing tag, the nearest counts. An unclosed `<answer>` is ignored.
- Special tokens at the end (`<|im_end|>`, `</s>`) are removed, and so is the text up to the last
  `</think>`, except that a text that is a program keeps all. A section of thoughts begins a line,
  before any fence or answer; its opening tag may be in the prompt. `</think>` before a quote is a
  mention. An unclosed section is read like other text.
- A fence may open after other text ("Here it is: ```python") and close after other text
  ("return x```"). ~~~ at the start of a line is a fence too. A fence with a language opens a new
  block even if the previous block is unclosed. A fence before text that names no language
  ("```**Note**") closes a block; before a quote it is a part of a string.
- A text may begin within a block that the prompt has opened. If the text before the first fence is a
  program of the language, that text is a block and the fence closes it. A first line with the
  language's name belongs to the prompt's fence.
- An empty block is ignored, so a stray ``` after the code changes nothing. An empty `<answer>` is
  still an answer without code: `auto` stops there.
- `auto` returns a text unchanged if the whole text is a program, whatever its strings and comments
  contain: a docstring may show a fence. A single line may be a program; a word, a number or prose
  is rejected even if the parser accepts the text (`recognition.py`).
- Of several blocks, `auto` and a fence inside `<answer>` return the last block of code. A shell
  session, output, a block that uses names defined in an earlier block, and in languages other than
  Python an excerpt of an earlier block illustrate the code and are skipped (`usage.py`).

Every step takes time linear in the text. The service's own process parses, so only texts up to
`MAX_PARSED_CHARACTERS` are parsed: CPython raises an exception for too deep nesting, and the size
bounds the time. Of a longer text only the beginning is parsed. Only the last `MAX_MARKS` tags or
fences in the last `MAX_SEARCHED_CHARACTERS` are read. This bounds the time that a hostile text
blocks the service (30 ms).
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType

from proctor_client.queries import without_special_tokens
from proctor_client.wire import Extract
from proctor_service.judge import recognition, usage
from proctor_service.judge.recognition import MAX_PARSED_CHARACTERS
from proctor_service.settings.languages import LANGUAGES, PYTHON, PYTHON_ALIASES

__all__ = [
    "FENCE_NAMES",
    "MAX_MARKS",
    "MAX_PARSED_CHARACTERS",
    "MAX_SEARCHED_CHARACTERS",
    "extract",
    "without_thoughts",
]

MAX_SEARCHED_CHARACTERS = 1 << 20
MAX_MARKS = 20_000
MAX_INDENT = 200
MAX_COMPARED_BLOCKS = 8
MAX_LANGUAGE_LINE = 80
MAX_SIGNS = 4096

FENCE_NAMES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        PYTHON: frozenset({PYTHON, *PYTHON_ALIASES}),
        **{name: frozenset({name, *known.aliases}) for name, known in LANGUAGES.items()},
    }
)
"""Fence names of each language; the default is the language's own name."""

_ANSWER = re.compile(r"<(/?)answer>", re.IGNORECASE | re.ASCII)
_THINK = re.compile(
    r"(?P<begins_line>^[ \t]*+)?<(?P<closes>/?)think>(?![\"'\\]|`(?!``))",
    re.IGNORECASE | re.ASCII | re.MULTILINE,
)
_CODE = re.compile(r"<(/?)code>", re.IGNORECASE | re.ASCII)
_RUN = re.compile(r"`{3,}+|~{3,}+")
_BLOCK = re.compile(r"`{3}|~{3}|<answer>", re.IGNORECASE | re.ASCII)
_LANGUAGE = re.compile(r"[\s{.]*((?:\w[\w+#-]*)?)")
_INFO_OF_LATE_FENCE = re.compile(r"[\w+#.-]*\s*")
_INLINE = re.compile(r"`([^`\n]+)`")
_TEST = re.compile(r"\b(?:describe|it|test)\b")
_SOLUTION = "Solution"
_QUOTES = frozenset("\"'`")
_STRING_ENDS = frozenset("\"'\\")


def extract(text: str, mode: Extract, language: str = "python") -> str | None:
    """Return the code in a completion, or None if the completion has no code.

    `language` selects the fences that count, besides fences without a language. Surrounding blank
    lines and common indentation are removed, except where `mode` is `none`.
    """
    if mode == "none":
        return text if text.strip() else None
    text = without_special_tokens(text[-MAX_SEARCHED_CHARACTERS:])
    answer = _without_thoughts(text)
    if mode == "auto":
        for each in dict.fromkeys((text, answer)):
            whole = _whole_program(each, language)
            if whole is not None:
                return whole
    text = answer
    if mode == "xml":
        return _tidy(_last_tagged(text, _ANSWER, language) or "")
    if mode == "fence":
        found = _candidates(text, language, 1)
        return _tidy(found[-1].code) if found else None
    block = _last_tagged(text, _ANSWER, language)
    if block is None:
        block = _best_fence(text, language)
    if block is None:
        block = _last_tagged(text, _CODE, language)
    if block is not None:
        return _tidy(block)
    long_program = language == "python" and len(text) > MAX_PARSED_CHARACTERS
    return text if long_program and recognition.begins_as_program(text) else None


def without_thoughts(text: str) -> str:
    """Return the text of a completion without special tokens at its end and thoughts before it."""
    return _without_thoughts(without_special_tokens(text[-MAX_SEARCHED_CHARACTERS:]))


def _whole_program(text: str, language: str) -> str | None:
    """Return the text if it is a program, without common indentation or surrounding backticks."""
    if len(text) > MAX_PARSED_CHARACTERS:
        return None
    if recognition.is_program(text, language):
        return text
    quoted = _INLINE.fullmatch(text.strip())
    bare = quoted.group(1) if quoted else text
    tidy = _tidy(bare) if bare[:1] in (" ", "\t", "\n", "\r") or quoted else None
    if tidy is not None and tidy != text and recognition.is_program(tidy, language):
        return tidy
    return None


# ---------------------------------------------------------------- tags


def _without_thoughts(text: str) -> str:
    """Return the text behind the last section `<think>…</think>`.

    Without an opening tag, which may be in the prompt, the closing one has a line of its own.
    """
    start, block, most = 0, -1, len(text.rstrip())
    opening: re.Match[str] | None = None
    for match in deque(_THINK.finditer(text), MAX_MARKS):
        if not match["closes"]:
            opening = opening or match
            continue
        if block < start:
            found = _BLOCK.search(text, start)
            block = len(text) if found is None else found.start()
        if opening is None:
            ends_line = text[match.end() : match.end() + 1] in "\n"
            is_end = match["begins_line"] is not None and ends_line and match.end() < most
        else:
            is_end = opening.start() < block and opening["begins_line"] is not None
        if is_end:
            start = match.end()
        opening = None
    return text[start:]


def _last_tagged(text: str, tag: re.Pattern[str], language: str) -> str | None:
    """Return the content of the last pair of tags with content, without a fence around it."""
    found: str | None = None
    opened: int | None = None
    for match in deque(tag.finditer(text), MAX_MARKS):
        before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
        if before == after and before in _QUOTES:  # a mention of the tag
            continue
        if not match.group(1):
            opened = match.end()
        elif opened is not None:
            start, opened = opened, None
            if found is None or not _is_blank(text, start, match.start()):
                found = text[start : match.start()]
    if found is None or recognition.is_program(found.strip(), language):
        return found
    fenced = _best_fence(found, language)
    return found if fenced is None else fenced


# ---------------------------------------------------------------- fences


@dataclass(frozen=True, slots=True)
class _Fence:
    """A line that may open or close a block. `body` is the start of the opened block."""

    mark: str
    indent: str
    bare: bool  # no language or quote follows on the line, and the line is not a comment
    late: bool  # other text precedes the fence on its line
    language: str
    end: int  # end of the block closed by this line
    body: int

    def closes(self, opened: _Fence) -> bool:
        deeper = not self.late and len(self.indent) > len(opened.indent) + 3
        same = self.mark[0] == opened.mark[0] and len(self.mark) >= len(opened.mark)
        return same and self.bare and not deeper

    def reopens(self, opened: _Fence) -> bool:
        """Tell whether the fence opens a new block though `opened` is unclosed."""
        return bool(self.language) and not self.late and len(self.indent) <= len(opened.indent)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A block that may be the code.

    `named`: the fence names the language. `read`: the size allowed it. `tree`: Python's syntax tree, None
    after a syntax error. `names`: the functions and types that a block of another language defines.
    """

    code: str
    named: bool
    read: bool = False
    tree: ast.Module | None = None
    names: frozenset[str] = frozenset()


def _best_fence(text: str, language: str) -> str | None:
    """Return the last block of code; if none is code, the last named block, or the last block."""
    found = _candidates(text, language, MAX_COMPARED_BLOCKS)
    if not found:
        return None
    if len(found) > 1:
        found = _read(found, language)
        for index in range(len(found) - 1, -1, -1):
            if _is_code(found[index], found[:index], language):
                return found[index].code
    named = [candidate for candidate in found if candidate.named]
    return (named or found)[-1].code


def _candidates(text: str, language: str, most: int) -> list[_Candidate]:
    """Return the last `most` non-empty blocks in the language or without a language."""
    names = _names(language) | {""}
    blocks = (
        (fence, end)
        for fence, end in _blocks(text, language)
        if fence.language in names and not _is_blank(text, fence.body, end)
    )
    return [
        _Candidate(_unindent(text[fence.body : end], fence.indent), bool(fence.language))
        for fence, end in deque(blocks, most)
    ]


def _names(language: str) -> frozenset[str]:
    return FENCE_NAMES.get(language, frozenset({language}))


def _read(found: list[_Candidate], language: str) -> list[_Candidate]:
    """Return the candidates with their syntax trees or names, within a total budget of characters.

    The last candidates are read first. A language of the settings has unknown signs and is not read.
    """
    left = MAX_PARSED_CHARACTERS
    done: list[_Candidate] = []
    for candidate in reversed(found):
        code = _tidy(candidate.code) or ""
        if len(code) > left or language not in (PYTHON, *LANGUAGES):
            done.append(candidate)
            continue
        left -= len(code)
        if language == PYTHON:
            done.append(replace(candidate, read=True, tree=recognition.parsed(code)))
        else:
            done.append(replace(candidate, read=True, names=usage.defined_names(code)))
    return done[::-1]


def _is_code(candidate: _Candidate, earlier: list[_Candidate], language: str) -> bool:
    code, named, tree = candidate.code, candidate.named, candidate.tree
    if recognition.is_session(code):
        return False
    if language != "python":
        runs = named and language == "bash" and recognition.only_runs_scripts(code)
        is_code = not runs if named else recognition.looks_like_code(code, language)
        return is_code and not _illustrates(candidate, earlier, language)
    if tree is None:
        return named or not candidate.read or recognition.looks_like_python(code)
    if not recognition.does_something(tree, _tidy(code) or "", besides_data=not named):
        return False
    known = frozenset[str]().union(
        *(recognition.defined_names(each.tree) for each in earlier if each.tree is not None)
    )
    # The class of a solution may use what an earlier block gives, such as the nodes of a list.
    solves = _SOLUTION in recognition.defined_names(tree) - known
    return solves or not recognition.uses(tree, known)


def _illustrates(candidate: _Candidate, earlier: list[_Candidate], language: str) -> bool:
    """Tell whether a block of another language than Python shows a part or a use of an earlier block."""
    code, known = candidate.code, [each for each in earlier if each.read]
    if not candidate.read or (language == "jest" and _TEST.search(code)):
        return False
    names = frozenset[str]().union(*(each.names for each in known))
    return usage.is_usage(code, names, commands=language == "bash") or any(
        usage.is_excerpt(code, each.code) for each in known
    )


def _blocks(text: str, language: str) -> Iterator[tuple[_Fence, int]]:
    """Yield every block: the opening fence and the end position."""
    fences = list(_fences(text))
    opened = _fence_of_prompt(text, fences, language)
    for fence in fences:
        if opened is None:
            opened = fence
        elif fence.closes(opened):
            yield opened, fence.end
            opened = None
        elif fence.reopens(opened):
            yield opened, fence.end
            opened = fence
    if opened is not None:
        yield opened, len(text)


def _fence_of_prompt(text: str, fences: list[_Fence], language: str) -> _Fence | None:
    """Return the opening fence that the prompt ends with, if the text begins with a block's code.

    The fences of a text that begins outside of a block come in pairs, and its first may name a
    language.
    """
    if len(fences) % 2 == 0:
        return None
    first, newline, _ = text[:MAX_LANGUAGE_LINE].partition("\n")
    begins_with_name = bool(newline) and first.strip().lower() in _names(language)
    body = len(first) + 1 if begins_with_name else 0
    opening = _Fence("```", indent="", bare=False, late=False, language=language, end=0, body=body)
    for fence in fences:
        if fence.reopens(opening):
            return None
        if fence.closes(opening):
            return opening if _is_bare_code(text[body : fence.end], language) else None
        if fence.late:
            return None
    return None


def _is_bare_code(text: str, language: str) -> bool:
    """Tell whether a text without a fence around it is code alone; a long text, whether it begins so."""
    code = _tidy(text)
    if code is None:
        return False
    if language != PYTHON:
        head = code[:MAX_PARSED_CHARACTERS]
        return recognition.is_program(head, language) or (
            not recognition.has_prose_around(code)
            and (
                recognition.looks_like_code(head, language)
                or bool(usage.defined_names(head[:MAX_SIGNS]))
            )
        )
    if len(code) > MAX_PARSED_CHARACTERS:
        return recognition.begins_as_program(code)
    tree = recognition.parsed(code)
    if tree is None:
        return recognition.begins_as_python(code)
    return recognition.does_something(tree, code, besides_data=True)


def _fences(text: str) -> Iterator[_Fence]:
    """Yield the fences, at most one a line: several runs of backticks on a line are a quotation."""
    runs = deque(_RUN.finditer(text), MAX_MARKS)
    for start, group in groupby(runs, _LineStarts(text)):
        first, *others = group
        if others:
            continue
        fence = _fence(text, start, first)
        if fence is not None:
            yield fence


class _LineStarts:
    """Function from a match to the start of its line; each part of the text is read once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._start = 0
        self._seen = 0

    def __call__(self, match: re.Match[str]) -> int:
        newline = self._text.rfind("\n", self._seen, match.start())
        if newline >= 0:
            self._start = newline + 1
        self._seen = match.end()
        return self._start


def _fence(text: str, start: int, match: re.Match[str]) -> _Fence | None:
    stop = text.find("\n", match.end())
    stop = len(text) if stop < 0 else stop
    indent = text[start : match.start()]
    info = text[match.end() : stop]
    late = bool(indent.strip())
    if late and (match.group()[0] == "~" or not _INFO_OF_LATE_FENCE.fullmatch(info)):
        return None
    named = _LANGUAGE.match(info)
    language = named.group(1).lower() if named else ""
    return _Fence(
        mark=match.group(),
        indent="" if late else indent,
        bare=not language and info[:1] not in _STRING_ENDS and not indent.lstrip().startswith("#"),
        late=late,
        language=language,
        end=match.start() if late else start,
        body=min(stop + 1, len(text)),
    )


# ---------------------------------------------------------------- the code itself


def _is_blank(text: str, start: int, end: int) -> bool:
    return start >= end or text[start:end].isspace()


def _unindent(block: str, indent: str) -> str:
    """Remove `indent` from each line of `block` that begins with it.

    If a line does not, the block stays as it is, unless it is Python only without the indentation.
    """
    if not indent or len(indent) > MAX_INDENT:  # limits the length of the patterns below
        return block
    code = _cut(block, indent)
    return block if _is_partly_left(block, indent) and recognition.parsed(code) is None else code


def _cut(block: str, indent: str) -> str:
    return re.sub(f"^{re.escape(indent)}", "", block, flags=re.MULTILINE)


def _is_partly_left(block: str, indent: str) -> bool:
    """Tell whether a line that is not blank begins without `indent`."""
    left = f"^(?!{re.escape(indent)})[^\\S\n]*\\S"
    return re.search(left, block, re.MULTILINE) is not None


def _tidy(block: str) -> str | None:
    """Return the code without surrounding blank lines and common indentation; None if blank."""
    block = block.rstrip()
    if not block:
        return None
    first = len(block) - len(block.lstrip())
    line = block.rfind("\n", 0, first) + 1
    indent, block = block[line:first], block[line:]
    if len(indent) > MAX_INDENT or _is_partly_left(block, indent):
        return block.removeprefix(indent)
    return _cut(block, indent)
