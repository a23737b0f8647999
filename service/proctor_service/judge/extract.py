"""Extraction of the code in a completion, in linear time, by one rule that docs/wire.md states in full."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

from proctor_client.queries import without_special_tokens
from proctor_client.wire import Extract, ExtractRule
from proctor_service.features.languages import other_texts
from proctor_service.judge import python_texts
from proctor_service.judge.fences import OPENED, blocks_of, fences_of, first_end, is_unpaired, tidy
from proctor_service.settings.languages import LANGUAGES, PYTHON, PYTHON_ALIASES

_TAGGED, _FENCED = ExtractRule(tags=["answer"]), ExtractRule()
_RULES = {"auto": _TAGGED, "xml": _TAGGED, "fence": _FENCED, "none": ExtractRule(fence="none")}
_ALIASES = {PYTHON: PYTHON_ALIASES} | {name: each.aliases for name, each in LANGUAGES.items()}
_COMPARED_BLOCKS, _LONGEST_EXAMPLE = 8, 16 * 1024

_TOKEN = r"<[|｜][^<>|｜\s]{1,40}+[|｜]>"
# "<s>", "<|im_start|>assistant\n", "<|channel|>final<|message|>".
_FIRST = re.compile(rf"\s*+(?:(?:{_TOKEN}|<s>|<bos>)(?:\w{{1,40}}+(?=\n|{_TOKEN}))?|\ufeff)++\n?|")
# "</think>", before a quote a mention; "<|assistant|>" or "<|im_start|>assistant", behind one a mention.
_END_OF_THOUGHTS = re.compile(
    r"(?im)<(?:/think>(?![\"'\\]|`(?!``))([ \t]*+$)?|([|｜](?<![\"'`]<.)(?:[^<>\s]{1,40}+>)?assistant\b))"
)
# Of the prompts of MBPP and Code Llama, at the begin of a line: "[BEGIN]", "[PYTHON] def f():"; "[DONE]".
_BEGIN = re.compile(r"\[(?:BEGIN|PYTHON)\][ \t]*+(?:\n|\Z|(?=[\w@#]))")
_END = re.compile(r"\[(?:(/PYTHON\])|DONE\](?=[ \t]*+$))", re.M)


def extract(
    text: str, rule: Extract, language: str = PYTHON, *, continues: bool = False
) -> str | None:
    """Return the code in a completion, or None if the completion has no code.

    `language` selects the fences that count. `continues`: the completion may go on with code of the
    prompt, so a text without marks is code, and blanks at the edges of the code count.
    """
    is_auto, chosen = rule == "auto", _RULES[rule] if isinstance(rule, str) else rule
    if not chosen.tags and chosen.fence == "none":
        return text if text.strip() else None
    texts = python_texts if language == PYTHON else other_texts
    text = _plain(text, chosen.tags)
    whole = _cut(text, language) if is_auto else None
    if whole is not None and texts.is_program(whole):
        return whole if continues else tidy(whole)
    answer = _cut(_without_thoughts(text), language)
    tagged = _last_tagged(answer, chosen.tags) if chosen.tags else None
    wholes = dict.fromkeys([answer] * is_auto + [tagged] * bool(tagged))
    found = next((each for each in wholes if each != whole and texts.is_program(each)), None)
    if found is None and (tagged or is_auto or not chosen.tags):
        found = _block(tagged or answer, language, chosen.fence) or tagged
    if found is None and is_auto and next(fences_of(answer), None) is None:
        found = answer if continues or texts.begins_as_code(answer) else None
    if not found or found.isspace():
        return None
    return found if continues else tidy(found)


def answer_of(text: str, language: str = PYTHON) -> str:
    """Return a completion without what is no answer: special tokens, thoughts, markers of prompts."""
    return _cut(_without_thoughts(_plain(text)), language)


def _plain(text: str, tags: Sequence[str] = ()) -> str:
    """Return a text in Unix's lines, without special tokens and a closing tag, whole or cut, at its end."""
    text = without_special_tokens(text.replace("\r\n", "\n"))
    before, mark, name = text.rstrip().rpartition("</")
    is_tag = mark and any(f"{tag}>".lower().startswith(name.lower()) for tag in tags)
    return before if is_tag else text


def _begins_line(text: str, place: int) -> bool:
    return text[max(0, place - 100) : place].rstrip(" \t")[-1:] in ("", "\n")


def _cut(text: str, language: str) -> str:
    """Return what is between the markers of prompts, without special tokens and a fence's name before it."""
    text = _FIRST.sub("", text, count=1)
    places = ((each.start(), each[1]) for each in _END.finditer(text))
    text = text[: next((at for at, in_line in places if in_line or _begins_line(text, at)), None)]
    begins = [each.end() for each in _BEGIN.finditer(text) if _begins_line(text, each.start())]
    text = text[begins[-1] if begins else 0 :]
    name, _, rest = text.partition("\n")
    return rest if name.strip().lower() in (language, *_ALIASES.get(language, ())) else text


def _without_thoughts(text: str) -> str:
    begin, ends = _FIRST.sub("", text, count=1).lstrip()[:7].lower(), deque[int](maxlen=4)
    for tag in _END_OF_THOUGHTS.finditer(text):
        if begin == "<think>" or tag.lastindex or _begins_line(text, tag.start()):
            ends.append(tag.start() if tag[2] else tag.end())
    parts = ((text[:end], text[end:]) for end in reversed(ends))
    kept = (rest for head, rest in parts if not (is_unpaired(head) and is_unpaired(rest)))
    return next(kept, text)  # of the others, the tag is in a block


def _last_tagged(text: str, tags: Sequence[str]) -> str | None:
    """Return what is in the last tag with anything in it; that one may be unclosed."""
    begin, opened, found = 0, "", ""
    for tag in re.finditer(rf"<(/?)({'|'.join(map(re.escape, tags))})>", text, re.I):
        before, after = text[tag.start() - 1 : tag.start()], text[tag.end() : tag.end() + 1]
        if before == after and before in ("'", '"', "`"):  # a mention
            continue
        if not tag[1]:
            begin, opened = tag.end(), tag[2].lower()
        elif opened == tag[2].lower():
            inner, opened = text[begin : tag.start()], ""
            found = inner if inner.strip() else found
    return text[begin:] if opened and text[begin:].strip() else found or None


def _block(text: str, language: str, which: str) -> str | None:
    """Return a block with the language's name, or else one without, but for outputs and examples."""
    texts = python_texts if language == PYTHON else other_texts
    end, opened = first_end(text), None
    if end is not None and texts.begins_as_code(text[: end.end]):
        rest = text[end.body :]  # the prompt opened a block; else it begins here, and never ends
        opened = OPENED if next(fences_of(rest), None) or not texts.begins_as_code(rest) else None
    last = {named: deque[tuple[int, bool, str]](maxlen=_COMPARED_BLOCKS) for named in (True, False)}
    first: dict[bool, str] = {}
    names = frozenset((language, *_ALIASES.get(language, ())))
    for place, (name, code) in enumerate(blocks_of(text, names, opened)):
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
