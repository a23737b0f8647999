"""Programs with tests apart from the completion: `exec` with `setup` and `tests`.

Each part is a file of its own. A launcher in the same language (`launchers/`) runs setup, completion and
tests in this order, in the same process. The launcher reads a secret word from descriptor 3 before the
completion runs, and writes the word there behind the tests, so an early end fails the tests. A completion
can find the word by a search of the memory of its process.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import chain
from types import MappingProxyType

from proctor_service.errors import StartError
from proctor_service.features.languages.jvm_names import DEFAULT_NAME, java_names, scala_main
from proctor_service.features.languages.texts import (
    GO_IMPORT,
    GO_PACKAGE,
    REQUIRE,
    RUST_INNER,
    RUST_USE,
    go_setup,
    joined,
    without_repeated,
)
from proctor_service.judge.graders.programs import Parts
from proctor_service.judge.submission import Submission
from proctor_service.settings.languages import Language

NAME = "PROCTOR_NAME"
"""Placeholder of an identifier unknown to completions."""
_NAME_KEY = secrets.token_bytes(32)
_LAUNCHERS = files(__package__) / "launchers"
_GO_MAIN = re.compile(r"^func[ \t]+main[ \t]*\([ \t]*\)", re.MULTILINE)  # `func main()`
_RUST_MAIN = re.compile(
    r"^(?:pub(?:\([a-z]+\))?[ \t]+)?fn[ \t]+main\b", re.MULTILINE
)  # `pub fn main`
_JVM_PACKAGE = re.compile(r"^[ \t]*package[ \t]+(?!object\b)([\w.]+)[ \t]*;?", re.MULTILINE)
"""Matches `package com.example;`."""
_PHP_NAMESPACE = re.compile(r"^[ \t]*namespace\b(?:[ \t]+([\w\\]+)[ \t]*;)?", re.MULTILINE)
"""Matches `namespace App;`, and `namespace App {` without its name: a block ends before the tests."""
_TYPE = re.compile(r"\b(?:class|interface|enum|record)\s++((?!\d)[\w$]+)")  # `class Tests`
_STANDARD_HEADER = "#include <bits/stdc++.h>\n"
_CSHARP_NAMESPACE = re.compile(r"\bnamespace\s+([\w.]+)")  # `namespace App.Tests`
_CSHARP_MAIN = re.compile(r"\bMain\s*\(")  # `void Main (`


@dataclass(frozen=True, slots=True)
class Arranged:
    """Files and commands of a program with its tests.

    `files`: for the compiler, or for the run of an uncompiled program. `beside`: files for the run of a
    compiled program.
    """

    compile: tuple[str, ...] | None
    run: tuple[str, ...]
    files: Mapping[str, str]
    beside: Mapping[str, str] = field(default_factory=dict)


def arranged(language: Language, parts: Parts, name: str) -> Arranged:
    """Return files and commands for a language with a launcher; `name`: its identifier."""
    assert language.launcher is not None
    return _ARRANGE.get(language.launcher, _interpreted)(language, parts, name)


def launcher_name(submission: Submission, parts: Parts) -> str:
    """Return an identifier unknown to the completion, different for each content.

    Equal programs have the same identifier, so that they are compiled once. The identifier is a keyed
    digest of all their texts, so the identifier changes when a program contains its own, learned earlier.
    The files of a snapshot are unknown here, so a submission with a snapshot has a random identifier.
    """
    if submission.state is not None:
        return f"proctor_{secrets.token_hex(8)}"
    texts = [parts.setup, parts.completion, parts.tests, *chain(*sorted(submission.files.items()))]
    digest = hashlib.blake2b(json.dumps(texts).encode(), key=_NAME_KEY, digest_size=8)
    return f"proctor_{digest.hexdigest()}"


@cache
def _text(launcher: str) -> str:
    return (_LAUNCHERS / launcher).read_text()


@cache
def _launchers() -> Mapping[str, str]:
    """Return the extension of each launcher's file, by the name of the launcher."""
    names = (each.name.rpartition(".") for each in _LAUNCHERS.iterdir())
    return {name: extension for name, _, extension in names if name != "__init__"}


def launcher_text(file: str, name: str, **more: str) -> str:
    """Return a launcher's source with its identifier and the values of its other placeholders."""
    text = _text(file).replace(NAME, name)
    for placeholder, value in more.items():
        text = text.replace(f"PROCTOR_{placeholder}", value)
    return text


def _replaced(argv: tuple[str, ...], word: str, *by: str) -> tuple[str, ...]:
    """Return a command with `by` in place of a word."""
    at = argv.index(word)
    return (*argv[:at], *by, *argv[at + 1 :])


def _files(language: Language, parts: Parts, name: str, **more: str) -> dict[str, str]:
    """Return the launcher and the parts as files; `more`: values of the launcher's placeholders."""
    assert language.launcher is not None
    extension = _launchers()[language.launcher]
    launcher = launcher_text(f"{language.launcher}.{extension}", name, **more)
    return {
        f"launcher.{extension}": launcher,
        f"setup.{extension}": language.whole(parts.setup),
        f"solution.{extension}": language.whole(parts.completion),
        f"tests.{extension}": language.whole(parts.tests),
    }


def _interpreted(language: Language, parts: Parts, name: str) -> Arranged:
    made = _files(language, parts, name)
    return Arranged(None, _replaced(language.run, language.source, next(iter(made))), made)


def _php(language: Language, parts: Parts, name: str) -> Arranged:
    return _interpreted(language, _together("php", parts, _PHP_NAMESPACE), name)


def _together(language: str, parts: Parts, package: re.Pattern[str]) -> Parts:
    """Put setup and tests into the completion's package, as if all were in a single file.

    They stay apart if they have a package themselves, or name the completion's.
    """
    found = package.search(parts.completion)
    if found is None or found[1] is None:
        return parts
    names_it = re.compile(rf"(?<![\w.]){re.escape(found[1])}\s*[.\\]")  # `com.example.Pair`

    def put(text: str) -> str:
        stays = not text.strip() or package.search(text) or names_it.search(text)
        return text if stays else joined(language, found[0].strip(), text)

    return replace(parts, setup=put(parts.setup), tests=put(parts.tests))


def _javascript(language: Language, parts: Parts, name: str) -> Arranged:
    """Leave out a `require` of the completion equal to the setup's: they share a scope."""
    completion = without_repeated(parts.completion, parts.setup, REQUIRE)
    return _interpreted(language, replace(parts, completion=completion), name)


def _typescript(language: Language, parts: Parts, name: str) -> Arranged:
    assert language.compile is not None
    made = {"setup.ts": parts.setup, "solution.ts": parts.completion, "tests.ts": parts.tests}
    return Arranged(
        _replaced(language.compile, language.source, *made),
        _replaced(language.run, "solution.js", "launcher.js"),
        made,
        {"launcher.js": launcher_text("javascript.js", name)},
    )


def _c(language: Language, parts: Parts, name: str) -> Arranged:
    """Include the parts in a single file."""
    assert language.compile is not None
    extension = language.source.rpartition(".")[2]
    before = parts.setup if parts.setup.strip() else parts.completion
    # The compiler has a precompiled header for the first line of a program alone.
    first = [_STANDARD_HEADER.rstrip()] if before.lstrip().startswith(_STANDARD_HEADER) else []
    lines = [
        *first,
        f'#include "setup.{extension}"',
        f"#define main {name}",
        f'#include "solution.{extension}"',
        "#undef main",
        f'#include "tests.{extension}"',
    ]
    made = {
        f"setup.{extension}": f"{parts.setup}\n",
        f"solution.{extension}": f"{parts.completion}\n",
        f"tests.{extension}": f"{parts.tests}\n",
        f"program.{extension}": "\n".join((*lines, "")),
        f"launcher.{extension}": launcher_text("c.c", name),
    }
    ours = (f"launcher.{extension}", f"program.{extension}", "-Wl,--wrap=main")
    return Arranged(_replaced(language.compile, language.source, *ours), language.run, made)


def _go(language: Language, parts: Parts, name: str) -> Arranged:
    assert language.compile is not None
    solution = _GO_MAIN.sub(f"func {name}other()", parts.completion)
    made = {"a_launcher.go": launcher_text("go.go", name)}
    if GO_PACKAGE.search(parts.completion):
        if GO_IMPORT.sub("", parts.setup).strip():  # Go refuses imports without a use
            made["setup.go"] = _go_file(parts.setup)
        made["solution.go"] = solution
    else:
        setup = go_setup(parts.setup, solution)
        made["solution.go"] = _go_file(f"{setup}\n//line solution.go:1:1\n{solution}")
    made["tests.go"] = _go_file(_GO_MAIN.sub(f"func {name}tests()", parts.tests))
    return Arranged(_replaced(language.compile, language.source, *made), language.run, made)


def _go_file(text: str) -> str:
    return text if GO_PACKAGE.search(text) else f"package main\n{text}"


def _rust(language: Language, parts: Parts, name: str) -> Arranged:
    """Make the completion the crate: its macros reach the tests behind, but not the launcher
    before. Its lines keep their numbers, for the messages of the compiler.
    """
    assert language.compile is not None
    inner = RUST_INNER.match(parts.completion)
    at = inner.end() if inner else 0
    head, body = parts.completion[:at], _RUST_MAIN.sub(f"fn {name}_other", parts.completion[at:])
    head = head if head.endswith("\n") or not head else f"{head}\n"
    setup = without_repeated(parts.setup, parts.completion, RUST_USE)
    made = {
        "launcher.rs": launcher_text("rust.rs", name),
        "tests.rs": f"use super::*;\n{_RUST_MAIN.sub('pub fn main', parts.tests)}",
    }
    if setup.strip() and "macro_export" not in setup:  # Rust has rules for an included one's path
        made["setup.rs"] = f"{setup}\n"
        setup = 'include!("setup.rs"); '
    launcher = f'#[path = "launcher.rs"] mod {name}_launcher; '
    tests = f'#[path = "tests.rs"]\nmod {name};'
    main = f"fn main() -> ::std::process::ExitCode {{ {name}_launcher::main() }}"
    made["solution.rs"] = "\n".join(
        (f"#![allow(warnings)] {head}{launcher}{setup}{body}", tests, main, "")
    )
    return Arranged(language.compile, language.run, made)


def _java(language: Language, parts: Parts, name: str) -> Arranged:
    assert language.compile is not None
    parts = _together("java", parts, _JVM_PACKAGE)
    made = {}
    for folder, text in (
        ("setup", parts.setup),
        ("solution", parts.completion),
        ("tests", parts.tests),
    ):
        if text.strip():
            made[f"{folder}/{java_names(text).file}.java"] = text
    main = java_names(parts.tests).main
    made[f"launcher/{name}.java"] = launcher_text("java.java", name, MAIN=main)
    compile_it = _replaced(language.compile, language.source, *made)
    return Arranged(compile_it, _replaced(language.run, "{main}", f"{name}.{name}"), made)


def _kotlin(language: Language, parts: Parts, name: str) -> Arranged:
    parts = _together("kotlin", parts, _JVM_PACKAGE)
    package = _JVM_PACKAGE.search(parts.tests)
    prefix = "" if package is None else f"{package[1]}."
    return _jvm(language, parts, name, f"{prefix}TestsKt")


def _scala(language: Language, parts: Parts, name: str) -> Arranged:
    parts = _together("scala", parts, _JVM_PACKAGE)
    return _jvm(language, parts, name, scala_main(parts.tests))


def _jvm(language: Language, parts: Parts, name: str, main: str) -> Arranged:
    assert language.compile is not None
    made = _files(language, parts, name, MAIN=main)
    compile_it = _replaced(language.compile, language.source, *made)
    return Arranged(compile_it, _replaced(language.run, "{main}", f"{name}.{name}"), made)


def _csharp(language: Language, parts: Parts, name: str) -> Arranged:
    assert language.compile is not None
    namespace = _CSHARP_NAMESPACE.search(parts.tests)
    main = _CSHARP_MAIN.search(parts.tests)
    classes = _TYPE.findall(parts.tests[: main.start()] if main else parts.tests)
    main_class = classes[-1] if classes else DEFAULT_NAME
    if namespace is not None:
        main_class = f"{namespace[1]}.{main_class}"
    made = _files(language, parts, name, MAIN=main_class)
    compile_it = _replaced(language.compile, language.source, f"-main:{name}", *made)
    return Arranged(compile_it, language.run, made)


_ARRANGE: Mapping[str, Callable[[Language, Parts, str], Arranged]] = MappingProxyType(
    {
        "c": _c,
        "csharp": _csharp,
        "go": _go,
        "java": _java,
        "javascript": _javascript,
        "kotlin": _kotlin,
        "php": _php,
        "rust": _rust,
        "scala": _scala,
        "typescript": _typescript,
    }
)
"""Launchers with rules of their own; any other interprets the parts, found by its file's name."""


def check_launchers(languages: Mapping[str, Language]) -> None:
    """Raise StartError for a language with a missing launcher."""
    for name, language in languages.items():
        launcher = language.launcher
        if launcher is not None and launcher not in _ARRANGE and launcher not in _launchers():
            raise StartError(f"PROCTOR_LANGUAGES: {name}: there is no launcher {launcher!r}")
