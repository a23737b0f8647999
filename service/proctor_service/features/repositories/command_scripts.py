"""Files of a repository run as programs by a test command. Pure.

Such files stand in the place of a program, are the script of a shell or an interpreter, or tell `make`, `npm`
and others the commands to run. Operands are excluded: honest changes edit the tested files. Names of absent
files count, too, if a command would read them: a new `GNUmakefile` replaces a `Makefile`. Paths may be
patterns: `for each in ci/*.sh; do . $each; done`.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from proctor_service.features.repositories import makefiles

MAX_DEPTH = 5
MAX_SCRIPT_BYTES = 64 * 1024
_SHELLS = frozenset(["bash", "sh", "dash", "zsh", "ksh", "source", "."])
_INTERPRETERS = re.compile(r"(?:python|pypy|node|ruby|perl|php|deno|bun|tsx|ts-node)[\d.]*$")
_WRAPPERS = frozenset(
    ["env", "exec", "time", "nice", "nohup", "sudo", "timeout", "xvfb-run", "stdbuf", "command", "setsid",
     "poetry", "pipenv", "uv", "pdm", "hatch", "rye", "coverage", "conda", "bundle", "run", "then", "do",
     "else", "if", "while", "!", "{", "(", "npx", "bunx", "yarn", "pnpm"]
)  # fmt: skip
"""Words before a program. `coverage run script.py` and `uv run script.py` run a script, too."""
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_ENDINGS_OF_NODE = ("js", "cjs", "mjs", "ts", "mts", "cts", "json", "coffee")
_READ_BY = {
    "make": _MAKEFILES,
    "gmake": _MAKEFILES,
    "tox": ("tox.ini",),
    "nox": ("noxfile.py",),
    "just": ("justfile", "Justfile", ".justfile"),
    "invoke": ("tasks.py", "tasks/__init__.py", "invoke.yaml", "invoke.json", "invoke.py"),
    "inv": ("tasks.py", "tasks/__init__.py", "invoke.yaml", "invoke.json", "invoke.py"),
    "doit": ("dodo.py",),
    "hatch": ("hatch.toml",),
    "ctest": ("CTestConfig.cmake",),
    "jasmine": ("spec/support/jasmine.json", "spec/support/jasmine.mjs", "spec/support/jasmine.js"),
    "nx": ("nx.json", "project.json"),
    "turbo": ("turbo.json",),
    "lerna": ("lerna.json",),
    "bun": ("bunfig.toml",),
    "deno": ("deno.json", "deno.jsonc"),
    **{
        name: tuple(f"{stem}.{ending}" for ending in _ENDINGS_OF_NODE)
        for name, stem in (
            ("grunt", "Gruntfile"),
            ("gulp", "gulpfile"),
            ("jake", "Jakefile"),
            ("karma", "karma.conf"),
            ("playwright", "playwright.config"),
            ("cypress", "cypress.config"),
            ("wtr", "web-test-runner.config"),
            ("web-test-runner", "web-test-runner.config"),
        )
    },
    "rake": ("rakefile", "Rakefile", "rakefile.rb", "Rakefile.rb"),
    "task": ("Taskfile.yml", "taskfile.yml", "Taskfile.yaml", "taskfile.yaml", "Taskfile.dist.yml"),
    "phpunit": ("phpunit.xml", "phpunit.xml.dist"),
    "mvnw": (".mvn/wrapper/maven-wrapper.properties", ".mvn/wrapper/maven-wrapper.jar"),
    "gradlew": ("gradle/wrapper/gradle-wrapper.properties", "gradle/wrapper/gradle-wrapper.jar"),
}
"""Files that a program reads to know what to run."""
PACKAGE_RUNNERS = frozenset(["npm", "yarn", "pnpm", "npx", "bun"])
_ENDS = frozenset([";", "&&", "||", "|", "&", "\n", ";;", "|&"])
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_VARIABLE = re.compile(r"^\$(?:\w+|\{[^}]*\}|\(.*\))/")
"""Matches `$HERE/`, `${TOP}/` and `$(dirname "$0")/`, which stand for the folder at hand."""
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+(\w[\w.]*)[ \t]+import|import[ \t]+([\w., \t]+))", re.M)
"""Matches `from config import X` and `import config, json`."""
_SETTINGS_OPTIONS = frozenset(
    ["-c", "--config", "--config-file", "--rcfile", "--rc", "-r", "--require", "--import", "--loader",
     "--bootstrap", "--configuration", "--setup", "--setupFiles", "--opts", "--env-file", "--init-script",
     "--globalSetup", "--setupFilesAfterEnv", "--preset", "--transform", "--reporter", "--reporters",
     "--testRunner", "--environment", "--file", "--preload"]
)  # fmt: skip
PARTLY_PROTECTED = frozenset(["pyproject.toml", "setup.cfg", "package.json"])
"""Files of which some keys alone are the task's: see `settings_keys`."""
_NEVER = frozenset(["setup.py"])
"""Scripts that honest changes edit."""

Read = Callable[[str], str | None]


def scripts_of(commands: Sequence[str], read: Read) -> frozenset[str]:
    """Return the paths of the files run by commands, including absent files.

    `read`: returns the text of a file of the base, or None.
    """
    found: dict[str, None] = {}
    seen: set[tuple[str, str]] = set()
    for command in commands:
        _collect(command, "", read, found, seen, MAX_DEPTH)
    return frozenset(found)


def programs_of(commands: Sequence[str]) -> frozenset[str]:
    """Return the names of the programs run by commands, without folders."""
    names = set()
    for command in commands:
        for words in simple_commands(command):
            names |= {posixpath.basename(words[at]) for at in _program_places(words)}
    return frozenset(names)


def _collect(
    command: str,
    folder: str,
    read: Read,
    found: dict[str, None],
    seen: set[tuple[str, str]],
    depth: int,
) -> None:
    if depth == 0 or (folder, command) in seen:
        return
    seen.add((folder, command))
    loops: dict[str, Sequence[str]] = {}
    for simple in simple_commands(command):
        if simple[0] == "for" and simple[2:3] == ["in"]:
            loops[simple[1]] = simple[3:]
            continue
        words = [each for word in simple for each in _values(word, loops)]
        if not words:
            continue
        if words[0] == "cd" and len(words) > 1:
            folder = _below(folder, words[1])
            continue
        for at in _program_places(words):
            for path, is_shell in _run_by(words, at, folder, read):
                if path in found or posixpath.basename(path) in _NEVER:
                    continue
                text = read(path)
                found[path] = None
                if text and is_shell and len(text) <= MAX_SCRIPT_BYTES:
                    _collect(text, folder, read, found, seen, depth - 1)
                if text and posixpath.basename(path) in _MAKEFILES:
                    found |= dict.fromkeys(_included(path, text, read, MAX_DEPTH))
            for inner in _inner_commands(words, at, folder, read):
                _collect(inner, folder, read, found, seen, depth - 1)


def _values(word: str, loops: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Return the words of the loop over the variable in this word, else the word."""
    return loops.get(word.strip("${}"), [word]) if word.startswith("$") else [word]


def imported_by(scripts: Collection[str], read: Read) -> frozenset[str]:
    """Return the files that scripts import from their folders; empty at the root and in a package."""
    found: set[str] = set()
    waiting = [each for each in scripts if each.endswith(".py")]
    while waiting:
        script = waiting.pop()
        folder = posixpath.dirname(script)
        is_source = folder in ("", "src", "lib") or read(f"{folder}/__init__.py") is not None
        text = None if is_source else read(script)
        for first, second in _IMPORT.findall((text or "")[:MAX_SCRIPT_BYTES]):
            for module in re.split(r"\s*,\s*", first or second):
                path = (
                    f"{folder}/{module.split()[0].partition('.')[0]}.py" if module.strip() else ""
                )
                if path and path not in found and read(path) is not None:
                    found.add(path)
                    waiting.append(path)
    return frozenset(found)


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
    """Return each possible program of a simple command, with the words behind the program."""
    return [words[at:] for at in _program_places(words)]


def _program_places(words: Sequence[str]) -> list[int]:
    """Return the places of possible programs: behind wrappers, their options and assignments."""
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
    joined = posixpath.normpath(posixpath.join(folder, _VARIABLE.sub("", path)))
    return "" if joined == "." else joined


def _included(makefile: str, text: str, read: Read, depth: int) -> Iterator[str]:
    """Yield the files included by a Makefile, below its folder or the folder of an included file."""
    folder = posixpath.dirname(makefile)
    for name in makefiles.included(text):
        path = _below(folder, name)
        yield path
        inner = read(path)
        if inner and depth > 1:
            yield from _included(posixpath.join(folder, "Makefile"), inner, read, depth - 1)


def _run_by(words: Sequence[str], at: int, folder: str, read: Read) -> Iterator[tuple[str, bool]]:
    """Yield the file of a program and the files run by the program, each with True for a shell script."""
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
            package = _below(folder, f"{module}/__init__.py")
            if read(package) is None:  # a new package would be imported before its `__main__`
                yield package, False
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
    """Yield the files of settings and of code named by options, such as `-c ci/pytest.ini`."""
    option_pairs = [*pairwise(words), *(each.partition("=")[::2] for each in words if "=" in each)]
    for option, value in option_pairs:
        if option in _SETTINGS_OPTIONS and value and not value.startswith("-"):
            for ending in ("", ".js", ".cjs", ".mjs", ".ts"):
                path = _below(folder, value + ending)
                if posixpath.basename(path) not in PARTLY_PROTECTED and read(path) is not None:
                    yield path
                    break


def _inner_commands(words: Sequence[str], at: int, folder: str, read: Read) -> Iterator[str]:
    """Yield the commands in an argument of a shell, and in the scripts of package.json."""
    name, rest = posixpath.basename(words[at]), words[at + 1 :]
    if name in _SHELLS:
        for option, value in pairwise(rest):
            if re.fullmatch(r"-[a-z]*c", option):
                yield value
    if name in ("make", "gmake"):
        where = next((v for o, v in pairwise(rest) if o in ("-C", "--directory")), "")
        for each in _MAKEFILES:
            text = read(_below(_below(folder, where), each))
            if text is not None:
                begin = f"cd {shlex.quote(where)}\n" if where else ""
                yield from (begin + line for line in makefiles.recipes(text, rest))
                break
    if name == "tox":
        yield from makefiles.tox_commands(read(_below(folder, "tox.ini")) or "")
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
