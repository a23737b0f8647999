"""Class names in a Java source: the public class, which names the file, and the class to run.

Instead of a parser, a scan drops comments and literals and counts braces. The scan covers the first
65,536 characters of the source, in linear time.
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


@dataclass(frozen=True, slots=True)
class JavaNames:
    """`file`: class that names the source file. `main`: class to run."""

    file: str = DEFAULT_NAME
    main: str = DEFAULT_NAME


def java_names(source: str) -> JavaNames:
    """Return the name of the public class and of the first class with a `main`.

    If only one is found, both fields have its name; otherwise both are `Main`.
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
    return JavaNames(public or main or DEFAULT_NAME, main or public or DEFAULT_NAME)
