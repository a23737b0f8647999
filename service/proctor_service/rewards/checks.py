"""Checks of fields that pydantic cannot make: languages of graders, tags, and paths of files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NoReturn

from proctor_client.wire import (
    CommandGrader,
    Compiler,
    ExecGrader,
    Grader,
    PytestGrader,
    StdioGrader,
)
from proctor_service.errors import InvalidRequest
from proctor_service.features.languages.runner_tools import RUNNER_LANGUAGES
from proctor_service.settings.languages import PYTHON

ANY_LANGUAGE_KINDS = ("exec", "stdio", "command")
MOST_FILES = 1000
LONGEST_TAG_CHARACTERS = 256
LONGEST_PATH_BYTES = 1024
LONGEST_NAME_BYTES = 255
LONGEST_ARGV_BYTES = 100_000
_DEFINE = re.compile(r"[A-Za-z_]\w*(?:=[\w.+-]*)?", re.ASCII)
"""Macros: `LOCAL`, `N=5`, `EPS=1e-9`; not `f(x)=x` or `A=1;`."""
_STANDARDS = (
    *("c11", "c17", "gnu11", "gnu17"),
    *(f"{kind}++{year}" for kind in ("c", "gnu") for year in (11, 14, 17, 20, 23)),
)
COMPILER_FLAGS = (
    *(f"-std={each}" for each in _STANDARDS),
    *("-O0", "-O1", "-O2", "-O3", "-Os", "-g", "-Wall", "-Wextra", "-lm", "-pthread"),
)
"""Flags that a request may ask of gcc and g++: none reads or writes other files, or loads code."""
DEEPEST_PATH = 64
"""Each folder of each file is checked and made."""


def check_language(grader: Grader, language: str, where: str, *, has_launcher: bool) -> None:
    """Raise InvalidRequest for a language that the grader cannot judge.

    `has_launcher`: whether the language takes tests apart from the submission, as Python does.
    """
    if language != PYTHON and grader.kind not in ANY_LANGUAGE_KINDS:
        kinds = ", ".join(ANY_LANGUAGE_KINDS)
        raise InvalidRequest(
            f"{where}: {grader.kind} judges python only; for others there are: {kinds}"
        )
    if isinstance(grader, CommandGrader) and grader.runner is not None:
        wanted = RUNNER_LANGUAGES[grader.runner]
        if language != wanted:
            raise InvalidRequest(
                f"{where}: the runner {grader.runner} judges {wanted}, not {language}"
            )
    is_apart = isinstance(grader, ExecGrader) and (grader.setup or grader.tests)
    if is_apart and language != PYTHON and not has_launcher:
        raise InvalidRequest(f"{where}: {language} takes no tests apart from the submission")


def check_judges_code(grader: Grader, where: str) -> None:
    """Raise InvalidRequest for a grader that needs a sandbox in place of a completion."""
    if grader.kind == "harbor":
        raise InvalidRequest(
            f"{where}.grader: harbor judges the files of a sandbox: /rollout, or "
            "/sandboxes/{id}/grade"
        )


def check_tags(tags: Sequence[str]) -> None:
    """Raise InvalidRequest for a tag that is too long."""
    for index, tag in enumerate(tags):
        if len(tag) > LONGEST_TAG_CHARACTERS:
            raise InvalidRequest(f"tags.{index}: longer than {LONGEST_TAG_CHARACTERS} characters")


def refuse_compiler(where: str) -> NoReturn:
    """Raise InvalidRequest for options of a compiler with another language, such as that of an agent."""
    raise InvalidRequest(f"{where}: for c and cpp alone")


def check_compiler(compiler: Compiler, dialect: str | None, where: str) -> None:
    """Raise InvalidRequest for options that are not allowed, or that the language does not take.

    `dialect`: of gcc, for this language.
    """
    allowed = COMPILER_FLAGS
    if dialect is None:
        refuse_compiler(where)
    standards = [each.removeprefix("-std=") for each in allowed if each.startswith("-std=")]
    standards = [each for each in standards if ("++" in each) == ("++" in dialect)]
    if compiler.standard is not None and compiler.standard not in standards:
        text = f"no {compiler.standard!a} here, only: {', '.join(standards)}"
        raise InvalidRequest(f"{where}.standard: {text}")
    for index, flag in enumerate(compiler.flags):
        if flag not in allowed or flag.startswith("-std="):
            flags = ", ".join(each for each in allowed if not each.startswith("-std="))
            raise InvalidRequest(f"{where}.flags.{index}: no {flag[:64]!a} here, only: {flags}")
    for index, define in enumerate(compiler.defines):
        if not _DEFINE.fullmatch(define):
            text = f"{define[:64]!a} is not a name, or a name, `=` and a simple value"
            raise InvalidRequest(f"{where}.defines.{index}: {text}")


def check_files_of(grader: Grader, where: str) -> None:
    """Raise InvalidRequest for paths and arguments in a grader that no sandbox takes."""
    if isinstance(grader, PytestGrader | CommandGrader):
        check_files(grader.files, f"{where}.files")
    elif isinstance(grader, StdioGrader):
        for index, case in enumerate(grader.cases):
            at = f"{where}.cases.{index}"
            if case.files:
                check_files(case.files, f"{at}.files")
            if case.output_file is not None:
                check_files({case.output_file: ""}, f"{at}.output_file")
            if case.argv:
                _check_argv(case.argv, f"{at}.argv")


def _check_argv(argv: Sequence[str], where: str) -> None:
    try:
        size = len("".join(argv).encode())
    except UnicodeEncodeError:
        raise InvalidRequest(f"{where}: a lone surrogate is no argument") from None
    if size > LONGEST_ARGV_BYTES or any("\0" in each for each in argv):
        raise InvalidRequest(
            f"{where}: longer than {LONGEST_ARGV_BYTES} bytes, or with a zero byte"
        )


def check_files(files: Mapping[str, str], where: str) -> None:
    """Raise InvalidRequest unless every path stays inside the working directory."""
    if len(files) > MOST_FILES:
        raise InvalidRequest(f"{where}: {len(files)} files, and at most {MOST_FILES} are taken")
    for path in files:
        wrong = _wrong_with(path)
        if wrong:
            raise InvalidRequest(f"{where}: {ascii(path)[:200]} {wrong}")
    for path in files:
        parent = path.rpartition("/")[0]
        while parent:
            if parent in files:
                raise InvalidRequest(f"{where}: {parent!a} is both a file and a folder")
            parent = parent.rpartition("/")[0]


def _wrong_with(path: str) -> str | None:
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "is not a valid path"
    parts = path.split("/")
    if path.startswith("/"):
        return "is not relative"
    if ".." in parts:
        return "leads out of the working directory"
    if not path or "\0" in path or "" in parts or "." in parts:
        return "is not a plain path"
    if len(parts) > DEEPEST_PATH:
        return "has too many folders"
    if len(encoded) > LONGEST_PATH_BYTES or max(map(len, encoded.split(b"/"))) > LONGEST_NAME_BYTES:
        return "is too long"
    return None
