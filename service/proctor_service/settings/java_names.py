"""Class names in a Java source: the public class, which names the file, and the class to run.

The one to run is named with the package that the source declares.

No parser: comments and literals are left out, and braces are counted. Only the beginning of a source
is looked at, in time linear in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_SEARCHED_CHARACTERS = 64 * 1024
DEFAULT_NAME = "Main"

_IGNORED = re.compile(
    r"//[^\n]*"
    r"|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z)"
    r'|"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|\Z)'
    r'|"(?:[^"\\\n]|\\.)*+"?'
    r"|'(?:[^'\\\n]|\\.)*+'?",
    re.DOTALL,
)
_TOKEN = re.compile(
    r"[{};]|\bpublic\b|\b(?:class|interface|enum|record)\s++([A-Za-z_$][\w$]{0,99})(?![\w$])"
    r"|\bvoid\s++main\s*+\(",
    re.ASCII,
)
_NAME = r"[A-Za-z_$][\w$]*+"
_PACKAGE = re.compile(rf"\s*+package\s++({_NAME}(?:\s*+\.\s*+{_NAME})*+)\s*+;", re.ASCII)


@dataclass(frozen=True, slots=True)
class JavaNames:
    """Names in a source: of its file, and of what is run.

    `file`: the class after which the source's file must be named. `main`: the class to run, with its
    package.
    """

    file: str = DEFAULT_NAME
    main: str = DEFAULT_NAME


def java_names(source: str) -> JavaNames:
    """Return the name of the public class and of the first class with a `main`.

    Where one is missing it is the other, and else `Main`. The class to run has its package.
    """
    text = _IGNORED.sub(" ", source[:MAX_SEARCHED_CHARACTERS])
    depth = 0
    is_public = False
    current = public = main = ""
    for token in _TOKEN.finditer(text):
        word = token.group()
        if word == "{":
            depth += 1
        elif word == "}":
            depth = max(depth - 1, 0)
        elif depth == 0 and word == "public":
            is_public = True
            continue
        elif depth == 0 and token.group(1):
            current = token.group(1)
            public = public or (current if is_public else "")
        elif depth == 1 and word.endswith("("):
            main = main or current
        if depth == 0:
            is_public = False
    return JavaNames(
        public or main or DEFAULT_NAME, _package_prefix(text) + (main or public or DEFAULT_NAME)
    )


def _package_prefix(text: str) -> str:
    """`x.y.` for a source, without comments, that begins with `package x.y;`."""
    package = _PACKAGE.match(text)
    return "" if package is None else "".join(package.group(1).split()) + "."
