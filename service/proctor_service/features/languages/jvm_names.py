"""Class names in a source for the JVM: the public class, which names the file, and the class to run.

In Java both, in Kotlin and Scala the class to run. Its name includes the declared package. The search skips
comments and literals and counts braces. The search reads the beginning of a source, in linear time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest

from proctor_service.settings.languages import Language

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
"""Comments and literals: `// {`, `/* { */`, `"}"`, `'{'`; a text block in three quotes."""
_TOKEN = re.compile(
    r"[{};]|\bpublic\b|\b(?:class|interface|enum|record)\s++((?!\d)[\w$]{1,100})(?![\w$])"
    r"|\bvoid\s++main\s*+\((\s*+(?:final\s++)?+(?:java\.lang\.)?+String\b\s*+(?:\[|\.\.\.|[\w$]++\s*+\[))?+"
)
"""`{`, `public`, `class Pair`, and `void main(String[]` or `void main(`."""
_NAME = r"(?!\d)[\w$]++"  # `Pair$1`
_PACKAGE = re.compile(rf"\s*+package\s++({_NAME}(?:\s*+\.\s*+{_NAME})*+)\s*+;")
"""`package com . example;` at the beginning."""


def named(language: Language, source: str) -> Language:
    """Return the language with the class names of a source in its paths and commands."""
    if language.named_by is None:
        return language
    if language.named_by == "java":
        names = java_names(source)
    else:
        main = kotlin_main(source) if language.named_by == "kotlin" else scala_main(source)
        names = JavaNames(main, main)

    def put(text: str) -> str:
        return text.replace("{file}", names.file).replace("{main}", names.main)

    return language.model_copy(
        update={
            "source": put(language.source),
            "compile": language.compile and tuple(map(put, language.compile)),
            "run": tuple(map(put, language.run)),
        }
    )


@dataclass(frozen=True, slots=True)
class JavaNames:
    """Class names in a source.

    `file`: class of which the source's file has its name. `main`: class to run, with its package.
    """

    file: str = DEFAULT_NAME
    main: str = DEFAULT_NAME


def java_names(source: str) -> JavaNames:
    """Return the name of the public class, and the class to run with its package.

    Of several classes with a `main` for `String[]` the public class runs, then `Main`, then the first;
    otherwise the first with another `main`. If either name is missing, the other stands for both;
    without any, `Main`.
    """
    text = _IGNORED.sub(" ", source[:MAX_SEARCHED_CHARACTERS])
    depth = 0
    is_public = False
    current = public = ""
    runnable: list[str] = []
    others: list[str] = []
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
        elif depth == 1 and word.startswith("void"):
            (others if token.group(2) is None else runnable).append(current)
        if depth == 0:
            is_public = False
    preferred = [name for name in (public, DEFAULT_NAME) if name in runnable]
    main = next(iter((*preferred, *runnable, *others)), "")
    return JavaNames(
        public or main or DEFAULT_NAME, _package_prefix(text) + (main or public or DEFAULT_NAME)
    )


def _package_prefix(text: str) -> str:
    """Return `x.y.` for a source without comments that begins with `package x.y;`, else ""."""
    package = _PACKAGE.match(text)
    return "" if package is None else "".join(package.group(1).split()) + "."


_KOTLIN_TOKEN = re.compile(
    rf"[{{}}]|\b(?:class|interface|object)\s++({_NAME})"
    r"|(\bJvmStatic\s++(?:public\s++)?+)?+\bfun\s++main\s*+\("
)
"""`{`, `object Main`, `fun main(`, and `JvmStatic fun main(` in an object."""
_KOTLIN_FILE = re.compile(r"@file\s*+:\s*+JvmName\s*+\(\s*+\"(\w++)\"")
"""`@file:JvmName("Tool")`."""
_PACKAGE_LINE = re.compile(
    rf"^\s*+package\s++({_NAME}(?:\.{_NAME})*+)", re.MULTILINE
)  # `package a.b`


def kotlin_main(source: str) -> str:
    """Return the class to run of a Kotlin source in `solution.kt`, with its package.

    The class of the file runs, or without a top-level `main` the first class with a static `main`, as
    in `object Main` or in its companion object.
    """
    text = _IGNORED.sub(" ", source[:MAX_SEARCHED_CHARACTERS])
    package = _PACKAGE_LINE.search(text)
    file = _KOTLIN_FILE.search(source[:MAX_SEARCHED_CHARACTERS])
    main = "SolutionKt" if file is None else file[1]
    depth = 0
    current = first = ""
    for token in _KOTLIN_TOKEN.finditer(text):
        word = token.group()
        if word == "{":
            depth += 1
        elif word == "}":
            depth = max(depth - 1, 0)
        elif token[1]:
            current = current if depth else token[1]
        elif depth == 0:
            first = main
            break
        elif token[2]:
            first = first or current
    return ("" if package is None else f"{package[1]}.") + (first or main)


_SCALA_OBJECT = re.compile(rf"^(?:case\s++)?object\s++({_NAME})([^\n{{]*+)", re.MULTILINE)
"""`object Main extends App`, with the rest of the line behind the name."""
_SCALA_MAIN = re.compile(r"\bdef\s++main\b")  # `def main(args`
_SCALA_APP = re.compile(r"\b(?:extends|with)\s++App\b")  # `extends App`
_SCALA_ANNOTATED = re.compile(rf"@main\s++def\s++({_NAME})")  # `@main def run`


def scala_main(source: str) -> str:
    """Return the class to run of a Scala source, with its package.

    The first top-level object with a `main` or of kind `App`, or a method marked `@main`;
    otherwise the first object, or `Main`.
    """
    text = _IGNORED.sub(" ", source[:MAX_SEARCHED_CHARACTERS])
    package = _PACKAGE_LINE.search(text)
    prefix = "" if package is None else f"{package[1]}."
    marked = _SCALA_ANNOTATED.search(text)
    if marked is not None:
        return prefix + marked[1]
    objects = list(_SCALA_OBJECT.finditer(text))
    for each, following in zip_longest(objects, objects[1:]):
        end = len(text) if following is None else following.start()
        if _SCALA_APP.search(each[2]) or _SCALA_MAIN.search(text, each.end(), end):
            return prefix + each[1]
    return prefix + (objects[0][1] if objects else DEFAULT_NAME)
