"""Programs whose tests are apart from the completion: `exec` with `setup` and `tests`.

Each part is a file of its own. A launcher in the same language (`judge/launchers/`) runs setup,
completion and tests in this order, in one process. It reads a secret word from descriptor 3 before
the completion runs, and writes the word there behind the tests. So a program that ends early proves
nothing. A completion that searches the memory of its process can find the word.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files

from proctor_service.judge.submission import Judgement
from proctor_service.settings.java_names import DEFAULT_NAME, java_names, scala_main
from proctor_service.settings.languages import Language, Launcher

NAME = "PROCTOR_NAME"
"""Placeholder of an identifier that no completion can know."""
_KOTLIN_NAMES = ("assert", "check", "checkNotNull", "error", "require", "requireNotNull")
RUST_MACRO_CALL = re.compile(
    r"(?<![\w:!$])(assert(?:_eq|_ne)?|debug_assert(?:_eq|_ne)?|panic|unreachable|todo|unimplemented|matches)!"
)
"""Call of a macro of the standard library, which a completion could replace by one of its own."""
RUST_VARIANTS = "use ::std::prelude::v1::{Err, None, Ok, Some};"
"""Names in tests that an import of everything (`use super::*`) could otherwise replace."""
_C_WORDS = (
    "NDEBUG", "__ASSERT_FUNCTION", "__PRETTY_FUNCTION__", "__assert_fail", "__builtin_expect",
    "__extension__", "assert", "bool", "break", "case", "catch", "char", "const", "continue", "default", "do",
    "double", "else", "float", "for", "if", "int", "long", "return", "sizeof", "static_cast", "switch",
    "throw", "try", "unsigned", "void", "while",
)  # fmt: skip
_TEST_FILE = re.compile(r"\b(?:tests|launcher|program)\b")
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b[^\n]*", re.MULTILINE)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_GO_MAIN = re.compile(r"^func[ \t]+main[ \t]*\([ \t]*\)", re.MULTILINE)
_GO_IMPORT = re.compile(
    r"^import[ \t]*(?:\([^()]*\)|(?:[\w.]+[ \t]+)?\"[^\"\n]*\")[ \t]*;?[ \t]*$", re.MULTILINE
)
_GO_IMPORTED = re.compile(r"(?:[\w.]+[ \t]+)?(\"[^\"\n]*\")")
_GO_PACKAGE = re.compile(r"^package[ \t]+\w+", re.MULTILINE)
_RUST_MAIN = re.compile(r"^(?:pub(?:\([a-z]+\))?[ \t]+)?fn[ \t]+main\b", re.MULTILINE)
_REPLACES = re.compile(
    r"(?<![\w$.])([\w$.]+?)\s*+(?:\.\s*+([\w$]++)\s*+=(?![=>])|[,\[]\s*+([\"'`])([\w$]++)\3)",
    re.ASCII,
)
_GLOBAL_OBJECT = re.compile(r"^global(?:This)?\.?")
_REQUIRE = re.compile(
    r"^(?:const|let|var)[ \t]+[^=\n]+=[ \t]*require\([^()\n]*\)[ \t]*;?[ \t]*$", re.MULTILINE
)
_RUST_USE = re.compile(r"^(?:use|extern[ \t]+crate)[ \t][^\n]*;[ \t]*$", re.MULTILINE)
_RUST_INNER = re.compile(r"(?:\s*+(?:#!\[[^\n]*\]|//[^\n]*+)[ \t]*+(?:\n|\Z))*+")
_JVM_PACKAGE = re.compile(r"^[ \t]*package[ \t]+([\w.]+)", re.MULTILINE)
_JAVA_IMPORTED = re.compile(r"^\s*import\s+([\w.]+)\.\*\s*;", re.MULTILINE | re.ASCII)
_JAVA_TYPE = re.compile(r"\b(?:class|interface|enum|record)\s++((?!\d)[\w$]+)")
_CSHARP_NAMESPACE = re.compile(r"\bnamespace\s+([\w.]+)")
_CSHARP_MAIN = re.compile(r"\bMain\s*\(")


@dataclass(frozen=True, slots=True)
class Parts:
    """Sources of a program: each a whole text in the grader's language."""

    setup: str
    completion: str
    tests: str


@dataclass(frozen=True, slots=True)
class Arranged:
    """Files and commands of a program with its tests.

    `files`: for the compiler, or for the run without one. `beside`: files that a compiled program needs
    at its run.
    """

    compile: tuple[str, ...] | None
    run: tuple[str, ...]
    files: Mapping[str, str]
    beside: Mapping[str, str] = field(default_factory=dict)


def arranged(language: Language, parts: Parts) -> Arranged:
    """Return files and commands for a language that has a launcher."""
    assert language.launcher is not None
    name = f"proctor_{secrets.token_hex(8)}"
    return _ARRANGE[language.launcher](language, parts, name)


def without_tests(judgement: Judgement) -> Judgement:
    """Return a judgement without what may show the tests: output, and parts of its message.

    Of an exception only the class remains, and nothing of a compiler that complains of the tests.
    """
    message = judgement.message
    if judgement.verdict == "syntax_error" and _TEST_FILE.search(message):
        message = "the program does not compile with its tests"
    elif judgement.verdict in ("failed", "runtime_error") and not message.startswith("the program"):
        message = message.strip().rpartition("\n")[2].partition(":")[0]
    return replace(judgement, stdout="", stderr="", message=message)


@cache
def _text(launcher: str) -> str:
    return (files("proctor_service.judge") / "launchers" / launcher).read_text()


def launcher_text(file: str, name: str, **more: str) -> str:
    """Return a launcher's source with its identifier and the values of its other placeholders."""
    text = _text(file).replace(NAME, name)
    for placeholder, value in more.items():
        text = text.replace(f"PROCTOR_{placeholder}", value)
    return text


def replaced_builtins(text: str) -> str:
    """Return what tests in JavaScript replace themselves, as JSON: "owner.name", ".name" for a global name.

    As `Math.random = f`, `spyOn(Math, "random")`, or `global.Math = f`.
    """
    found = (
        (_GLOBAL_OBJECT.sub("", match[1]), match[2] or match[4])
        for match in _REPLACES.finditer(text)
    )
    return json.dumps(sorted({f"{owner}.{name}" for owner, name in found}))


def _replaced(argv: tuple[str, ...], word: str, *by: str) -> tuple[str, ...]:
    """Return a command with `by` in place of a word."""
    at = argv.index(word)
    return (*argv[:at], *by, *argv[at + 1 :])


def _interpreted(file: str, **more: str) -> Callable[[Language, Parts, str], Arranged]:
    extension = file.rpartition(".")[2]

    def arrange(language: Language, parts: Parts, name: str) -> Arranged:
        made = {
            f"setup.{extension}": language.whole(parts.setup),
            f"solution.{extension}": language.whole(parts.completion),
            f"tests.{extension}": language.whole(parts.tests),
            f"launcher.{extension}": launcher_text(file, name, **more),
        }
        return Arranged(
            None, _replaced(language.run, language.source, f"launcher.{extension}"), made
        )

    return arrange


def _javascript(language: Language, parts: Parts, name: str) -> Arranged:
    """Leave out of the completion what the setup has required by the same line: they share a scope."""
    completion = _without_repeated(parts.completion, parts.setup, _REQUIRE)
    arrange = _interpreted("javascript.js", REPLACED=_replaced_by_tests(parts))
    return arrange(language, replace(parts, completion=completion), name)


def _replaced_by_tests(parts: Parts) -> str:
    return replaced_builtins(f"{parts.setup}\n{parts.tests}")


def _typescript(language: Language, parts: Parts, name: str) -> Arranged:
    assert language.compile is not None
    made = {"setup.ts": parts.setup, "solution.ts": parts.completion, "tests.ts": parts.tests}
    return Arranged(
        _replaced(language.compile, language.source, *made),
        _replaced(language.run, "solution.js", "launcher.js"),
        made,
        {"launcher.js": launcher_text("javascript.js", name, REPLACED=_replaced_by_tests(parts))},
    )


def _c(language: Language, parts: Parts, name: str) -> Arranged:
    """Include the parts in one file. Macros of the completion do not reach names in the tests."""
    assert language.compile is not None
    extension = language.source.rpartition(".")[2]
    words = sorted({*_IDENTIFIER.findall(parts.tests), *_C_WORDS})
    lines = [
        "#include <assert.h>",
        f'#include "setup.{extension}"',
        *_INCLUDE.findall(parts.tests),
        *(f'#pragma push_macro("{word}")' for word in words),
        f"#define main {name}",
        f'#include "solution.{extension}"',
        "#undef main",
        *(f'#pragma pop_macro("{word}")' for word in words),
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
    if _GO_PACKAGE.search(parts.completion):
        if _GO_IMPORT.sub("", parts.setup).strip():  # Go refuses imports without a use
            made["setup.go"] = _go_file(parts.setup)
        made["solution.go"] = solution
    else:
        made["solution.go"] = _go_file(f"{_go_setup(parts.setup, solution)}\n{solution}")
    made["tests.go"] = _go_file(_GO_MAIN.sub(f"func {name}tests()", parts.tests))
    return Arranged(_replaced(language.compile, language.source, *made), language.run, made)


def _go_setup(setup: str, completion: str) -> str:
    """Return the setup without the packages that the completion imports itself, in one file with it."""
    imported = {
        path for found in _GO_IMPORT.findall(completion) for path in _GO_IMPORTED.findall(found)
    }

    def left(found: re.Match[str]) -> str:
        each = [one[0] for one in _GO_IMPORTED.finditer(found[0][6:]) if one[1] not in imported]
        return "".join(f"import {one}\n" for one in each)

    return _GO_IMPORT.sub(left, setup)


def _without_repeated(text: str, other: str, line: re.Pattern[str]) -> str:
    """Return a text without those lines of this form that `other` has, too: they are left empty."""
    lines = {each.strip() for each in other.splitlines()}
    return line.sub(lambda found: "" if found[0].strip() in lines else found[0], text)


def _go_file(text: str) -> str:
    return text if _GO_PACKAGE.search(text) else f"package main\n{text}"


def _rust(language: Language, parts: Parts, name: str) -> Arranged:
    """Make the completion the crate, and launcher and tests its modules.

    They come before the completion's macros, which have no effect in them.
    """
    assert language.compile is not None
    inner = _RUST_INNER.match(parts.completion)
    at = inner.end() if inner else 0
    head, body = parts.completion[:at], _RUST_MAIN.sub(f"fn {name}_other", parts.completion[at:])
    setup = _without_repeated(parts.setup, parts.completion, _RUST_USE)
    declared = f'#[path = "tests.rs"]\nmod {name};\n#[path = "launcher.rs"]\nmod {name}_launcher;'
    main = f"fn main() -> ::std::process::ExitCode {{ {name}_launcher::main() }}"
    tests = RUST_MACRO_CALL.sub(r"::std::\1!", _RUST_MAIN.sub("pub fn main", parts.tests))
    made = {
        "launcher.rs": launcher_text("rust.rs", name),
        "solution.rs": f"#![allow(warnings)]\n{head}\n{setup}\n{declared}\n{body}\n{main}\n",
        "tests.rs": f"use super::*;\n{tests}\nuse ::std;\n{RUST_VARIANTS}\n",
    }
    return Arranged(language.compile, language.run, made)


def _java_shadows(completion: str, tests: str) -> tuple[str, str]:
    """Return two lists in Java: types that the completion may have in place of a library's, and packages.

    A class of the completion comes before a class that the tests import by `import package.*`.
    """
    types = set(_JAVA_TYPE.findall(completion)) & set(_IDENTIFIER.findall(tests))
    shadows = sorted(types - set(_JAVA_TYPE.findall(tests)))
    libraries = ("java.lang", *_JAVA_IMPORTED.findall(tests))
    return ", ".join(map(json.dumps, shadows)), ", ".join(map(json.dumps, libraries))


def java_checks(name: str, folder: str, package: str, completion: str, tests: str) -> str:
    """Return methods of a launcher: `checkClasses` is called before the tests.

    `folder`: of the compiled classes. `package`: that of the tests, with a dot at its end.
    """
    shadows, libraries = _java_shadows(completion, tests)
    return launcher_text(
        "java_checks.java",
        name,
        FOLDER=folder,
        PACKAGE=package,
        SHADOWS=shadows,
        LIBRARIES=libraries,
    )


def _java(language: Language, parts: Parts, name: str) -> Arranged:
    assert language.compile is not None
    made = {}
    for folder, text in (
        ("setup", parts.setup),
        ("solution", parts.completion),
        ("tests", parts.tests),
    ):
        if text.strip():
            made[f"{folder}/{java_names(text).file}.java"] = text
    main = java_names(parts.tests).main
    checks = java_checks(name, ".", package_of(main), parts.completion, parts.tests)
    made[f"launcher/{name}.java"] = launcher_text("java.java", name, MAIN=main, CHECKS=checks)
    compile_it = _replaced(language.compile, language.source, *made)
    return Arranged(compile_it, _replaced(language.run, "{main}", name), made)


def package_of(main: str) -> str:
    """Return `x.y.` for the class `x.y.Main`, and "" for a class without a package."""
    return main[: main.rfind(".") + 1]


def _kotlin(language: Language, parts: Parts, name: str) -> Arranged:
    assert language.compile is not None
    package = _JVM_PACKAGE.search(parts.tests)
    prefix = "" if package is None else f"{package[1]}."
    made = {
        "launcher.kt": launcher_text("kotlin.kt", name, MAIN=f"{prefix}TestsKt"),
        "setup.kt": parts.setup,
        "solution.kt": parts.completion,
        "tests.kt": _with_imports(parts.tests, [f"import kotlin.{each}" for each in _KOTLIN_NAMES]),
    }
    compile_it = _replaced(language.compile, language.source, *made)
    return Arranged(compile_it, _replaced(language.run, "{main}", name), made)


def _scala(language: Language, parts: Parts, name: str) -> Arranged:
    assert language.compile is not None
    main = scala_main(parts.tests)
    made = {
        "launcher.scala": launcher_text("scala.scala", name, MAIN=main, PACKAGE=package_of(main)),
        "setup.scala": parts.setup,
        "solution.scala": parts.completion,
        "tests.scala": parts.tests,
    }
    compile_it = _replaced(language.compile, language.source, *made)
    return Arranged(compile_it, _replaced(language.run, "{main}", name), made)


def _with_imports(source: str, imports: Sequence[str]) -> str:
    """Return a source with imports behind its package clause: imported names come before others."""
    package = _JVM_PACKAGE.search(source)
    at = 0 if package is None else package.end()
    if package is None and source.lstrip().startswith("@file"):
        return source
    return "\n".join((source[:at], *imports, source[at:]))


def _csharp(language: Language, parts: Parts, name: str) -> Arranged:
    assert language.compile is not None
    namespace = _CSHARP_NAMESPACE.search(parts.tests)
    main = _CSHARP_MAIN.search(parts.tests)
    classes = _JAVA_TYPE.findall(parts.tests[: main.start()] if main else parts.tests)
    main_class = classes[-1] if classes else DEFAULT_NAME
    if namespace is not None:
        main_class = f"{namespace[1]}.{main_class}"
    made = {
        "launcher.cs": launcher_text("csharp.cs", name, MAIN=main_class),
        "setup.cs": parts.setup,
        "solution.cs": parts.completion,
        "tests.cs": parts.tests,
    }
    compile_it = _replaced(language.compile, language.source, f"-main:{name}", *made)
    return Arranged(compile_it, language.run, made)


_ARRANGE: Mapping[Launcher, Callable[[Language, Parts, str], Arranged]] = {
    "bash": _interpreted("bash.sh"),
    "c": _c,
    "csharp": _csharp,
    "go": _go,
    "java": _java,
    "javascript": _javascript,
    "kotlin": _kotlin,
    "lua": _interpreted("lua.lua"),
    "perl": _interpreted("perl.pl"),
    "php": _interpreted("php.php"),
    "r": _interpreted("r.R"),
    "ruby": _interpreted("ruby.rb"),
    "rust": _rust,
    "scala": _scala,
    "typescript": _typescript,
}
