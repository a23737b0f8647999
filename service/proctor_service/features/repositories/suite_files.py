"""Files of tests in a repository: listed by a task, in folders of tests, or collected by a runner. Pure."""

from __future__ import annotations

import configparser
import json
import posixpath
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from proctor_service.features.repositories import command_scripts
from proctor_service.features.repositories.ignore_rules import NamePattern

FOLDER_NAMES = frozenset([b"tests", b"test", b"testing", b"__tests__", b"spec", b"specs"])
_MAYBE_SOURCE = frozenset([b"test", b"testing", b"spec", b"specs"])
"""Names that folders of source have, too, such as `django/test`."""
_WORDS_IN_FOLDER_NAMES = frozenset(
    [
        b"test",
        b"tests",
        b"testsuite",
        b"unittest",
        b"unittests",
        b"spec",
        b"specs",
        b"e2e",
        b"checks",
        b"check",
        b"qa",
        b"regression",
        b"regressions",
    ]
)
"""Words of other folders of tests, such as `unit_tests`; they count where no name above is on the way."""
_PYTEST_NAMES = (b"test_*.py", b"*_test.py")
_UNITTEST_NAMES = (b"test_*.py", b"*_test.py", b"tests.py")
_NODE_ENDINGS = (b"js", b"cjs", b"mjs", b"jsx", b"ts", b"cts", b"mts", b"tsx", b"vue", b"coffee")
_NODE_NAMES = tuple(
    form + ending
    for ending in _NODE_ENDINGS
    for form in (b"*.test.", b"*.spec.", b"*-test.", b"*_test.", b"test-*.", b"test.")
)
_JVM_NAMES = tuple(
    form + ending
    for ending in (b"java", b"kt", b"groovy", b"scala", b"php")
    for form in (b"*Test.", b"Test*.", b"*Tests.", b"*TestCase.", b"*Spec.", b"*IT.")
)
_GO_NAMES = (b"*_test.go",)
_NAMES = {
    "pytest": _PYTEST_NAMES,
    "unittest": _UNITTEST_NAMES,
    "django": _UNITTEST_NAMES,
    "sympy": _PYTEST_NAMES,
    "go": _GO_NAMES,
    "cargo": (),
    "junit": (*_JVM_NAMES, b"*_test.cc", b"*_test.cpp", b"*_spec.rb", b"*_test.rb"),
    **dict.fromkeys(("jest", "vitest", "mocha", "node"), _NODE_NAMES),
}
_OTHER_KINDS = _PYTEST_NAMES + _NODE_NAMES + _GO_NAMES
LONGEST_NAME = 4096
MAX_SETTINGS_CHARACTERS = 256 * 1024
_WITH_CLASS = re.compile(r"\(([\w.]+)\)\s*$")
"""Finds `admin_views.tests.AdminTest` in `test_save (admin_views.tests.AdminTest)`."""

Read = Callable[[str], str | None]


def names_of_kind(kind: str) -> tuple[bytes, ...]:
    """Return the usual patterns of names of test files for a kind of report."""
    return _NAMES.get(kind, _OTHER_KINDS)


@dataclass(frozen=True, slots=True)
class FoundTests:
    """Files of tests. `is_guess`: found by their names, since the task lists and brings no file."""

    files: frozenset[bytes]
    is_guess: bool = False


def found_tests(
    kind: str, listed: Collection[str], brought: Collection[bytes], paths: Collection[bytes]
) -> FoundTests:
    """Return the test files named by tests and by brought files."""
    index = _ByLastName([*paths, *brought])
    patterns = compiled(names_of_kind(kind))
    with_classes = patterns + compiled(_JVM_NAMES)
    found = {
        file
        for name in listed
        for file in _files_of(name, index)
        if _is_test_like(file, with_classes) or not _is_source(name, file)
    }
    tests = found | {path for path in brought if _is_test_like(path, patterns)}
    if tests:
        return FoundTests(frozenset(tests))
    guessed = {path for path in paths if has_name(path, patterns)}
    return FoundTests(frozenset(guessed), is_guess=True)


class _ByLastName:
    """Paths by their last component."""

    def __init__(self, paths: Iterable[bytes]) -> None:
        self._paths: dict[bytes, list[bytes]] = {}
        for path in paths:
            self._paths.setdefault(path.rpartition(b"/")[2], []).append(path)

    def find(self, path: bytes) -> bytes | None:
        """Return this path, or else the only path ending with it; None for zero or several paths."""
        options = self._paths.get(path.rpartition(b"/")[2], [])
        if path in options:
            return path
        below = {each for each in options if each.endswith(b"/" + path)}
        return below.pop() if len(below) == 1 else None


def _files_of(name: str, index: _ByLastName) -> Iterator[bytes]:
    """Yield the file named by a test: by a path, a module, or a class."""
    if len(name) > LONGEST_NAME:
        return
    path = name.partition("::")[0].partition(" > ")[0].strip()
    whole = index.find(path.encode("utf-8", "surrogateescape"))
    if whole is not None:
        yield whole
        return
    with_class = _WITH_CLASS.search(name)
    dotted = with_class[1] if with_class else name.partition("[")[0].partition(" ")[0]
    parts = re.split(r"[.#$/]|::", dotted)
    if not all(part.isidentifier() for part in parts[:1]):
        return
    for count in range(len(parts), 0, -1):
        stem = "/".join(parts[:count])
        for ending in (".py", ".java", ".kt", ".groovy", ".scala", ".php"):
            found = index.find((stem + ending).encode("utf-8", "surrogateescape"))
            if found is not None:
                yield found
                return


def _is_source(name: str, file: bytes) -> bool:
    """Return True if a name means a file open for the change: with a doctest, or a class beside tests.

    Names of doctests are `units/length.py::units.length.to_metres` and `units.length.to_metres`.
    """
    path, _, item = name.partition("::")
    if path.strip().encode("utf-8", "surrogateescape") == file[-len(path.strip()) :]:
        return file.endswith(b".py") and "." in item.partition("[")[0]
    if not file.endswith(b".py"):
        return True
    return not re.split(r"[.:\s]", name.partition("[")[0].partition(" ")[0])[-1].startswith("test")


def compiled(patterns: Sequence[bytes]) -> list[NamePattern]:
    return [NamePattern(each) for each in patterns]


def has_name(path: bytes, patterns: Sequence[NamePattern]) -> bool:
    """Return True if any of the patterns matches the last component of a path."""
    last = path.rpartition(b"/")[2]
    return any(pattern.matches(last) for pattern in patterns)


def _is_test_like(path: bytes, patterns: Sequence[NamePattern]) -> bool:
    folders = path.split(b"/")[:-1]
    return has_name(path, patterns) or not FOLDER_NAMES.isdisjoint(folders)


def folders_of(
    found: FoundTests, reference: Collection[bytes], brought: Collection[bytes]
) -> list[bytes]:
    """Return the folders of tests: the outermost folder with such a name above each file.

    `testing` counts only without another such folder in the path: `numpy/testing` is source, and
    `numpy/testing/tests` is a folder of tests. A folder `test` is source, too, if the reference changes files
    in it beyond the brought files. For guessed files, the innermost folder counts.
    """
    source = {path for path in reference if path not in brought}
    folders: dict[bytes, None] = {}
    refused = set()
    for path in sorted(found.files):
        parts = path.split(b"/")
        depths = [depth for depth, part in enumerate(parts[:-1]) if part in FOLDER_NAMES]
        depths = [each for each in depths if parts[each] != b"testing"] or depths
        depths = depths or [at for at, part in enumerate(parts[:-1]) if _has_word_of_tests(part)]
        for depth in reversed(depths) if found.is_guess else depths:
            folder = b"/".join(parts[: depth + 1])
            if folder in folders:
                break
            if folder in refused:
                continue
            is_maybe = parts[depth] in _MAYBE_SOURCE or parts[depth] not in FOLDER_NAMES
            is_source = is_maybe and any(each.startswith(folder + b"/") for each in source)
            if not is_source:
                folders[folder] = None
                break
            refused.add(folder)
    return list(folders)


def _has_word_of_tests(name: bytes) -> bool:
    return not _WORDS_IN_FOLDER_NAMES.isdisjoint(re.split(rb"[_.-]", name.lower()))


_NODE_SETTINGS = tuple(
    stem + ending
    for stem in (
        *("jest.config", "vitest.config", "vitest.workspace", "vite.config", "ava.config"),
        *("babel.config", ".babelrc", "karma.conf", "playwright.config", "cypress.config"),
    )
    for ending in ("", ".js", ".cjs", ".mjs", ".ts", ".mts", ".json")
)
_MOCHA_SETTINGS = (".mocharc.js", ".mocharc.cjs", ".mocharc.json", ".mocharc.yml", ".mocharc.yaml")
_VALUE = r"""["']?\s*:\s*(\[[^\]]{0,2000}\]|["'][^"'\n]{1,300}["']|\{[^{}]{0,2000}\})"""
_NODE_KEY = re.compile(
    r"\b(?:setupFiles(?:AfterEnv)?|setupTestFrameworkScriptFile|globalSetup|globalTeardown|testEnvironment|"
    rf"reporters|testRunner|testSequencer|testResultsProcessor|snapshotSerializers){_VALUE}"
)
"""Matches `setupFilesAfterEnv: ["<rootDir>/config/jest/setup.js"]`."""
_NODE_TOOL_KEY = re.compile(
    r"\b(?:transform|resolver|runner|preset|presets|plugins|extends|dependencyExtractor|snapshotResolver|"
    rf"filter){_VALUE}"
)
"""Matches `transform: {"^.+$": "<rootDir>/scripts/compile.js"}`."""
_MOCHA_KEY = re.compile(
    rf"\b(?:require|file|reporter|ui)(?:{_VALUE}|:((?:\s{{0,40}}-?\s{{0,40}}[^\s:\[\"']{{1,200}}(?=\n|\Z)){{1,20}}))"
)
"""Matches `"require": ["./test/setup.js"]`, and the lines of YAML for it."""


_LOADED = re.compile(
    r"""(?:\brequire\(|\bimport\(|\bfrom|\bimport)\s*["'](\.{1,2}/[^"'\n]{1,300})["']"""
)
"""Matches `require("./config/jest.base")` and `import base from "../jest.base.js"`."""
_SOURCE_FOLDERS = frozenset(
    ["src", "lib", "source", "app", "dist", "packages", "plugin", "plugins", "presets"]
)
"""Folders whose files are no settings, though settings may load them: a plugin's load its own source."""
_WORD_OF_SETTINGS = re.compile(
    r"jest|vite|babel|mocha|karma|config|setup|test|preset|transform|environment|reporter"
)
"""Words of files of settings at the repository's root, where sources such as `index.js` may lie, too."""


def files_of_settings(read: Read) -> frozenset[str]:
    """Return the files loaded into a run by the settings of JavaScript runners at the repository's root."""
    texts = [(_NODE_KEY, read(name)) for name in _NODE_SETTINGS]
    texts += [(_MOCHA_KEY, read(name)) for name in _MOCHA_SETTINGS]
    try:
        package = json.loads(read("package.json") or "{}")
        texts.append((_NODE_KEY, json.dumps(package.get("jest"))))
        texts.append((_MOCHA_KEY, json.dumps(package.get("mocha"))))
    except (ValueError, RecursionError, AttributeError):
        pass
    found: set[str] = set()
    for pattern, text in texts:
        found |= _named_by(pattern, text, read)
        if pattern is _NODE_KEY:
            tools = _named_by(_NODE_TOOL_KEY, text, read)
            found |= {each for each in tools if not _may_be_source(each)}
    for name in (*_NODE_SETTINGS, *_MOCHA_SETTINGS, *tuple(found)):
        found |= _loaded_by(name, read, 3)
    return frozenset(found)


def _named_by(key: re.Pattern[str], text: str | None, read: Read) -> set[str]:
    """Return the files named by the values of keys."""
    found = set()
    for match in key.finditer((text or "")[:MAX_SETTINGS_CHARACTERS]):
        for word in re.findall(r"[\w@<>./-]+", " ".join(filter(None, match.groups()))):
            found |= _existing(word, read)
    return found


def _may_be_source(path: str) -> bool:
    *folders, name = path.split("/")
    if not folders:
        return _WORD_OF_SETTINGS.search(name) is None
    return not _SOURCE_FOLDERS.isdisjoint(folders)


def _loaded_by(name: str, read: Read, depth: int) -> set[str]:
    """Return the files loaded by a file of settings, directly or through loaded files."""
    found: set[str] = set()
    for match in _LOADED.finditer((read(name) or "")[:MAX_SETTINGS_CHARACTERS]):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), match[1]))
        if posixpath.basename(path) not in command_scripts.PARTLY_PROTECTED:
            existing = {each for each in _existing(path, read) if not _may_be_source(each)}
            for each in existing - found:
                found |= {each}
                found |= _loaded_by(each, read, depth - 1) if depth > 1 else set()
    return found


def _existing(word: str, read: Read) -> set[str]:
    """Return the file meant by a name in JavaScript's settings, if the repository has the file."""
    path = posixpath.normpath(word.removeprefix("<rootDir>/"))
    for ending in ("", ".js", ".cjs", ".mjs", ".ts", ".tsx", "/index.js"):
        if "." in posixpath.basename(path + ending) and read(path + ending) is not None:
            return {path + ending}
    return set()


# ---------------------------------------------------------------- what a runner collects

_BENIGN = frozenset(
    ["cd", "export", "source", ".", "conda", "echo", "set", "mkdir", "true", "git", "pip", "pip3", "unset",
     "ulimit", "locale-gen", "rm", "cp", "ln", "printf", "test", "activate"]
)  # fmt: skip
"""Programs beside the runner that collect no tests."""


class CollectionRule:
    """Tells of new files whether the runner would collect them."""

    def __init__(
        self, kind: str, command: Sequence[str], read: Read, paths: Collection[bytes]
    ) -> None:
        self._kind, self._paths = kind, paths
        names = _python_files(read) if kind == "pytest" else ()
        self._patterns = compiled(names_of_kind(kind) + names)
        self._roots = _collected_roots(command, paths, kind)

    def has_test_name(self, path: bytes) -> bool:
        return has_name(path, self._patterns)

    def is_test_by_name(self, path: bytes) -> bool:
        """Return True for a test by its language's rule, in any folder."""
        if self._kind == "go":
            return path.endswith(b"_test.go") or b"testdata" in path.split(b"/")[:-1]
        if self._kind == "junit":
            return b"/src/test/" in b"/" + path
        if self._kind == "cargo":
            before, mark, _ = (b"/" + path).partition(b"/tests/")
            return (
                bool(mark)
                and f"{before.decode('latin-1')[1:]}/Cargo.toml".lstrip("/").encode("latin-1")
                in self._paths
            )
        return False

    def collects(self, path: bytes) -> bool:
        """Return True if the runner would collect a new file at this path."""
        if not self.has_test_name(path):
            return False
        return self._roots is None or any(
            root == b"" or path == root or path.startswith(root + b"/") for root in self._roots
        )


def _python_files(read: Read) -> tuple[bytes, ...]:
    """Return the patterns of `python_files` in the settings of pytest."""
    found: list[str] = []
    for name in ("pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg"):
        section = "tool:pytest" if name == "setup.cfg" else "pytest"
        text = read(name)
        if text:
            parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
            try:
                parser.read_string(text)
                found += parser.get(section, "python_files", fallback="").split()
            except (configparser.Error, AttributeError):
                continue
    try:
        tools = tomllib.loads(read("pyproject.toml") or "").get("tool", {})
        value = tools.get("pytest", {}).get("ini_options", {}).get("python_files", [])
        found += value.split() if isinstance(value, str) else map(str, value)
    except (ValueError, RecursionError, AttributeError, TypeError):
        pass
    return tuple(each.encode() for each in found if "/" not in each)


def _collected_roots(
    command: Sequence[str], paths: Collection[bytes], kind: str
) -> tuple[bytes, ...] | None:
    """Return the files and folders named by the commands for pytest's collection; None for anything."""
    if kind != "pytest":
        return None
    roots: list[bytes] = []
    for text in command:
        folder = ""
        for words in command_scripts.simple_commands(text):
            if words[0] == "cd" and len(words) == 2:
                folder = posixpath.normpath(posixpath.join(folder, words[1]))
                continue
            place = next((at for at, each in enumerate(words) if _is_pytest(each)), None)
            if place is None:
                if posixpath.basename(words[0]) in _BENIGN:
                    continue
                return None
            found = list(_operands(words[place + 1 :], folder, paths))
            if not found or "--pyargs" in words or any(each in "$`*" for each in "".join(words)):
                return None
            roots += found
    return tuple(roots) or None


def _is_pytest(word: str) -> bool:
    return posixpath.basename(word) in ("pytest", "py.test")


def _operands(words: Sequence[str], folder: str, paths: Collection[bytes]) -> Iterator[bytes]:
    """Yield the operands naming files or folders of the repository."""
    for word in words:
        path = posixpath.normpath(posixpath.join(folder, word.partition("::")[0]))
        name = path.encode("utf-8", "surrogateescape")
        if word.startswith("-"):
            continue
        if path == ".":
            yield b""
        elif name in paths or any(each.startswith(name + b"/") for each in paths):
            yield name
