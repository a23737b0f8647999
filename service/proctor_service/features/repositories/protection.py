"""Which files of a repository are the task's, since they decide how its tests are found and run. Pure.

Folders of tests are found by the files that the task lists or brings, never by their bare names, since
`django/test` is source. Names such as `conftest.py` are protected wherever they lie, for the languages that
the kind of report and the programs of the command belong to.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from proctor_service.features.repositories import command_scripts, suite_files
from proctor_service.features.repositories.applying import parents
from proctor_service.features.repositories.change import Base, Reason, is_possible
from proctor_service.features.repositories.ignore_rules import IgnoreRules, rules_of

PYTHON_KINDS = frozenset(["pytest", "unittest", "django", "sympy"])
NODE_KINDS = frozenset(["jest", "vitest", "mocha", "node"])
_ANY_KINDS = frozenset(["script", "exit_code", "junit"])
_PYTHON_PROGRAMS = frozenset(["pytest", "py.test", "tox", "nox"])

_PYTHON_NAMES = (
    b"conftest.py", b"pytest.ini", b".pytest.ini", b"pytest.toml", b".pytest.toml", b"tox.ini", b"tox.toml",
    b"sitecustomize.py", b"usercustomize.py", b"*.pth", b"*.dist-info", b"*.egg-info", b"*.egg-link",
    b".coveragerc", b".coveragerc.toml", b".python-version", b".env", b".env.test*", b".env.local",
)  # fmt: skip
_NODE_NAMES = (
    b".npmrc", b".yarnrc", b".yarnrc.yml", b".pnpmfile.cjs", b".mocharc*", b"jest.config*", b"jest.setup*",
    b"jest-preset*", b"vitest.config*", b"vitest.setup*", b"vitest.workspace*", b"vite.config*",
    b"babel.config*", b".babelrc*", b".swcrc", b".nycrc*", b".c8rc*", b".taprc", b"ava.config*",
    b"karma.conf*", b"node.config.json", b".node-version", b".nvmrc", b".env", b".env.test*", b".env.local",
)  # fmt: skip
_OTHER_NAMES = (
    b".tool-versions", b"mise.toml", b".mise.toml", b"rust-toolchain*", b"go.work", b"go.work.sum", b".mvn",
    b"junit-platform.properties", b"nextest.toml", b"phpunit.xml*",
    b".rspec", b"CTestTestfile.cmake", b"CTestCustom.cmake",
)  # fmt: skip
_CARGO_FILE = re.compile(rb"(?:^|/)\.cargo/config[^/]*$")
_CACHES = (b"__pycache__", b".pytest_cache")
_ENVIRONMENTS = (b".venv", b"node_modules", b".tox", b".nox")
_RUNNER_MODULES = frozenset(
    [b"pytest", b"_pytest", b"pluggy", b"iniconfig", b"exceptiongroup", b"tomli", b"xdist", b"execnet",
     b"unittest", b"pytest_cov"]
)  # fmt: skip
"""Top-level modules of the runners; a new one in a folder that Python searches would be imported first."""
_IMPORTED_BEFORE = (
    frozenset(each.encode() for each in sys.stdlib_module_names)
    | {b"packaging", b"pygments", b"colorama", b"attr", b"attrs", b"py", b"coverage"}
) - {b"test", b"this", b"antigravity", b"turtledemo", b"idlelib"}
"""Modules that a runner imports, or may, before it reads any test."""
_SEARCHED_FOLDERS = frozenset([b"", b"src/", b"lib/", b"python/"])
"""Folders in which Python looks for top-level modules, with those of PYTHONPATH in the command."""
_TEST_LIBRARIES = re.compile(
    rb"^vendor/(?:modules\.txt$|.*(?:testify|gomega|ginkgo|go-cmp|gotest\.tools|quicktest|goconvey|check\.v1)/)"
)
"""Matches `vendor/github.com/stretchr/testify/assert/assertions.go`, which decides what a test asserts."""
SIGNAL_FILES = (
    b"pom.xml", b"build.gradle", b"build.gradle.kts", b"settings.gradle", b"settings.gradle.kts",
    b"gradle.properties", b"Cargo.toml", b"build.rs", b"go.mod", b"CMakeLists.txt", b"composer.json",
    b"Gemfile",
)  # fmt: skip
"""Files that honest changes edit, and that tell a build which tests to run."""


@dataclass(frozen=True, slots=True)
class Protection:
    """Facts of a task that decide which files are the task's.

    `report`: kind of report of the grader, such as "pytest". `listed`: names of tests. `brought`: paths of
    the task's own files (`files`, `test_patch`, `files_from`, `remove`). `command`: the test commands, each
    a text for a shell. `protect`: more patterns, as in a `.gitignore`. `writable`: patterns of files that
    tests rewrite, which stay protected from the submission. `reference`: paths that the reference changes.
    """

    report: str = "pytest"
    listed: Collection[str] = ()
    brought: Collection[bytes] = ()
    command: Sequence[str] = ()
    protect: Sequence[str] = ()
    writable: Sequence[str] = ()
    reference: Collection[bytes] = ()


class Rules:
    """Tells for each path of a submission why it does not cross, by its path alone."""

    def __init__(self, base: Base, protection: Protection) -> None:
        self._base, self._protection = base, protection
        self._paths = base.paths()
        kind = protection.report
        programs = command_scripts.programs_of(protection.command)
        self.has_python = kind in PYTHON_KINDS | _ANY_KINDS or bool(programs & _PYTHON_PROGRAMS)
        self.has_node = kind in NODE_KINDS | _ANY_KINDS or bool(
            programs & command_scripts.PACKAGE_RUNNERS
        )
        scripts = command_scripts.scripts_of(protection.command, self._text)
        found = suite_files.found_tests(
            protection.report, protection.listed, protection.brought, self._paths
        )
        scripts |= suite_files.files_of_settings(self._text)
        self._files = {*protection.brought, *found.files, *(each.encode() for each in scripts)}
        self._searched = _SEARCHED_FOLDERS | _python_path(protection.command)
        self._folders = tuple(
            folder + b"/"
            for folder in suite_files.folders_of(
                found, frozenset(protection.reference), protection.brought
            )
        )
        self._above = {parent for path in self._files for parent in parents(path)}
        self._above |= {parent for folder in self._folders for parent in parents(folder)}
        self._collection = suite_files.CollectionRule(
            kind, protection.command, self._text, self._paths
        )
        self._ignored = IgnoreRules(self._content)
        self._environments = {
            path.removesuffix(b"pyvenv.cfg")
            for path in self._paths
            if path.endswith(b"/pyvenv.cfg")
        }
        patterns = _PYTHON_NAMES * self.has_python + _NODE_NAMES * self.has_node + _OTHER_NAMES
        self._names = _one_of(patterns)
        self._protected = rules_of(protection.protect)

    def _content(self, path: bytes) -> bytes | None:
        state = self._base.state(path) if path in self._paths else None
        return None if state is None or state.mode == "link" else state.content

    def _text(self, path: str) -> str | None:
        content = self._content(path.encode("utf-8", "surrogateescape"))
        return None if content is None else content.decode("utf-8", "replace")

    def reason(self, path: bytes) -> Reason | None:
        """Return why a path does not cross; None for one that does. See ReasonOf of `applying`."""
        if not is_possible(path):
            return "outside"
        names = path.split(b"/")
        if any(each.lower() == b".git" for each in names):
            return "git"
        if any(each in _CACHES for each in names) or names[-1].endswith((b".pyc", b".pyo")):
            return "cache"
        if self._is_in_environment(names, path):
            return "environment"
        is_new = path not in self._paths
        if self.is_protected(path):
            is_test = is_new and self._collection.has_test_name(path) and path not in self._files
            return "new_test" if is_test else "protected"
        if not is_new or path in self._protection.reference:
            return None
        if self.has_python and self._shadows(names):
            return "shadows_the_runner"
        if self._collection.collects(path):
            return "new_test"
        return "ignored" if self._ignored.is_ignored(path) else None

    def _is_in_environment(self, names: list[bytes], path: bytes) -> bool:
        if any(each in _ENVIRONMENTS for each in names):
            return True
        return bool(self._environments) and any(
            parent + b"/" in self._environments for parent in parents(path)
        )

    def is_protected(self, path: bytes) -> bool:
        """Return True for a file of the task, and for one in the place of a folder of such files."""
        if path in self._files or path in self._above or path.startswith(self._folders):
            return True
        if any(map(self._names.match, path.split(b"/"))):
            return True
        if self._protection.report == "go" and _TEST_LIBRARIES.match(path):
            return True
        if _CARGO_FILE.search(path) or self._collection.is_test_by_name(path):
            return True
        return bool(self._protection.protect) and self._protected.is_ignored(path)

    def _shadows(self, names: list[bytes]) -> bool:
        """Return True for a new top-level module of a runner's name, in a folder that is no package.

        In the folders that Python surely searches, the names of its own modules count, too.
        """
        for depth, name in enumerate(names):
            is_file = depth == len(names) - 1
            module = (
                name.partition(b".")[0] if name.endswith((b".py", b".so")) and is_file else name
            )
            if module not in _RUNNER_MODULES and module not in _IMPORTED_BEFORE:
                continue
            folder = b"".join(each + b"/" for each in names[:depth])
            is_module = module != name if is_file else names[depth + 1].startswith(b"__init__.")
            is_early = is_module and module in _IMPORTED_BEFORE and folder in self._searched
            if not is_early and module not in _RUNNER_MODULES:
                continue
            if folder + b"__init__.py" in self._paths:
                continue
            if not any(each in self._paths for each in _spellings(folder + module)):
                return True
        return False


def _one_of(patterns: Collection[bytes]) -> re.Pattern[bytes]:
    """Return an expression for whole names that match one of these patterns with `*` at most."""
    escaped = (b".*".join(map(re.escape, each.split(b"*"))) for each in patterns)
    return re.compile(b"(?:" + b"|".join(escaped) + rb")\Z", re.DOTALL)


def _python_path(commands: Sequence[str]) -> set[bytes]:
    """Return the folders of PYTHONPATH in commands, with a slash at their ends."""
    found = set()
    for value in re.findall(r"\bPYTHONPATH=[\"']?([^\s\"';&|]+)", "\n".join(commands)):
        for folder in value.split(":"):
            path = posixpath.normpath(folder).removeprefix("/")
            found.add(b"" if path == "." else path.encode("utf-8", "surrogateescape") + b"/")
    return found


def _spellings(module: bytes) -> Iterator[bytes]:
    yield module + b".py"
    yield module + b"/__init__.py"
