"""Extraction of the code in a completion, by one rule that docs/wire.md states in full.

Every step takes time linear in the text, and none holds the interpreter's lock for long.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

from proctor_client.queries import without_special_tokens
from proctor_client.wire import Extract, ExtractRule
from proctor_service.judge import other_texts, python_texts
from proctor_service.judge.fences import OPENED, blocks_of, fences_of, first_end, is_unpaired, tidy
from proctor_service.settings.languages import LANGUAGES, PYTHON, PYTHON_ALIASES

_TAGGED = ExtractRule(tags=["answer"])
_RULES = {
    "auto": _TAGGED,
    "xml": _TAGGED,
    "fence": ExtractRule(),
    "none": ExtractRule(fence="none"),
}
_COMPARED_BLOCKS = 8
_LONGEST_EXAMPLE = 16 * 1024

_INK = re.compile(r"\S")
_FIRST_TOKENS = re.compile(r"\s*+(?:<[|｜][^<>|｜\s]{1,40}+[|｜]>|<s>|<bos>|\ufeff)++\n?")
# "</think>" at the begin or the end of a line, or after "<think>" at the begin; before a quote a mention.
_END_OF_THOUGHTS = re.compile(r"(^[ \t]*+)?</think>(?![\"'\\]|`(?!``))([ \t]*+$)?", re.I | re.M)
# Lines of the prompts of MBPP and Code Llama: "[BEGIN]", "[DONE]"; a text may begin with "[PYTHON] def f():".
_BEGIN = re.compile(
    r"^[ \t]*+\[(?:BEGIN|PYTHON)\][ \t]*+(?:\n|\Z)|\A\s*+\[(?:BEGIN|PYTHON)\][ \t]*+(?=[\w@#])",
    re.M,
)
_END = re.compile(r"^[ \t]*+\[DONE\][ \t]*+$|\[/PYTHON\]", re.M)


def extract(
    text: str, rule: Extract, language: str = PYTHON, *, continues: bool = False
) -> str | None:
    """Return the code in a completion, or None if the completion has no code.

    `language` selects the fences that count. `continues`: the completion may go on with code of the
    prompt, so a text without marks is code, and blanks at the edges of the code count.
    """
    is_auto, chosen = rule == "auto", _RULES[rule] if isinstance(rule, str) else rule
    if not chosen.tags and chosen.fence == "none":
        return text if _INK.search(text) else None
    texts = python_texts if language == PYTHON else other_texts
    text, answer = without_special_tokens(text), answer_of(text, language)
    tagged = _last_tagged(answer, chosen.tags) if chosen.tags else None
    wholes = ([_cut(text, language), answer] if is_auto else []) + ([tagged] if tagged else [])
    found = next(filter(texts.is_program, dict.fromkeys(wholes)), None)
    if found is None and (tagged or is_auto or not chosen.tags):
        found = _block(tagged or answer, language, chosen.fence) or tagged
    if found is None and is_auto and next(fences_of(answer), None) is None:
        is_code = language != PYTHON and texts.begins_as_code(answer)
        found = answer if continues or is_code else None
    if found is None or not _INK.search(found):
        return None
    return found if continues else tidy(found)


def answer_of(text: str, language: str = PYTHON) -> str:
    """Return a completion without what is no answer: special tokens, thoughts, markers of prompts."""
    return _cut(_without_thoughts(without_special_tokens(text)), language)


def _cut(text: str, language: str) -> str:
    """Return what is between the markers of prompts, without special tokens and a fence's name before it."""
    first = _FIRST_TOKENS.match(text)
    begin, end = first.end() if first else 0, _END.search(text)
    text = text[begin : end.start() if end else None]
    for each in deque(_BEGIN.finditer(text), 1):
        text = text[each.end() :]
    name, _, rest = text.partition("\n")
    return rest if name.strip().lower() in _names(language) else text


def _without_thoughts(text: str) -> str:
    opened = text.lstrip()[:7].lower() == "<think>"
    ends = [tag.end() for tag in _END_OF_THOUGHTS.finditer(text) if opened or tag.lastindex][-4:]
    for end in reversed(ends):
        if not (is_unpaired(text[:end]) and is_unpaired(text[end:])):  # else the tag is in a block
            return text[end:]
    return text


def _last_tagged(text: str, tags: Sequence[str]) -> str | None:
    """Return what is in the last tag with anything in it; that one may be unclosed."""
    begin, opened, found = 0, "", None
    for tag in re.finditer(rf"<(/?)({'|'.join(map(re.escape, tags))})>", text, re.I):
        before, after = text[tag.start() - 1 : tag.start()], text[tag.end() : tag.end() + 1]
        if before == after and before in ("'", '"', "`"):  # a mention
            continue
        if not tag[1]:
            begin, opened = tag.end(), tag[2].lower()
        elif opened == tag[2].lower():
            found = slice(begin, tag.start()) if _INK.search(text, begin, tag.start()) else found
            opened = ""
    if opened and _INK.search(text, begin):
        found = slice(begin, None)
    return None if found is None else text[found]


def _names(language: str) -> frozenset[str]:
    aliases = LANGUAGES[language].aliases if language in LANGUAGES else ()
    return frozenset((language, *(PYTHON_ALIASES if language == PYTHON else aliases)))


def _block(text: str, language: str, which: str) -> str | None:
    """Return the block with the language's name, or else one without a name; the prompt may have opened it.

    Of the last ones, outputs and examples are passed over.
    """
    texts = python_texts if language == PYTHON else other_texts
    end, opened = first_end(text), None
    if end is not None and texts.begins_as_code(text[: end.end]):
        rest = text[end.body :]  # behind a fence that opens a block, and never ends it, is code
        opened = OPENED if next(fences_of(rest), None) or not texts.begins_as_code(rest) else None
    last = {named: deque[tuple[int, bool, str]](maxlen=_COMPARED_BLOCKS) for named in (True, False)}
    first: dict[bool, str] = {}
    for place, (name, code) in enumerate(blocks_of(text, _names(language), opened)):
        last[bool(name)].append((place, bool(name), code))
        first.setdefault(bool(name), code)
    if which != "last":
        return first.get(True) or first.get(False) if which == "first" else None
    usable, known = dict[bool, str](), frozenset[str]()
    for _, is_named, code in sorted((*last[True], *last[False])):
        block = tidy(code) if len(code) <= _LONGEST_EXAMPLE else ""
        if not block or not texts.is_example(block, known, is_named=is_named):
            usable[is_named] = code
        known |= texts.defined_names(block)
    ends = (each[-1][2] for each in last.values() if each)
    return usable.get(True) or usable.get(False) or next(ends, None)
