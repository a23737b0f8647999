"""Functions in other languages than Python that a prompt begins and a completion goes on with.

A completion that defines the function itself, by a pattern of its language, takes the place of the prompt's
definition; any other one is the function's body. Braces outside of strings and comments tell which blocks of
the prompt are open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from proctor_service.features.languages.joining import GO_IMPORT, joined

_KEYWORDS = r"(?:function|fun|func|def|sub|fn)\s+"
_ARROW = r"\s*(?::[^=\n]{1,100})?=\s*(?:async\s*)?(?:function\b|\([^()]*\)[^=\n]{0,100}=>|\w+\s*=>)"
_TYPED = re.compile(
    r"[ \t]*+(?!return\b|else\b|throw\b|new\b)[\w:<>,\[\]&*.? \t]*[\w>\]&*][ \t&*]+"
)
"""Matches `    static std::vector<int> `, before the name of a function."""
_PARAMETERS = r"[ \t]*+\((?:[^()]|\([^()]{0,200}\)){0,500}+\)[^;{}()]{0,200}\{"  # `(int n) const {`
MAX_TYPE_CHARACTERS = 300
MAX_CLOSED_CHARACTERS = 64 * 1024
MAX_DEFINITIONS = 1000
_TYPED_LANGUAGES = frozenset({"c", "cpp", "csharp", "java"})
_TYPE = re.compile(
    r"^[^\n{};()]*?\b(?:class|object|struct|impl|interface|namespace)\s+(\w+)[^\n;]*", re.MULTILINE
)
"""Matches the line `public class Solution {`."""
_WITHOUT_BRACES = frozenset({"lua", "ruby"})
_DESCRIPTION = ("//", "#[", "@", "*", "/*")
_NO_CODE = re.compile(
    r"//[^\n]*|/\*.*?(?:\*/|\Z)|^[ \t]*#[^\n]*|\"(?:[^\"\\\n]|\\.)*+\"?|'(?:\\[^\n]{1,8}|[^'\\\n])'",
    re.DOTALL | re.MULTILINE,
)
"""Matches a comment, a string, and a character such as `'{'`; not Rust's `'a`."""
_BRACE = re.compile(r"[{}]|\n[ \t]*")


def with_definition(language: str, prompt: str, code: str, name: str | None) -> str | None:
    """Return the program of a completion that defines the prompt's function; None if it does not."""
    function = re.split(r"\W+", name or "")[-1] or _last_name(language, prompt)
    if function is None or not _definitions(language, function, code):
        return None
    own = _definitions(language, function, prompt)
    if not own:
        return joined(language, prompt, code)
    at = prompt.rfind("\n", 0, own[-1] + 1) + 1
    head = without_last_lines(prompt[:at], _DESCRIPTION)
    blocks = _open_blocks(language, head)
    if not blocks:
        return joined(language, head, code)
    types = {each[1] for each in _TYPE.finditer(code)}
    around = next((each for each in _TYPE.finditer(head) if each[1] in types), None)
    if around is not None:
        return joined(language, without_last_lines(head[: around.start()], _DESCRIPTION), code)
    program = joined(language, head, code)
    if len(program) > MAX_CLOSED_CHARACTERS:
        return program
    return program + "\n}" * min(len(_open_blocks(language, program)), len(blocks)) + "\n"


def without_last_lines(text: str, beginnings: tuple[str, ...]) -> str:
    """Return a text without its last lines that begin so, behind blanks: decorators, comments."""
    lines = text.splitlines(keepends=True)
    while lines and lines[-1].lstrip().startswith(beginnings):
        lines.pop()
    return "".join(lines)


def continued(language: str, prompt: str, body: str, suffix: str) -> str:
    """Return the program of a function's body, with the braces of the prompt that the body leaves open."""
    program = prompt + body + suffix
    if suffix and prompt.endswith("\n") and not body.endswith("\n") and not suffix[:1].isspace():
        program = f"{prompt}{body}\n{suffix}"
    program = _closed(language, prompt, program)
    if language == "go":  # the program may lack a use of what the prompt imports
        imports = "\n".join(GO_IMPORT.findall(program))
        return joined(language, imports, GO_IMPORT.sub("", program))
    return program


def _definitions(language: str, name: str, text: str) -> list[int]:
    """Return the places of the definitions of a function: `int f(`, `func f`, `const f = (x) =>`."""
    if language in _TYPED_LANGUAGES:
        return [place for _, place in _typed(text, re.escape(name))]
    name = re.escape(name)
    patterns = [
        rf"\b{_KEYWORDS}{name}(?!\w)",
        rf"\b(?:const|let|var)\s+{name}{_ARROW}",
        rf"^[ \t]*+(?:local[ \t]+)?{name}[ \t]*(?:<-|=)[ \t]*function\b",  # R and Lua
        rf"^{name}[ \t]*\(\)",  # Bash
    ]
    return [each.start() for each in re.finditer("|".join(patterns), text, re.MULTILINE)]


def _typed(text: str, name: str = r"\w+") -> Iterator[tuple[str, int]]:
    """Yield the name and the place of each function with a type before it, as in `int f(`."""
    found_names = re.finditer(rf"(?<![\w.$])({name}){_PARAMETERS}", text)
    for found in islice(found_names, MAX_DEFINITIONS):
        end = found.start()
        least = max(end - MAX_TYPE_CHARACTERS, 0)
        start = text.rfind("\n", least, end) + 1 or least
        if _TYPED.fullmatch(text, start, end):
            yield found[1], end


def _last_name(language: str, prompt: str) -> str | None:
    """Return the name of the prompt's last function."""
    if language in _TYPED_LANGUAGES:
        names = [name for name, _ in _typed(prompt)]
    else:
        pairs = re.findall(rf"\b{_KEYWORDS}([\w.]+)|^([\w.]+)[ \t]*\(\)", prompt, re.MULTILINE)
        names = [first or second for first, second in pairs]
    return names[-1] if names else None


def _open_blocks(language: str, text: str) -> list[str]:
    """Return the indentation of each line whose brace is open at the end, the outermost first."""
    if language in _WITHOUT_BRACES:
        return []
    indent = ""
    opened: list[str] = []
    for found in _BRACE.finditer(_NO_CODE.sub(" ", f"\n{text}")):
        if found[0] == "{":
            opened.append(indent)
        elif found[0] != "}":
            indent = found[0][1:]
        elif opened:
            opened.pop()
    return opened


def _closed(language: str, prompt: str, program: str) -> str:
    """Return the program with the closing braces that it lacks for blocks of the prompt.

    Where a line closes such a block by its indentation, the program is left alone: the braces of the text
    are then not those that the language counts.
    """
    if len(program) > MAX_CLOSED_CHARACTERS:
        return program
    blocks = _open_blocks(language, prompt)
    missing = len(_open_blocks(language, program))
    if not 0 < missing <= len(blocks):
        return program
    end = f"\n{blocks[missing - 1]}}}"
    if end in program[len(prompt) :]:
        return program
    closing = "\n".join(f"{indent}}}" for indent in reversed(blocks[:missing]))
    return f"{program.rstrip()}\n{closing}\n"
