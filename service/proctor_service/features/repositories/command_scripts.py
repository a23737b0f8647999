"""Files of a repository that a test command runs as programs. Pure.

A file is one if it stands in the place of a program, is the script of a shell or an interpreter, or is what
`make`, `npm` and others read to know what to run. Operands are none: honest changes edit what tests test.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

MAX_DEPTH = 3
MAX_SCRIPT_BYTES = 64 * 1024
_SHELLS = frozenset(["bash", "sh", "dash", "zsh", "ksh", "source", "."])
_INTERPRETERS = re.compile(r"(?:python|pypy|node|ruby|perl|php|deno|bun|tsx|ts-node)[\d.]*$")
_WRAPPERS = frozenset(
    ["env", "exec", "time", "nice", "nohup", "sudo", "timeout", "xvfb-run", "stdbuf", "command", "setsid",
     "poetry", "pipenv", "uv", "pdm", "hatch", "rye", "coverage", "conda", "bundle", "run", "then", "do",
     "else", "if", "while", "!", "{", "("]
)  # fmt: skip
"""Words before a program. `coverage run script.py` and `uv run script.py` run a script, too."""
_READ_BY = {
    "make": ("Makefile", "makefile", "GNUmakefile"),
    "gmake": ("Makefile", "makefile", "GNUmakefile"),
    "tox": ("tox.ini",),
    "nox": ("noxfile.py",),
    "just": ("justfile", "Justfile", ".justfile"),
    "invoke": ("tasks.py",),
    "rake": ("Rakefile",),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "phpunit": ("phpunit.xml", "phpunit.xml.dist"),
    "mvnw": (".mvn/wrapper/maven-wrapper.properties", ".mvn/wrapper/maven-wrapper.jar"),
    "gradlew": ("gradle/wrapper/gradle-wrapper.properties", "gradle/wrapper/gradle-wrapper.jar"),
}
"""Files that a program reads to know what to run."""
PACKAGE_RUNNERS = frozenset(["npm", "yarn", "pnpm", "npx", "bun"])
_ENDS = frozenset([";", "&&", "||", "|", "&", "\n", ";;", "|&"])
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_SETTINGS_OPTIONS = frozenset(
    ["-c", "--config", "--config-file", "--rcfile", "--rc", "-r", "--require", "--import", "--loader",
     "--bootstrap", "--configuration", "--setup", "--setupFiles", "--opts", "--env-file", "--init-script"]
)  # fmt: skip
_PARTLY_PROTECTED = frozenset(["pyproject.toml", "setup.cfg", "package.json"])
"""Files of which some keys alone are the task's: see `settings_keys`."""
_NEVER = frozenset(["setup.py"])
"""Scripts that honest changes edit."""

Read = Callable[[str], str | None]


def scripts_of(commands: Sequence[str], read: Read) -> frozenset[str]:
    """Return the paths of the files that commands run. `read`: text of a file of the base, or None."""
    found: dict[str, None] = {}
    for command in commands:
        _collect(command, "", read, found, MAX_DEPTH)
    return frozenset(found)


def programs_of(commands: Sequence[str]) -> frozenset[str]:
    """Return the names of the programs that commands run, without folders."""
    names = set()
    for command in commands:
        for words in simple_commands(command):
            names |= {posixpath.basename(words[at]) for at in _program_places(words)}
    return frozenset(names)


def _collect(command: str, folder: str, read: Read, found: dict[str, None], depth: int) -> None:
    for words in simple_commands(command):
        if words[0] == "cd" and len(words) > 1:
            folder = _below(folder, words[1])
            continue
        for at in _program_places(words):
            for path, is_shell in _run_by(words, at, folder, read):
                if path in found or posixpath.basename(path) in _NEVER:
                    continue
                text = read(path)
                if text is None:
                    continue
                found[path] = None
                if is_shell and depth > 1 and len(text) <= MAX_SCRIPT_BYTES:
                    _collect(text, folder, read, found, depth - 1)
            if depth > 1:
                for inner in _inner_commands(words, at, folder, read):
                    _collect(inner, folder, read, found, depth - 1)


def simple_commands(command: str) -> Iterator[list[str]]:
    """Yield the words of each simple command of a shell's text."""
    for line in command.replace("\\\n", " ").split("\n")[:2000]:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();&|")
        lexer.commenters, lexer.whitespace_split = "#", True
        words: list[str] = []
        try:
            for word in lexer:
                if word in _ENDS or not word.strip("();&|"):
                    if words:
                        yield words
                    words = []
                else:
                    words.append(word)
        except ValueError:  # an open quote: the text goes on in the next line
            words = line.split()
        if words:
            yield words


def programs_with_operands(words: Sequence[str]) -> list[Sequence[str]]:
    """Return each word of a simple command that may be its program, with the words behind it."""
    return [words[at:] for at in _program_places(words)]


def _program_places(words: Sequence[str]) -> list[int]:
    """Return the places of words that may be the program: behind wrappers, their options and assignments."""
    found: list[int] = []
    at = 0
    while at < len(words):
        word = words[at]
        name = posixpath.basename(word)
        if _ASSIGNMENT.match(word) or (found and (word.startswith("-") or word[:1].isdigit())):
            at += 1
            continue
        found.append(at)
        if name not in _WRAPPERS:
            break
        at += 1
    return found


def _below(folder: str, path: str) -> str:
    joined = posixpath.normpath(posixpath.join(folder, path))
    return "" if joined == "." else joined


def _run_by(words: Sequence[str], at: int, folder: str, read: Read) -> Iterator[tuple[str, bool]]:
    """Yield the files that the program at a place is, or runs, and whether each is a shell's script."""
    program, rest = words[at], words[at + 1 :]
    name = posixpath.basename(program)
    path = _below(folder, program)
    if "/" in program or read(path) is not None:
        yield path, True
    if name in _SHELLS or _INTERPRETERS.match(name):
        is_shell = name in _SHELLS
        if not is_shell and "-m" in rest[:-1]:
            module = rest[rest.index("-m") + 1].replace(".", "/")
            for ending in (".py", "/__main__.py"):
                yield _below(folder, module + ending), False
        elif "-c" not in rest:
            script = next((each for each in rest if not each.startswith("-")), None)
            if script is not None:
                yield _below(folder, script), is_shell
    yield from ((path, False) for path in _of_options(rest, folder, read))
    where = folder
    for option, value in pairwise(rest):
        if option in ("-C", "--directory", "--prefix", "--cwd"):
            where = _below(folder, value)
        if option in ("-f", "--file", "--makefile", "-c") and name in _READ_BY:
            yield _below(folder, value), False
    for read_file in _READ_BY.get(name, ()):
        yield _below(where, read_file), False


def _of_options(words: Sequence[str], folder: str, read: Read) -> Iterator[str]:
    """Yield the files of settings and of code that options name, such as `-c ci/pytest.ini`."""
    option_pairs = [*pairwise(words), *(each.partition("=")[::2] for each in words if "=" in each)]
    for option, value in option_pairs:
        if option in _SETTINGS_OPTIONS and value and not value.startswith("-"):
            for ending in ("", ".js", ".cjs", ".mjs", ".ts"):
                path = _below(folder, value + ending)
                if posixpath.basename(path) not in _PARTLY_PROTECTED and read(path) is not None:
                    yield path
                    break


def _inner_commands(words: Sequence[str], at: int, folder: str, read: Read) -> Iterator[str]:
    """Yield the commands in an argument of a shell, and in the scripts of package.json."""
    name, rest = posixpath.basename(words[at]), words[at + 1 :]
    if name in _SHELLS:
        for option, value in pairwise(rest):
            if re.fullmatch(r"-[a-z]*c", option):
                yield value
    if name in PACKAGE_RUNNERS:
        text = read(_below(folder, "package.json"))
        try:
            parsed = json.loads(text or "{}")
            scripts = parsed.get("scripts", {}) if isinstance(parsed, dict) else {}
        except (ValueError, RecursionError):
            return
        if isinstance(scripts, dict):
            called = {word for word in rest if not word.startswith("-")} | {"test"}
            for script in tuple(called):
                called |= {f"pre{script}", f"post{script}"}
            yield from (str(scripts[each]) for each in sorted(called) if each in scripts)
