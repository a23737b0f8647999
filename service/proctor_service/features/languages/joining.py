"""Two sources of one language as one: what must stand first in a file is moved there.

The second source is a completion, or has one. The first is a part of the task, and gives way: its imports
never repeat or contradict those of the completion.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

GO_PACKAGE = re.compile(r"^package[ \t]+\w+", re.MULTILINE)
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

# `from __future__ import annotations`, and before a semicolon.
_FUTURE = re.compile(
    r"^(from[ \t]+__future__[ \t]+import[ \t]*(?:\([^()]*\)|[^\n;#]*))(?:[ \t]*;[ \t]*)?",
    re.MULTILINE,
)
_SHEBANG = re.compile(r"#![^\[\n][^\n]*(?:\n|\Z)")  # `#!/bin/bash`; not Rust's `#![allow(unused)]`
_JAVA_PUBLIC = re.compile(
    r"^public[ \t]+(?=(?:(?:abstract|final|sealed)[ \t]+)*(?:class|interface|enum|record)\b)",
    re.MULTILINE,
)
"""Matches the first word of `public final class Pair`: a file has one public type, the completion's."""
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

Join = Callable[[str, str], str]


def joined(language: str, before: str, code: str) -> str:
    """Return one source with what `before` and `code` say, in this order."""
    if not before.strip():
        return code
    if not code.strip():
        return before
    code = _SHEBANG.sub("", code, count=1) if code.startswith("#!") else code
    return _JOIN.get(language, _plain)(before, code)


def without_repeated(text: str, other: str, line: re.Pattern[str]) -> str:
    """Return a text without those lines of this form that `other` has, too: they are left empty."""
    lines = {each.strip() for each in other.splitlines()}
    return line.sub(lambda found: "" if found[0].strip() in lines else found[0], text)


def go_setup(setup: str, completion: str) -> str:
    """Return the setup without the packages that the completion imports itself, in one file with it."""
    imported = {
        path for found in GO_IMPORT.findall(completion) for _, path in GO_IMPORTED.findall(found)
    }

    def left(found: re.Match[str]) -> str:
        each = [one[0] for one in GO_IMPORTED.finditer(found[0][6:]) if one[2] not in imported]
        return "".join(f"import {one}\n" for one in each)

    return GO_IMPORT.sub(left, setup)


def _javascript_parts(before: str, code: str) -> tuple[str, str]:
    """Return both sources without a name that both declare by `require`: they share a scope.

    The completion leaves out a line that the other has, too; the other a name that the completion
    declares in another way.
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
    """Return the names that lines such as `const { a, b: c } = …` and `import d, { e } from …` declare."""
    parts = [part for found in _DECLARES.findall(code) for part in re.split(r"[,{}]", found)]
    names = (re.findall(r"[\w$]+", part.partition(" from ")[0]) for part in parts)
    return {each[-1] for each in names if each}


# ---------------------------------------------------------------- each language


def _plain(before: str, code: str) -> str:
    return f"{before.rstrip()}\n{code}"


def _python(before: str, code: str) -> str:
    futures = dict.fromkeys(
        each.strip() for text in (code, before) for each in _FUTURE.findall(text)
    )
    return "\n".join([*futures, _FUTURE.sub("", before).strip("\n"), _FUTURE.sub("", code)])


def _hoisted(*lines: str) -> Join:
    """Return what joins sources whose lines of these forms, in this order, begin a file.

    A file has one name of a package or a namespace: the completion's.
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


_JAVA = _hoisted(
    r"^[ \t]*package[ \t]+[\w.]+[ \t]*;", r"^import[ \t]+(?:static[ \t]+)?[\w.*]+[ \t]*;"
)


def _java(before: str, code: str) -> str:
    return _JAVA(_JAVA_PUBLIC.sub("", before), code)


def _go(before: str, code: str) -> str:
    """Leave out the imports of `before` that the program lacks a use of: Go refuses them."""
    package = GO_PACKAGE.search(code) or GO_PACKAGE.search(before)
    before, code = GO_PACKAGE.sub("", before), GO_PACKAGE.sub("", code)
    rest = GO_IMPORT.sub("", before) + "\n" + GO_IMPORT.sub("", code)
    imports = [each[0] for each in GO_IMPORT.finditer(code)]
    for found in GO_IMPORT.finditer(go_setup(before, code)):
        for each in GO_IMPORTED.finditer(found[0][6:]):
            name = each[1] or _GO_VERSION.sub("", each[2].strip('"')).rpartition("/")[2]
            if name in "_." or re.search(rf"\b{re.escape(name)}\.", rest):
                imports.append(f"import {each[0]}")
    pieces = [package[0] if package else "", *dict.fromkeys(imports), rest.lstrip("\n")]
    return "\n".join(pieces).lstrip("\n")


def _rust(before: str, code: str) -> str:
    """Import the names of `before` by a wildcard, so that the completion may import the same ones."""
    inner, own = RUST_INNER.match(code), RUST_INNER.match(before)
    assert inner is not None  # it matches an empty text
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
    return _plain(*_javascript_parts(before, code))


_PHP = _hoisted(
    r"^declare[ \t]*\([ \t]*strict_types[^()\n]*\)[ \t]*;",
    r"^namespace[ \t]+[\w\\]+[ \t]*;",
    r"^use[ \t]+[^\n;({]*;",
)


def _php(before: str, code: str) -> str:
    """Join the sources in one block of PHP. A text before `<?php` is output, and stays in its place."""
    opened = _PHP_OPEN.match(code)
    if opened is None and "<?" in code:
        return _plain(before if _PHP_CLOSED.search(before) else f"{before}\n?>", code)
    before = _PHP_CLOSED.sub("", before)
    begins = _PHP_OPEN.match(before)
    code = code[opened.end() :] if opened else code
    return "<?php\n" + _PHP(before[begins.end() :] if begins else before, code)


_JOIN: Mapping[str, Join] = MappingProxyType(
    {
        "python": _python,
        "java": _java,
        "junit": _java,
        "kotlin": _hoisted(
            r"^@file:[^\n]*",
            r"^package[ \t]+[\w.]+;?",
            r"^import[ \t]+[\w.*]+(?:[ \t]+as[ \t]+\w+)?;?",
        ),
        "scala": _hoisted(r"^package[ \t]+[\w.]+;?[ \t]*$"),
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
"""Languages whose files begin with something; in the others a source goes on with the next one."""
