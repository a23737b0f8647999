"""Texts in other languages than Python, by patterns, in linear time: recognised, joined, completed.

- Recognised: programs, and blocks with examples of other blocks, by signs of all languages together.
- Joined: two sources as a single source. The second is or has a completion. The first is a part of the
  task, and gives way: imports repeating or contradicting the completion's are left out.
- Completed: a function of a prompt. A completion with the whole definition takes the place of the
  prompt's definition; any other completion is the function's body. Braces outside of strings and comments
  tell which blocks of the prompt are open.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from types import MappingProxyType

from proctor_service.judge.extract import (
    PYTHON_TEXTS,
    Around,
    Texts,
    fence_name,
    first_end,
    fitted,
    without_last_lines,
)
from proctor_service.judge.python_source import Join, appended, join_by, tidy
from proctor_service.settings.language_rows import KNOWN_LANGUAGES
from proctor_service.settings.languages import PYTHON, Language

# ---------------------------------------------------------------- recognition

# "#!/bin/sh", "#include <a>", "<?php", "package main", "import a.b;", 'import "fmt"', "use std::io;".
_ONLY_CODE = re.compile(
    r"(?m)\s*+(?:#!|#include\b|<\?php|package [\w.]++;?$|(?:import|using|use) [^\n]{0,9999}[;\"'(]$)"
)
# The first line, but for comments: "It is so.", "**Solution**:", "To double n, I use x;", "$ node a.js".
_PROSE = re.compile(
    r"(?m)\s*+(?:(?:#(?!!|include\b)|//|--|/?\*)[^\n]*+(?:\s++|\Z))*+(?:[^\n]{0,9999}[\w)`*][.!?]$"
    r"|[^\n\w]{0,99}[A-Z](?:[^\n]{0,9999}:$|[\w']*+,? [a-z']++,? [a-z]+\b)|(?:\$|%|>>>) |\Z)"
)
_SIGN = re.compile(r"[(){}\[\]=;$<>@\"|]|\b(?:echo|print|puts) ")  # "f(x)", "puts 1"
# "// note", "/* note */", "-- note", "# note", "\"a\"", "'a'"; not "#include <a>".
_COMMENT_OR_STRING = re.compile(
    r"""(?P<comment>//[^\n]*+|(?<![\w.*/}"'])/\*(?s:.*?)(?:\*/|\Z)|(?<!\S)--(?=\s)[^\n]*+"""
    r"|(?<![^\s;])#(?![\[!]|[ \t]{0,20}(?:define|include)\b)[^\n]*+)"
    r"""|"(?:[^"\\\n]++|\\.)*+"?|'(?:[^'\\\n]++|\\.)*+'?"""
)
# "func" in "func f"
_KEYWORD = (
    r"\b(?:class|def|define|enum|fn|fun|func|function|impl|interface|module|namespace|object|package"
    r"|record|struct|sub|trait|type|union)\b"
)
_ARGUMENTS = r"\((?:[^(){};]{1,300}+|\([^(){};]{0,100}+\)){0,20}+\)"  # "(int n, F(int) f)"
# "def twice", "func (t T) Twice"; "int twice(int n)\n{"; "twice = async (n) =>"; "struct {…} Point;".
_DEFINITION = re.compile(
    rf"{_KEYWORD}[!&* ]{{1,3}}(?:class |<[^<>\n]{{0,80}}+> ?|\([^()\n]{{0,100}}+\) ?)?"
    r"(?!(?:in|of)\b)([\w.]++[?!]?)"
    r"|(?<![\w.$>-])(?!(?:catch|else|elsif|for|foreach|function|if|switch|unless|until|while|with)\b)"
    rf"([\w.-]++)(?:<[\w, ]{{1,60}}+>)? ?{_ARGUMENTS}"
    r"(?: throws [^(){};=\n]{1,80}+|[^(){};,=\n]){0,80}+\n?(?:\{|=>)"
    rf"|(?<![\w.])([\w.]++) ?(?::[^\n]{{1,120}}? )?(?:=(?![=>])|:=|<-|:) ?(?:(?:async |move )?(?:{_KEYWORD}"
    rf"|R6Class|lambda\b|\\\(|\||->|(?:{_ARGUMENTS}|\w{{1,60}}+)(?: ?: ?\w{{1,60}}+)? ?=>))|\}} ?(\w++) ?;"
)
# Other signs of code that is no example: a function without a name, a result, the begin of a file.
# "=> 1", ") -> int", "sub {", "return", "#!/bin/sh", "main(".
_IS_CODE = re.compile(
    r"(?m)=>|\) ?->|= ?\[[^\[\]\n]{0,80}+\] ?[({m]|\bsub ?\{|^[\w-]++ ?\(\) ?\(|\{ ?\w++ ?:[^\n]{1,80} ->"
    r"|\b(?:exports?|return|std::cin|template)\b|^#!|^ ?# ?include|^package\b|\bmain ?\("
)
# "twice(4)", "twice<int>(4)"; "Stack::new"; "double 4" of a shell.
_USED = re.compile(
    r"(?m)(?<![\w.>:])\$?(\w[\w.]*+[?!]?)(?=(?:<[\w, ]{1,60}+>)? ?\()|(?<![\w.$>:])([A-Z]\w*+)"
    r"|(?:^|[;|&`{!]|\$\(|\b(?:do|elif|if|then|until|while)\b) ?(?!(?:if|while)\b)([\w-]++)(?=$|[ ;)'\"`])"
)
# "n" in "n = 1", "n += 1", "n := 1" and "n <- 1"; nothing in "n == 1".
_ASSIGNED = re.compile(r"(?<![\w.])([\w.]++) ?(?:[-+*/|&^%]?=(?![=>~])|:=|<-)(?! ?require\b)")
# "chmod +x a.sh", "./a.sh", "bash a.sh".
_RUNS_A_SCRIPT = re.compile(r"[^\n]*(?:\bchmod\b|\./[\w./-]+|\b(?:ba)?sh[ \t]+[\w./-]+\.sh\b)")


def is_program(text: str) -> bool:
    """Return True if the first line of a text is certain to be code, without a closing fence."""
    return _ONLY_CODE.match(text) is not None and first_end(text) is None


def begins_as_code(text: str) -> bool:
    """Tell whether a text is code or prose, by its first line and its signs."""
    has_signs = not _PROSE.match(text) and _SIGN.search(text, 0, 256 * 1024)
    return bool(_ONLY_CODE.match(text) or has_signs)


def defined_names(block: str) -> frozenset[str]:
    """Return the functions and types defined by a block; of a name with dots, its parts, too."""
    found = ("".join(names) for names in _DEFINITION.findall(_without_strings(block)))
    return frozenset(part for name in found for part in (name, *name.split(".")))


def is_example(block: str, defined: frozenset[str], *, is_named: bool) -> bool:
    """Return True for a block which is an output, runs a script, or only calls names in
    `defined`."""
    plain, is_code = _without_strings(block), is_named or begins_as_code(block)
    if not is_code or all(map(_RUNS_A_SCRIPT.match, plain.splitlines())):
        return True
    if "stdin" in block.lower() or _IS_CODE.search(plain) or _DEFINITION.search(plain):
        return False
    calls = ("".join(names) for names in _USED.findall(plain))
    used = {part for name in calls for part in (name, name.rstrip("!"), name.partition(".")[0])}
    return not defined.isdisjoint(used.difference(_ASSIGNED.findall(plain)))


def _without_strings(text: str) -> str:
    """Return the text without comments, and without strings in which names are absent."""

    def rest(found: re.Match[str]) -> str:
        # "${" in "${name}", "#{" in "#{name}"
        return found[0] if found["comment"] is None and re.search(r"[$#][{(]", found[0]) else " '' "

    lines = (" ".join(line.split()) for line in _COMMENT_OR_STRING.sub(rest, text).splitlines())
    return "\n".join(line for line in lines if line)


# ---------------------------------------------------------------- joining

GO_PACKAGE = re.compile(r"^package[ \t]+(\w+)", re.MULTILINE)
"""Matches `package main`."""
GO_IMPORT = re.compile(
    r"^import[ \t]*(?:\([^()]*\)|(?:[\w.]+[ \t]+)?\"[^\"\n]*\")[ \t]*;?[ \t]*$", re.MULTILINE
)
r"""Matches `import "fmt"`, `import m "math"` and `import (…)` of several lines."""
GO_IMPORTED = re.compile(r"(?:([\w.]+)[ \t]+)?(\"[^\"\n]*\")")
"""Matches `"fmt"` and `m "math"` in an import."""
RUST_INNER = re.compile(r"(?:\s*+(?:#!\[[^\n]*\]|//[^\n]*+)[ \t]*+(?:\n|\Z))*+")
"""Matches the first lines of a file such as `#![allow(unused)]`, with comments around them."""
RUST_USE = re.compile(r"^(?:use|extern[ \t]+crate)[ \t][^\n]*;[ \t]*$", re.MULTILINE)
"""Matches `use std::io;`."""
REQUIRE = re.compile(
    r"^(?:const|let|var)[ \t]+([^=\n]+?)[ \t]*=[ \t]*(require\([^()\n]*\)(?:\.\w+)?)[ \t]*;?[ \t]*$",
    re.MULTILINE,
)
"""Matches `const fs = require("fs");` and `const { sep, join: j } = require("path")`."""

_JAVA_PUBLIC = re.compile(
    r"^public[ \t]+(?=(?:(?:abstract|final|sealed)[ \t]+)*(?:class|interface|enum|record)\b)",
    re.MULTILINE,
)
"""Matches the first word of `public final class Pair`: a file's only public type is the completion's."""
_RUST_STANDARD = re.compile(r"^use[ \t]+(?:::)?(?:std|core|alloc)\b[^;]{0,4000};", re.MULTILINE)
"""Matches `use std::io::{self, Read};`, in one line or in several."""
_GO_VERSION = re.compile(r"/v\d+\Z")  # the end of `math/rand/v2`
_DECLARES = re.compile(
    r"^(?:const|let|var|class|(?:async[ \t]+)?function\*?|import)\b([^;=()\n{]*(?:\{[^{}()]*\})?)",
    re.MULTILINE,
)
"""Matches the beginning of `const { a, b: c } = require("d")`."""
_PHP_OPEN = re.compile(r"\s*<\?(?:php\b|(?![=\w]))", re.IGNORECASE)  # `<?php`
_PHP_CLOSED = re.compile(r"\?>\s*\Z")  # `?>` as the end


def joined(language: str, before: str, code: str) -> str:
    """Return a source with the contents of `before` and `code`, in this order."""
    return join_by(_JOIN.get(language, appended), before, code)


def without_repeated(text: str, other: str, line: re.Pattern[str]) -> str:
    """Return a text with an empty line in place of each line of this form in both texts."""
    lines = {each.strip() for each in other.splitlines()}
    return line.sub(lambda found: "" if found[0].strip() in lines else found[0], text)


def go_setup(setup: str, completion: str) -> str:
    """Return the setup without the imports of the completion, for a file of both."""
    imported = {
        path for found in GO_IMPORT.findall(completion) for _, path in GO_IMPORTED.findall(found)
    }

    def left(found: re.Match[str]) -> str:
        each = [one[0] for one in GO_IMPORTED.finditer(found[0][6:]) if one[2] not in imported]
        return "".join(f"import {one}\n" for one in each)

    return GO_IMPORT.sub(left, setup)


def _javascript_parts(before: str, code: str) -> tuple[str, str]:
    """Return both sources with a single declaration by `require` of each name: the sources share a scope.

    The completion leaves out a line of both sources; the other source leaves out a name with another
    declaration in the completion.
    """
    code = without_repeated(code, before, REQUIRE)

    declared = _declared(code)

    def left(found: re.Match[str]) -> str:
        names = [each.strip() for each in found[1].strip("{} \t").split(",") if each.strip()]
        free = [each for each in names if each.rpartition(":")[2].strip() not in declared]
        if len(free) == len(names):
            return found[0]
        return f"const {{ {', '.join(free)} }} = {found[2]};" if free else ""

    return REQUIRE.sub(left, before), code


def _declared(code: str) -> set[str]:
    """Return the names declared by lines such as `const { a, b: c } = …` and `import d, { e } from …`."""
    # Parts of "{ a, b: c }": " a" and " b: c "; the words of the second: "b" and "c".
    parts = [part for found in _DECLARES.findall(code) for part in re.split(r"[,{}]", found)]
    names = (re.findall(r"[\w$]+", part.partition(" from ")[0]) for part in parts)
    return {each[-1] for each in names if each}


# ---------------------------------------------------------------- each language


def _hoisted(*lines: str) -> Join:
    """Return the rule of a language with lines of these forms, in this order, at the beginning of a file.

    A file has a single name of a package or a namespace: the completion's.
    """
    forms = [re.compile(line, re.MULTILINE) for line in lines]

    def join(before: str, code: str) -> str:
        first: list[str] = []
        for form in forms:
            found = [each.strip() for text in (code, before) for each in form.findall(text)]
            is_name = bool(found) and found[0].startswith(("package", "namespace"))
            first += found[:1] if is_name else dict.fromkeys(found)
            before, code = form.sub("", before), form.sub("", code)
        return "\n".join([*first, before.strip(), code.lstrip("\n")])

    return join


# "package a.b;" and "import static a.b.*;"
_JAVA = _hoisted(
    r"^[ \t]*package[ \t]+[\w.]+[ \t]*;", r"^import[ \t]+(?:static[ \t]+)?[\w.*]+[ \t]*;"
)


def _java(before: str, code: str) -> str:
    return _JAVA(_JAVA_PUBLIC.sub("", before), code)


_LINES: Mapping[str, str] = MappingProxyType(
    {
        "c": '#line 1 "completion.c"\n',
        "cpp": '#line 1 "completion.cpp"\n',
        "go": "//line completion.go:1:1\n",
    }
)
"""Directives before a completion, so messages of the compiler have the completion's lines."""


def _numbered(language: str, before: str) -> str:
    """Return a text for the completion to follow, with the directive of its language, if any."""
    if before.rstrip().endswith("\\"):  # the next line is a part of this one
        return before
    return before + _LINES.get(language, "")


def _c(language: str, before: str, code: str) -> str:
    if _LINES[language] in code:  # behind the prompt's code
        return appended(before, code)
    return _numbered(language, f"{before.rstrip()}\n") + code


def _go(before: str, code: str) -> str:
    """Leave out the unused imports of `before`: Go refuses them."""
    package = GO_PACKAGE.search(code) or GO_PACKAGE.search(before)
    before, code = GO_PACKAGE.sub("", before), GO_PACKAGE.sub("", code)
    blank = GO_IMPORT.sub(lambda found: "\n" * found[0].count("\n"), code)
    line = "" if _LINES["go"] in code else _LINES["go"]
    rest = f"{GO_IMPORT.sub('', before)}\n{line}{blank}"
    imports = [each[0] for each in GO_IMPORT.finditer(code)]
    for found in GO_IMPORT.finditer(go_setup(before, code)):
        for each in GO_IMPORTED.finditer(found[0][6:]):
            name = each[1] or _GO_VERSION.sub("", each[2].strip('"')).rpartition("/")[2]
            if name in "_." or re.search(rf"\b{re.escape(name)}\.", rest):  # `math.`
                imports.append(f"import {each[0]}")
    pieces = [package[0] if package else "", *dict.fromkeys(imports), rest.lstrip("\n")]
    return "\n".join(pieces).lstrip("\n")


def _rust(before: str, code: str) -> str:
    """Import the names of `before` by a wildcard, so the completion may import the same names."""
    inner, own = RUST_INNER.match(code), RUST_INNER.match(before)
    assert inner is not None  # matches an empty text
    assert own is not None
    before, code = before[own.end() :], code[inner.end() :]
    names = _RUST_STANDARD.findall(before)
    module = ""
    if names:
        public = "\n".join(f"pub {each}" for each in names)
        name = (
            f"names_{hashlib.blake2b(public.encode('utf-8', 'replace'), digest_size=6).hexdigest()}"
        )
        module = f"#[allow(unused_imports)]\nmod {name} {{\n{public}\n}}\n"
        module += f"#[allow(unused_imports)]\nuse {name}::*;\n"
        before = _RUST_STANDARD.sub("", before)
    return f"{inner[0]}{own[0]}{module}{before.strip()}\n{code}"


def _javascript(before: str, code: str) -> str:
    return appended(*_javascript_parts(before, code))


_PHP = _hoisted(
    r"^declare[ \t]*\([ \t]*strict_types[^()\n]*\)[ \t]*;",  # "declare(strict_types=1);"
    r"^namespace[ \t]+[\w\\]+[ \t]*;",  # "namespace App\Http;"
    r"^use[ \t]+[^\n;({]*;",  # "use App\User as U;"
)


def _php(before: str, code: str) -> str:
    """Join the sources in a single block of PHP. A text before `<?php` is output, and stays in its place."""
    opened = _PHP_OPEN.match(code)
    if opened is None and "<?" in code:
        return appended(before if _PHP_CLOSED.search(before) else f"{before}\n?>", code)
    before = _PHP_CLOSED.sub("", before)
    begins = _PHP_OPEN.match(before)
    code = code[opened.end() :] if opened else code
    return "<?php\n" + _PHP(before[begins.end() :] if begins else before, code)


_JOIN: Mapping[str, Join] = MappingProxyType(
    {
        "java": _java,
        "junit": _java,
        "kotlin": _hoisted(
            r"^@file:[^\n]*",  # '@file:JvmName("A")'
            r"^package[ \t]+[\w.]+;?",  # "package a.b"
            r"^import[ \t]+[\w.*]+(?:[ \t]+as[ \t]+\w+)?;?",  # "import a.b as c"
        ),
        "scala": _hoisted(r"^package[ \t]+[\w.]+;?[ \t]*$"),  # "package a.b"
        # "using static System.Math;" and "using A = System.Int32;"
        "c": partial(_c, "c"),
        "cpp": partial(_c, "cpp"),
        "csharp": _hoisted(r"^using[ \t]+(?:static[ \t]+)?[\w.]+(?:[ \t]*=[ \t]*[\w.<>]+)?[ \t]*;"),
        "go": _go,
        "go_test": _go,
        "rust": _rust,
        "javascript": _javascript,
        "jest": _javascript,
        "typescript": _javascript,
        "php": _php,
    }
)
"""Languages with a fixed beginning of files; elsewhere a source goes on with the next source."""


# ---------------------------------------------------------------- completion

_KEYWORDS = r"(?:function|fun|func|def|sub|fn)\s+"  # "def "
# " = async (n) =>" and ": F = function"
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
_BRACE = re.compile(r"[{}]|\n[ \t]*")  # a brace, or a line's indentation: "{", "\n    "


def texts_of(language: str, languages: Mapping[str, Language] = KNOWN_LANGUAGES) -> Texts:
    """Return the rules of texts in a language of this table."""
    if language == PYTHON:
        return PYTHON_TEXTS
    row = languages.get(language)
    names = (language, *(() if row is None else row.aliases))
    return Texts(
        names=frozenset(each for name in names for each in (name.lower(), fence_name(name))),
        is_program=is_program,
        begins_as_code=begins_as_code,
        defined_names=defined_names,
        is_example=is_example,
        join=_JOIN.get(language, appended),
        completed=partial(_completed, language),
    )


def _completed(language: str, code: str, around: Around) -> str:
    """Return a completion as a part of the prompt's program."""
    prompt, suffix = around.prompt_code, around.suffix_code
    whole = with_definition(language, prompt, tidy(code), around.entry_point)
    if whole:
        return whole
    body = fitted(code, around)
    if body == code and prompt.endswith("\n"):
        prompt = _numbered(language, prompt)
    return continued(language, prompt, body, suffix)


def with_definition(language: str, prompt: str, code: str, name: str | None) -> str | None:
    """Return the program of a completion with a definition of the prompt's function, else None."""
    # "twice" of "Solution().twice"
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


def continued(language: str, prompt: str, body: str, suffix: str) -> str:
    """Return the program of a function's body, with the closing braces for the prompt."""
    program = prompt + body + suffix
    if suffix and prompt.endswith("\n") and not body.endswith("\n") and not suffix[:1].isspace():
        program = f"{prompt}{body}\n{suffix}"
    program = _closed(language, prompt, program)
    if language == "go":  # the program may leave an import of the prompt unused
        imports = "\n".join(GO_IMPORT.findall(program))
        return joined(language, imports, GO_IMPORT.sub("", program))
    return program


def _definitions(language: str, name: str, text: str) -> list[int]:
    """Return the places of the definitions of a function: `int f(`, `func f`, `const f = (x) =>`."""
    if language in _TYPED_LANGUAGES:
        return [place for _, place in _typed(text, re.escape(name))]
    name = re.escape(name)
    patterns = [
        rf"\b{_KEYWORDS}{name}(?!\w)",  # "func twice"
        rf"\b(?:const|let|var)\s+{name}{_ARROW}",  # "const twice = (n) =>"
        rf"^[ \t]*+(?:local[ \t]+)?{name}[ \t]*(?:<-|=)[ \t]*function\b",  # R and Lua
        rf"^{name}[ \t]*\(\)",  # Bash
    ]
    return [each.start() for each in re.finditer("|".join(patterns), text, re.MULTILINE)]


def _typed(text: str, name: str = r"\w+") -> Iterator[tuple[str, int]]:
    """Yield the name and the place of each function with a type before the name: `int f(`."""
    found_names = re.finditer(rf"(?<![\w.$])({name}){_PARAMETERS}", text)  # `f(int n) {`
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
        # "twice" in "def twice" and in the Bash "twice ()"
        pairs = re.findall(rf"\b{_KEYWORDS}([\w.]+)|^([\w.]+)[ \t]*\(\)", prompt, re.MULTILINE)
        names = [first or second for first, second in pairs]
    return names[-1] if names else None


def _open_blocks(language: str, text: str) -> list[str]:
    """Return the indentation of each line with a brace open at the end, the outermost first."""
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
    """Return the program with the missing closing braces of the prompt's blocks.

    The program stays unchanged where a line closes an open block by its indentation: the braces of the
    text then differ from the braces of the language.
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
