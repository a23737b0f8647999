"""The program of a completion: its code, and the code of its task around. Pure, no I/O.

A single rule finds the code in linear time; docs/wire.md states the rule in full. Fenced blocks are read
as policies write them: unclosed, late in a line, nested.

A task may have a prelude, which comes before any program, and code of a prompt for the completion to
continue, as in HumanEval. Then the completion is of three kinds:

- A body, behind the prompt's code. A missing indentation is repaired.
- A whole definition of the function, or of the class around it: the prompt's code before its own
  definition stays, with the imports and helpers there.
- A method alone, of a class of the prompt, in the place of the prompt's method.

With code behind, a completion fills in the middle: blanks at its edges count, and repeated lines of the
prompt or of the suffix are left out.

The service's own process does this work: only programs up to MAX_PARSED_CHARACTERS are parsed, and a
longer completion than MAX_FITTED_CHARACTERS follows the prompt unchanged.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import NamedTuple, Protocol

from proctor_client.queries import without_special_tokens
from proctor_client.wire import Code, Extract, ExtractRule, Grader, VerifierGrader
from proctor_service.errors import InvalidRequest
from proctor_service.judge import python_source
from proctor_service.judge.python_source import Join, join_by, joined, syntax_tree, tidy
from proctor_service.settings.languages import PYTHON, PYTHON_ALIASES

MAX_PARSED_CHARACTERS = 16 * 1024

_OPENED = re.compile(r"^(?:(?:async[ \t]+)?def|class)[ \t]+([^\W\d]\w*)", re.MULTILINE)
"""Matches `def f` and `class Solution` at the beginning of a line."""
_METHOD = re.compile(r"^([ \t]+)(?:async[ \t]+)?def[ \t]+([^\W\d]\w*)", re.MULTILINE)
"""Matches `    def f` in a class."""
_ONE_METHOD = re.compile(
    r"(?:[ \t]*(?:@[^\n]*)?\n)*+([ \t]*)(?:async[ \t]+)?def[ \t]+([^\W\d]\w*)[ \t]*\(\s*(?:self|cls)\b"
)
"""Matches a text beginning with `def f(self`."""
MAX_FITTED_CHARACTERS = 64 * 1024
MAX_WAITED_CHARACTERS = 64 * 1024
MAX_REPEATED_LINES = 200


@dataclass(frozen=True, slots=True)
class Around:
    """Code of a task around a completion, and the name of the completion's function.

    `entry_point`: `f`, `Solution().f` or `Solution.f`; None for a grader without an entry point.
    """

    prelude: str = ""
    prompt_code: str = ""
    suffix_code: str = ""
    entry_point: str | None = None

    @classmethod
    def of(cls, grader: Grader, *models: Code) -> Around:
        """Return each field of the first of these models with the field."""
        prelude, prompt_code, suffix_code = (
            next((value for each in models if (value := getattr(each, name)) is not None), "")
            for name in ("prelude", "prompt_code", "suffix_code")
        )
        return cls(prelude, prompt_code, suffix_code, getattr(grader, "entry_point", None))

    @property
    def continues(self) -> bool:
        """True if a completion may be a part of a program."""
        return bool(self.prompt_code.strip() or self.suffix_code.strip())


NOTHING = Around()


@dataclass(frozen=True, slots=True)
class Texts:
    """Rules of texts in a language.

    `names`: of the language, for fences. `is_example`: takes a block, the names in other blocks, and
    `is_named`. `join`: one source behind another. `completed`: a completion as a part of the prompt's
    program.
    """

    names: frozenset[str]
    is_program: Callable[[str], bool]
    begins_as_code: Callable[[str], bool]
    defined_names: Callable[[str], frozenset[str]]
    is_example: IsExample
    join: Join
    completed: Callable[[str, Around], str]


class IsExample(Protocol):
    """Tells whether a block of a completion shows a use of other blocks."""

    def __call__(self, block: str, defined: frozenset[str], *, is_named: bool) -> bool: ...


async def read_program(
    text: str, rule: Extract, texts: Texts, around: Around = NOTHING
) -> str | None:
    """Return the result of `program_in`, and keep the event loop free."""
    if len(text) <= MAX_WAITED_CHARACTERS:
        return program_in(text, rule, texts, around)
    return await asyncio.to_thread(program_in, text, rule, texts, around)


OWN_CODE: frozenset[Extract] = frozenset(("diff", "edits"))
"""Rules for code other than programs."""


def check_program_rule(rule: Extract, where: str) -> None:
    """Raise InvalidRequest for a rule of code other than programs. `where`: name of its field."""
    if isinstance(rule, str) and rule in OWN_CODE:
        raise InvalidRequest(f"{where}: {rule} is for the grader repository")


async def own_code(
    text: str,
    rule: Extract,
    code: Callable[[str, Extract], str | None],
    around: Around,
    where: str,
) -> str | None:
    """Return the code of a completion by a grader's own reading; None without code.

    `where`: of the submission. Raises InvalidRequest for a program's surroundings, and for another rule.
    """
    if around.prelude or around.continues:
        raise InvalidRequest(f"{where}: no prelude, prompt_code or suffix_code belongs to a change")
    if not isinstance(rule, str) or rule not in ("auto", "none", *OWN_CODE):
        raise InvalidRequest(f"{where}.extract: for a change only: auto, diff, edits, none")
    if len(text) <= MAX_WAITED_CHARACTERS:
        return code(text, rule)
    return await asyncio.to_thread(code, text, rule)


async def reference_program(
    grader: Grader, rule: Extract, texts: Texts, around: Around = NOTHING
) -> str | None:
    """Return the program of a verifier's reference completion; None without a reference."""
    if not isinstance(grader, VerifierGrader) or grader.reference is None:
        return None
    return await read_program(grader.reference, rule, texts, around) or ""


def program_in(text: str, rule: Extract, texts: Texts, around: Around = NOTHING) -> str | None:
    """Return the program of a completion; None for a completion without code.

    Behind the prompt's code, a text without marks is code, but in Python only if the text parses there.
    The prompt may have opened the fence of a body.
    """
    if not around.continues:
        code = extract(text, rule, texts)
        return assembled(code, texts, around) if code and around.prelude else code
    code = extract(text, rule, texts, continues=True)
    if code is None and around.suffix_code and text.isspace():
        code = text
    if rule == "auto" and texts is PYTHON_TEXTS:
        body = answer_of(text).partition("\n```")[0]
        if code is None or body.lstrip("\n").startswith((" ", "\t")):
            program = assembled(body, texts, around)
            if program.strip() and _is_python(program):
                return program
    if code is None:
        return None
    program = assembled(code, texts, around)
    is_readable = (
        texts is not PYTHON_TEXTS or len(program) > MAX_PARSED_CHARACTERS or _is_python(program)
    )
    return program if is_readable or extract(text, rule, texts) is not None else None


def assembled(code: str, texts: Texts, around: Around = NOTHING) -> str:
    """Return the program of extracted code, or of the file of a sandbox. Blank code stays
    blank, but for a blank middle.
    """
    if not code or not (code.strip() or around.suffix_code):
        return code
    if around.continues:
        code = texts.completed(code, around)
    return join_by(texts.join, around.prelude, code)


def fitted(code: str, around: Around) -> str:
    """Return a body or a middle without repeated lines of its sides."""
    if len(code) > MAX_FITTED_CHARACTERS:
        return code
    return _without_sides(code, around.prompt_code, around.suffix_code)


# ---------------------------------------------------------------- Python


def _python(code: str, around: Around) -> str:
    prompt, suffix = around.prompt_code, around.suffix_code
    as_method = _as_method(prompt, code)
    if as_method is not None:
        return as_method
    opened, names, whole = _last_opened(prompt), _names(around.entry_point), tidy(code)
    defined = {_normal(each) for each in _OPENED.findall(whole)}
    is_defined = bool(names & defined) or any(_assigns(whole, each) for each in names)
    if opened is not None and (opened[0] in defined or (is_defined and not _is_python(prompt))):
        return joined(without_last_lines(prompt[: opened[1]], ("@",)), whole)
    if is_defined:
        return joined(prompt, whole)
    return _continued(prompt, fitted(code, around), suffix)


def _as_method(prompt: str, code: str) -> str | None:
    """Return the program of a method without its class, which the prompt has begun; else None."""
    found = _ONE_METHOD.match(code)
    if found is None:
        return None
    for place in reversed(list(_METHOD.finditer(prompt))):
        if place[2] == found[2]:
            indent = "" if found[1] else place[1]
            return without_last_lines(prompt[: place.start()], ("@",)) + _each_line(indent, code)
    return None


def _normal(name: str) -> str:
    return unicodedata.normalize("NFKC", name)


def _names(entry_point: str | None) -> set[str]:
    """Return the class and the function of an entry point."""
    return {_normal(each) for each in re.findall(r"[^\W\d]\w*", entry_point or "")}


def _last_opened(prompt: str) -> tuple[str, int] | None:
    """Return the name and the place of the last definition in the first column, if any."""
    last = deque(_OPENED.finditer(prompt), 1)
    return (_normal(last[0][1]), last[0].start()) if last else None


def _assigns(code: str, name: str) -> bool:
    """Return True for a line such as `f = cache(g)` in the first column."""
    return re.search(rf"^{name}[ \t]*(?::[^=\n]+)?=(?!=)", code, re.MULTILINE) is not None


def _continued(prompt: str, code: str, suffix: str) -> str:
    """Return the first parseable arrangement of the parts, or else the plain text."""
    plain = prompt + code + suffix
    if len(plain) > MAX_PARSED_CHARACTERS:
        return plain
    is_within_line = bool(prompt.rpartition("\n")[2].strip())
    if (suffix or is_within_line) and _is_python(plain):
        return plain
    beginnings = dict.fromkeys((prompt, prompt.rstrip(" \t")))
    if is_within_line:
        beginnings[f"{prompt}\n"] = None
    for body in _indented(prompt, code):
        for beginning, end in product(beginnings, ("", "\n") if suffix else ("",)):
            whole = beginning + body + end + suffix
            if _is_python(whole):
                return whole
    return plain


def _indented(prompt: str, body: str) -> Iterator[str]:
    """Yield indented forms of a body: the body itself, if its first line begins with blanks."""
    if not body.startswith((" ", "\t")):
        last = prompt.rstrip().rpartition("\n")[2]
        indent = last[: len(last) - len(last.lstrip())] + ("    " if last.endswith(":") else "")
        rest = body.partition("\n")[2].splitlines()
        if all(line.startswith((" ", "\t")) or not line.strip() for line in rest):
            yield f"{indent or '    '}{body}"
        yield _each_line(indent or "    ", body)
    yield body


def _each_line(indent: str, text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(indent + line if line.strip() else line for line in lines)


def _is_python(source: str) -> bool:
    if len(source) > MAX_PARSED_CHARACTERS:
        return False
    try:
        syntax_tree(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


def without_last_lines(text: str, beginnings: tuple[str, ...]) -> str:
    """Return a text without its last lines with these beginnings, behind blanks: decorators, comments."""
    lines = text.splitlines(keepends=True)
    while lines and lines[-1].lstrip().startswith(beginnings):
        lines.pop()
    return "".join(lines)


# ---------------------------------------------------------------- the middle


def _without_sides(code: str, prompt: str, suffix: str) -> str:
    """Return a middle without the last lines of the prompt and the first lines of the suffix.

    Only whole lines are compared, with their indentation; blank lines are ignored.
    """
    if not suffix.strip():
        return code
    lines = code.splitlines(keepends=True)
    places = [index for index, line in enumerate(lines) if line.strip()]
    whole = [lines[index].rstrip() for index in places]
    before = _whole_lines(prompt if prompt.endswith("\n") else prompt.rpartition("\n")[0])
    repeated = _overlap(before, whole)
    if repeated:
        lines[: places[repeated - 1] + 1] = []
        return _without_sides("".join(lines), "", suffix)
    behind = _whole_lines(suffix if suffix[:1].isspace() or code.endswith("\n") else "")
    repeated = _overlap(whole, behind)
    if repeated:
        lines[places[-repeated] :] = []
    return "".join(lines)


def _whole_lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _overlap(first: list[str], second: list[str]) -> int:
    """Return how many of the last lines of `first` are the first lines of `second`."""
    most = min(len(first), len(second), MAX_REPEATED_LINES)
    return next((n for n in range(most, 0, -1) if first[-n:] == second[:n]), 0)


# ---------------------------------------------------------------- the code in a completion


_TAGGED, _FENCED = ExtractRule(tags=["answer"]), ExtractRule()
_RULES = {"auto": _TAGGED, "xml": _TAGGED, "fence": _FENCED, "none": ExtractRule(fence="none")}
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
    text: str, rule: Extract, texts: Texts | None = None, *, continues: bool = False
) -> str | None:
    """Return the code in a completion, or None if the completion has no code.

    `texts`: of its language, by default Python. `continues`: the completion may go on with code of the
    prompt, so a text without marks is code, and blanks at the edges of the code count.
    """
    is_auto, chosen = rule == "auto", _RULES[rule] if isinstance(rule, str) else rule
    if not chosen.tags and chosen.fence == "none":
        return text if text.strip() else None
    texts = texts or PYTHON_TEXTS
    text = _plain(text, chosen.tags)
    whole = _cut(text, texts) if is_auto else None
    if whole is not None and texts.is_program(whole):
        return whole if continues else tidy(whole)
    answer = _cut(_without_thoughts(text), texts)
    tagged = _last_tagged(answer, chosen.tags) if chosen.tags else None
    wholes = dict.fromkeys([answer] * is_auto + ([tagged] if tagged else []))
    found = next((each for each in wholes if each != whole and texts.is_program(each)), None)
    if found is None and (tagged or is_auto or not chosen.tags):
        found = _block(tagged or answer, texts, chosen.fence) or tagged
    if found is None and is_auto and next(fences_of(answer), None) is None:
        found = answer if continues or texts.begins_as_code(answer) else None
    if not found or found.isspace():
        return None
    return found if continues else tidy(found)


def answer_of(text: str) -> str:
    """Return a completion without special tokens, thoughts, and markers of prompts."""
    return _cut(_without_thoughts(_plain(text)), PYTHON_TEXTS)


def _plain(text: str, tags: Sequence[str] = ()) -> str:
    """Return a text in Unix's lines, without special tokens and a closing tag, whole or cut, at its end."""
    text = text.replace("\r\n", "\n")
    if text.rstrip().endswith((">", "]")):  # the end of every special token
        text = without_special_tokens(text)
    before, mark, name = text.rstrip().rpartition("</")
    is_tag = mark and any(f"{tag}>".lower().startswith(name.lower()) for tag in tags)
    return before if is_tag else text


def _begins_line(text: str, place: int) -> bool:
    return text[max(0, place - 100) : place].rstrip(" \t")[-1:] in ("", "\n")


def _cut(text: str, texts: Texts) -> str:
    """Return the text between the markers of prompts, without special tokens and a fence's name."""
    text = _FIRST.sub("", text, count=1)
    places = ((each.start(), each[1]) for each in _END.finditer(text))
    text = text[: next((at for at, in_line in places if in_line or _begins_line(text, at)), None)]
    begins = [each.end() for each in _BEGIN.finditer(text) if _begins_line(text, each.start())]
    text = text[begins[-1] if begins else 0 :]
    name, _, rest = text.partition("\n")
    return rest if name.strip().lower() in texts.names else text


def _without_thoughts(text: str) -> str:
    begin, ends = _FIRST.sub("", text, count=1).lstrip()[:7].lower(), deque[int](maxlen=4)
    for tag in _END_OF_THOUGHTS.finditer(text):
        if begin == "<think>" or tag.lastindex or _begins_line(text, tag.start()):
            ends.append(tag.start() if tag[2] else tag.end())
    parts = ((text[:end], text[end:]) for end in reversed(ends))
    answers = (rest for head, rest in parts if not (is_unpaired(head) and is_unpaired(rest)))
    return next(answers, text)  # of the others, the tag is in a block


def _last_tagged(text: str, tags: Sequence[str]) -> str | None:
    """Return the contents of the last tag with contents; the last tag may be unclosed."""
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


def _block(text: str, texts: Texts, which: str) -> str | None:
    """Return a block with the language's name, or else without a name, but for outputs and examples."""
    end, opened = first_end(text), None
    if end is not None and texts.begins_as_code(text[: end.end]):
        rest = text[end.body :]  # the prompt opened a block; else it begins here, and never ends
        opened = OPENED if next(fences_of(rest), None) or not texts.begins_as_code(rest) else None
    last = {named: deque[tuple[int, bool, str]](maxlen=_COMPARED_BLOCKS) for named in (True, False)}
    first: dict[bool, str] = {}
    for place, (name, code) in enumerate(blocks_of(text, texts.names, opened)):
        last[bool(name)].append((place, bool(name), code))
        first.setdefault(bool(name), code)
    if which != "last":
        return first.get(True) or first.get(False) if which == "first" else None
    usable, defined = dict[bool, str](), frozenset[str]()
    for _, is_named, code in sorted((*last[True], *last[False])):
        block = tidy(code) if len(code) <= _LONGEST_EXAMPLE else ""
        if not block or not texts.is_example(block, defined, is_named=is_named):
            usable[is_named] = code
        defined |= texts.defined_names(block)
    ends = (each[-1][2] for each in last.values() if each)
    return usable.get(True) or usable.get(False) or next(ends, None)


# ---------------------------------------------------------------- fenced blocks


_MARK = re.compile(r"([`~])\1{2,}+")  # "```", "~~~~"
_LANGUAGE = re.compile(r"[\s{.]*((?:\w[\w+#-]*)?)")  # " python", "{.python}", "c++17"
_INFO_OF_LATE_FENCE = re.compile(r"[\w+#.-]*\s*")  # "c++ "; not "python: see"


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


def fence_name(name: str) -> str:
    """Return the name of a language as fences are compared: in small letters, without a version."""
    named = name.lower()
    return named[:1] + named[1:].rstrip("0123456789")


def fences_of(text: str) -> Iterator[Fence]:
    """Yield the fences, the first of each line."""
    start = 0
    while found := _MARK.search(text, start):
        begin, after = max(start, text.rfind("\n", start, found.start()) + 1), found.end()
        start = text.find("\n", after) + 1 or len(text) + 1
        before, mark, info = text[begin : found.start()], found[0], text[after : start - 1]
        is_late = bool(before.strip())
        is_odd = is_late and (mark[0] == "~" or not _INFO_OF_LATE_FENCE.fullmatch(info))
        if is_odd or "```" in info or "~~~" in info:  # a quotation
            continue
        language = fence_name(next(_LANGUAGE.finditer(info))[1])
        is_bare = not language and info[:1] not in tuple("\"'\\") and "#" not in before.lstrip()[:1]
        indent, end = ("", found.start()) if is_late else (before, begin)
        yield Fence(mark, indent, is_bare, is_late, language, end, min(start, len(text)))


def blocks_of(text: str, names: frozenset[str], opened: Fence | None) -> Iterator[tuple[str, str]]:
    """Yield name and code of the blocks of `names` and without a name; `opened`: a fence before the text."""
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
    """Return the closing fence of a block from before the text."""
    ends = (
        each for each in fences_of(text) if each.is_late or each.language or each.closes(OPENED)
    )
    first = next(ends, None) if is_unpaired(text) else None
    return first if first is not None and first.closes(OPENED) else None


PYTHON_TEXTS = Texts(
    names=frozenset((PYTHON, *PYTHON_ALIASES)),
    is_program=python_source.is_program,
    begins_as_code=python_source.begins_as_code,
    defined_names=python_source.defined_names,
    is_example=python_source.is_example,
    join=python_source.join,
    completed=_python,
)
