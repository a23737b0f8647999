"""The program of a completion: what its task puts around the code. Pure, no I/O.

A task may have a prelude, which comes before any program, and code of a prompt that the completion goes on
with, as in HumanEval. Then the completion is one of three:

- A body: it follows the prompt's code. Its indentation is repaired if it is missing.
- A whole definition of the function, or of the class around it: the prompt's code before its own
  definition stays, with the imports and helpers there.
- A method alone, of a class that the prompt begins: it takes the place of the prompt's method.

With code behind it, a completion fills in the middle: blanks at its edges count, and lines of the prompt or
of the suffix that it repeats are left out.

The service's own process does this, so only programs up to MAX_PARSED_CHARACTERS are parsed, and a completion
longer than MAX_FITTED_CHARACTERS follows the prompt as it is.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from proctor_client.wire import Code, Extract, Grader
from proctor_service.features.languages.joining import joined
from proctor_service.judge.definitions import continued, with_definition, without_last_lines
from proctor_service.judge.extract import answer_of, extract
from proctor_service.judge.fences import tidy
from proctor_service.judge.syntax import syntax_tree
from proctor_service.settings.languages import PYTHON

MAX_PARSED_CHARACTERS = 16 * 1024

_OPENED = re.compile(r"^(?:(?:async[ \t]+)?def|class)[ \t]+([^\W\d]\w*)", re.MULTILINE)
"""Matches `def f` and `class Solution` at the beginning of a line."""
_METHOD = re.compile(r"^([ \t]+)(?:async[ \t]+)?def[ \t]+([^\W\d]\w*)", re.MULTILINE)
"""Matches `    def f` in a class."""
_ONE_METHOD = re.compile(
    r"(?:[ \t]*(?:@[^\n]*)?\n)*+([ \t]*)(?:async[ \t]+)?def[ \t]+([^\W\d]\w*)[ \t]*\(\s*(?:self|cls)\b"
)
"""Matches a text that begins with `def f(self`."""
MAX_FITTED_CHARACTERS = 64 * 1024
MAX_WAITED_CHARACTERS = 64 * 1024
MAX_REPEATED_LINES = 200


@dataclass(frozen=True, slots=True)
class Around:
    """What a task puts around the code of a completion, and the name of what the completion defines.

    `entry_point`: `f`, `Solution().f` or `Solution.f`; None if the grader names none.
    """

    prelude: str = ""
    prompt_code: str = ""
    suffix_code: str = ""
    entry_point: str | None = None

    @classmethod
    def of(cls, grader: Grader, *given: Code) -> Around:
        """Return what the first of these models that has a field says of it."""
        prelude, prompt_code, suffix_code = (
            next((value for each in given if (value := getattr(each, name)) is not None), "")
            for name in ("prelude", "prompt_code", "suffix_code")
        )
        return cls(prelude, prompt_code, suffix_code, getattr(grader, "entry_point", None))

    @property
    def continues(self) -> bool:
        """True if a completion may be a part of a program."""
        return bool(self.prompt_code.strip() or self.suffix_code.strip())


NOTHING = Around()


async def read_program(
    text: str, rule: Extract, language: str, around: Around = NOTHING
) -> str | None:
    """Return what `program_in` returns, without holding up the event loop."""
    if len(text) <= MAX_WAITED_CHARACTERS:
        return program_in(text, rule, language, around)
    return await asyncio.to_thread(program_in, text, rule, language, around)


def program_in(text: str, rule: Extract, language: str, around: Around = NOTHING) -> str | None:
    """Return the program of a completion; None for a completion without code.

    Where the prompt's code comes before it, a text without marks is code, but in Python only what can be
    parsed behind the prompt. The prompt may have opened the fence that a body closes.
    """
    if not around.continues:
        code = extract(text, rule, language)
        return assembled(code, language, around) if code and around.prelude else code
    code = extract(text, rule, language, continues=True)
    if code is None and around.suffix_code and text.isspace():
        code = text
    if rule == "auto" and language == PYTHON:
        body = answer_of(text).partition("\n```")[0]
        if code is None or body.lstrip("\n").startswith((" ", "\t")):
            program = assembled(body, language, around)
            if program.strip() and _is_python(program):
                return program
    if code is None:
        return None
    program = assembled(code, language, around)
    is_readable = language != PYTHON or len(program) > MAX_PARSED_CHARACTERS or _is_python(program)
    return program if is_readable or extract(text, rule, language) is not None else None


def assembled(code: str, language: str, around: Around = NOTHING) -> str:
    """Return the program of extracted code, or of the file of a sandbox. A blank one stays as it is,
    but for a blank middle.
    """
    if not code or not (code.strip() or around.suffix_code):
        return code
    if around.continues and language == PYTHON:
        code = _python(code, around)
    elif around.continues:
        code = _other(code, language, around)
    return joined(language, around.prelude, code)


def _fitted(code: str, around: Around) -> str:
    """Return a body or a middle without what it repeats of its sides."""
    if len(code) > MAX_FITTED_CHARACTERS:
        return code
    return _without_sides(code, around.prompt_code, around.suffix_code)


def _other(code: str, language: str, around: Around) -> str:
    prompt, suffix, name = around.prompt_code, around.suffix_code, around.entry_point
    whole = with_definition(language, prompt, tidy(code), name)
    return whole or continued(language, prompt, _fitted(code, around), suffix)


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
        return joined(PYTHON, without_last_lines(prompt[: opened[1]], ("@",)), whole)
    if is_defined:
        return joined(PYTHON, prompt, whole)
    return _continued(prompt, _fitted(code, around), suffix)


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
    """Return the first way to put the parts together that Python can parse, or else the plain one."""
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
    """Yield ways in which a body may be indented: as it is, if its first line has blanks before it."""
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


# ---------------------------------------------------------------- the middle


def _without_sides(code: str, prompt: str, suffix: str) -> str:
    """Return a middle without the last lines of the prompt and the first ones of the suffix.

    Only whole lines are compared, with their indentation; blank ones count for nothing.
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
    """Return how many of the last lines of one list are the first ones of the other."""
    most = min(len(first), len(second), MAX_REPEATED_LINES)
    return next((n for n in range(most, 0, -1) if first[-n:] == second[:n]), 0)
