"""The task's files in a repository: files that decide how tests are found and run. Pure.

Folders of tests are found by the files listed or brought by the task, never by their bare names, since
`django/test` is source. Names such as `conftest.py` are protected in every folder, for the languages of the
kind of report and of the command's programs.
"""

from __future__ import annotations

import copy
import fnmatch
import posixpath
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

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
    b"sitecustomize*", b"usercustomize*", b"*.pth", b"*.dist-info", b"*.egg-info", b"*.egg-link",
    b".coveragerc", b".coveragerc.toml", b".python-version", b".env", b".env.test*", b".env.local",
    b"nose.cfg", b".noserc", b"nose2.cfg", b"unittest.cfg", b".stestr.conf", b".testr.conf",
)  # fmt: skip
_NODE_NAMES = (
    b".npmrc", b".yarnrc", b".yarnrc.yml", b".pnpmfile.cjs", b".mocharc*", b"jest.config*", b"jest.setup*",
    b"jest-preset*", b"vitest.config*", b"vitest.setup*", b"vitest.workspace*", b"vite.config*",
    b"babel.config*", b".babelrc*", b".swcrc", b".nycrc*", b".c8rc*", b".taprc", b"ava.config*",
    b"karma.conf*", b"node.config.json", b".node-version", b".nvmrc", b".env", b".env.test*", b".env.local",
    b"__mocks__", b"__snapshots__", b"*.snap", b"bunfig.toml", b"jest-environment*", b".jasmine*",
    b"playwright.config*", b"cypress.config*", b"web-test-runner.config*", b".pnp.*", b".yarn",
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
_PROGRAM_OF_A_RUN = re.compile(
    rb"(?:python|pypy|ruby|perl|php|node|lua)[\d.]*|(?:ba|da|z|k)?sh|env|pytest|py\.test|tox|nox|coverage|npm|npx"
    rb"|yarn|pnpm|bun|deno|jest|mocha|vitest|make|go|cargo|rustc|javac?|mvn|gradle|git|timeout|phpunit|rspec|ctest"
)
"""Matches `python3` and `bash`: a new one in a folder of PATH would run in place of the image's."""
_JVM_LIBRARIES = re.compile(
    rb"/(?:org/(?:junit|hamcrest|mockito|assertj|testng|opentest4j|spockframework)"
    rb"|junit/(?:framework|runner|extensions)|com/google/common/truth|kotlin/test|io/kotest|spock/lang)/"
)
"""Matches `/org/junit/` in `src/main/java/org/junit/Assert.java`, which hides the library's class."""
SIGNAL_FILES = (
    b"pom.xml", b"build.gradle", b"build.gradle.kts", b"settings.gradle", b"settings.gradle.kts",
    b"gradle.properties", b"Cargo.toml", b"build.rs", b"go.mod", b"CMakeLists.txt", b"composer.json",
    b"Gemfile",
)  # fmt: skip
"""Files that honest changes edit, and that tell a build which tests to run."""


@dataclass(frozen=True, slots=True)
class Protection:
    """Facts of a task for deciding which files are the task's.

    `report`: kind of report of the grader, such as "pytest". `listed`: names of tests. `brought`: paths of
    the task's own files (`files`, `test_patch`, `files_from`, `remove`). `command`: the test commands, each a
    text for a shell. `protect`: more patterns, as in a `.gitignore`. `writable`: patterns of files rewritten
    by tests, still protected from the submission. `reference`: paths changed by the reference. `collected`:
    patterns (fnmatch) of files with outcomes after a run. `python_path`, `path`: values of PYTHONPATH and
    PATH for the commands. `installed`: names of modules installed in the image.
    """

    report: str = "pytest"
    listed: Collection[str] = ()
    brought: Collection[bytes] = ()
    command: Sequence[str] = ()
    protect: Sequence[str] = ()
    writable: Sequence[str] = ()
    reference: Collection[bytes] = ()
    collected: Sequence[str] = ()
    python_path: str = ""
    path: str = ""
    installed: Collection[bytes] = ()


class Rules:
    """Returns for each path of a submission the reason for leaving the file out, by its path alone."""

    def __init__(self, base: Base, protection: Protection) -> None:
        self.base, self.protection = base, protection
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
        imported = command_scripts.imported_by(scripts, self._text)
        loaded = suite_files.files_of_settings(self._text)
        reference = {each.decode("utf-8", "surrogateescape") for each in protection.reference}
        script_folders = {
            posixpath.dirname(each).encode() for each in scripts if each.endswith(".py")
        }
        scripts |= (imported | loaded) - reference
        self._brought = frozenset(protection.brought)
        self._files = {*protection.brought, *found.files, *(each.encode() for each in scripts)}
        self._patterns_of_files = [
            re.compile(fnmatch.translate(each).encode("utf-8", "surrogateescape"))
            for each in (
                *protection.collected,
                *(each for each in scripts if set(each) & set("*?[")),
            )
        ]
        self._path_folders = _path_folders(protection.command, protection.path)
        self._searched = _SEARCHED_FOLDERS | _python_path(protection.command)
        self._searched |= _folders_in(protection.python_path.split(":"))
        self._searched |= {each + b"/" for each in script_folders if each}
        self._searched |= _folders_in(_python_path_of_settings(self._text))
        self._own_modules = {
            name.partition(b".")[0]
            for path in (*self._paths, *protection.reference)
            for name in path.split(b"/")
        }
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

    def with_installed(self, modules: Collection[bytes]) -> Rules:
        """Return the rules of an image with these installed modules."""
        rules = copy.copy(self)
        rules.protection = replace(self.protection, installed=modules)
        return rules

    def has_keys_of(self, name: bytes) -> bool:
        """Return True for a file of settings read by runs of this kind."""
        kind = self.protection.report
        own = {b"Cargo.toml": "cargo", b"go.mod": "go", b"composer.json": "junit"}[name]
        return kind == own or kind in _ANY_KINDS

    def _content(self, path: bytes) -> bytes | None:
        state = self.base.state(path) if path in self._paths else None
        return None if state is None or state.mode == "link" else state.content

    def _text(self, path: str) -> str | None:
        content = self._content(path.encode("utf-8", "surrogateescape"))
        return None if content is None else content.decode("utf-8", "replace")

    def reason(self, path: bytes) -> Reason | None:
        """Return the reason for leaving a path out; None for a crossing path. See ReasonOf of `applying`."""
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
        is_foreign = is_new and path not in self.protection.reference
        if is_foreign and self._is_shadowing(path, names):
            return "shadows_the_runner"
        if self.is_protected(path):
            is_test = is_new and self._collection.has_test_name(path) and path not in self._files
            return "new_test" if is_test else "protected"
        if not is_foreign:
            return None
        if self._collection.collects(path):
            return "new_test"
        return "ignored" if self._ignored.is_ignored(path) else None

    def text(self, path: str) -> str | None:
        """Return the text of a regular file of the base; None if absent."""
        return self._text(path)

    def rank_in_run(self, path: bytes, *, is_setting: bool) -> int | None:
        """Return how surely a file decides about a run, 0 the most; None for a file outside the task.

        0: a test listed or brought by the task, or a script of its command. 1: settings of the runner, if
        `is_setting`. 2: another file of the tests.
        """
        if path in self._files:
            return 0
        if is_setting and self.is_protected(path):
            return 1
        is_test = path.startswith(self._folders) or self._collection.is_test_by_name(path)
        return 2 if is_test else None

    def is_ignored(self, path: bytes) -> bool:
        """Return True for a file ignored by git, such as a product of a build."""
        return self._ignored.is_ignored(path)

    def _is_in_environment(self, names: list[bytes], path: bytes) -> bool:
        if any(each in _ENVIRONMENTS for each in names):
            return True
        return bool(self._environments) and any(
            parent + b"/" in self._environments for parent in parents(path)
        )

    def is_protected(self, path: bytes) -> bool:
        """Return True for a file of the task, and for a file in the place of a folder of the task's files."""
        if path in self._files or path in self._above or path.startswith(self._folders):
            return True
        if any(map(self._names.match, path.split(b"/"))):
            return True
        if self.protection.report == "go" and _TEST_LIBRARIES.match(path):
            return True
        if _CARGO_FILE.search(path) or self._collection.is_test_by_name(path):
            return True
        if any(pattern.match(path) for pattern in self._patterns_of_files):
            return True
        return bool(self.protection.protect) and self._protected.is_ignored(path)

    def _is_shadowing(self, path: bytes, names: list[bytes]) -> bool:
        """Return True for a new module loaded in place of a module of the runner or of a library."""
        if path in self._brought:
            return False
        folder, _, name = path.rpartition(b"/")
        if folder in self._path_folders and _PROGRAM_OF_A_RUN.fullmatch(name):
            return True
        if self.has_python and (self._shadows(names) or self._shadows_installed(path)):
            return True
        if self.protection.report not in ("junit", "script", "exit_code"):
            return False
        found = _JVM_LIBRARIES.search(b"/" + path)
        return found is not None and not any(found[0] in b"/" + each for each in self._paths)

    def _shadows_installed(self, path: bytes) -> bool:
        """Return True for a new top-level module named like an installed module that tests may use."""
        for folder in self._searched:
            if not path.startswith(folder):
                continue
            module = path[len(folder) :].partition(b"/")[0]
            if module.endswith((b".py", b".so")):
                module = module.partition(b".")[0]
            elif module == path[len(folder) :]:
                continue
            if module in self.protection.installed and module not in self._own_modules:
                return True
        return False

    def _shadows(self, names: list[bytes]) -> bool:
        """Return True for a new top-level module of a runner's name, in a folder without `__init__.py`.

        In the folders surely searched by Python, the names of its own modules count, too.
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
    """Return an expression for whole names matching any of these patterns with `*` at most."""
    escaped = (b".*".join(map(re.escape, each.split(b"*"))) for each in patterns)
    return re.compile(b"(?:" + b"|".join(escaped) + rb")\Z", re.DOTALL)


def _python_path(commands: Sequence[str]) -> set[bytes]:
    """Return the folders of PYTHONPATH in commands, with a slash at their ends."""
    values = re.findall(r"\bPYTHONPATH=[\"']?([^\s\"';&|]+)", "\n".join(commands))
    return _folders_in(folder for value in values for folder in value.split(":"))


def _path_folders(commands: Sequence[str], path: str) -> set[bytes]:
    """Return the folders of PATH that may be the repository's, without a slash at their ends."""
    values = [path, *re.findall(r"\bPATH=[\"']?([^\s\"';&|]+)", "\n".join(commands))]
    folders = (folder for value in values for folder in value.split(":"))
    return {each.rstrip(b"/") for each in _folders_in(folders)}


def _folders_in(folders: Iterable[str]) -> set[bytes]:
    found = set()
    for folder in filter(None, folders):
        path = posixpath.normpath(folder).removeprefix("/")
        found.add(b"" if path == "." else path.encode("utf-8", "surrogateescape") + b"/")
    return found


def _python_path_of_settings(read: Callable[[str], str | None]) -> list[str]:
    """Return the folders named by pytest's setting `pythonpath`."""
    found = []
    for name in ("pyproject.toml", "pytest.ini", ".pytest.ini", "setup.cfg", "tox.ini"):
        text = (read(name) or "")[: suite_files.MAX_SETTINGS_CHARACTERS]
        for value in re.findall(r"^pythonpath[ \t]*=[ \t]*(\[[^\]]*\]|[^\n]*)", text, re.M):
            found += re.findall(r"[\w./-]+", value)
    return found


def _spellings(module: bytes) -> Iterator[bytes]:
    yield module + b".py"
    yield module + b"/__init__.py"
