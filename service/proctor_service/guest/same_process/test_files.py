"""The grader's files as Python modules: imported from their text, whatever lies on the disk.

A submission that brings files could otherwise have its own taken in their place: a package or an
extension module of a test file's name, a forged `.pyc`, a path hook. All are compiled before anything
of the submission runs, and what became of each import can be asked afterwards.

Until it is opened, it lets nothing else be imported from where the submission may write, whatever
`sys.path` holds by then.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.machinery import (
    BuiltinImporter,
    FrozenImporter,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
)
from typing import Any

from .. import work_files
from .comparison_policy import Comparing

_NEVER = ("antigravity", "this", "sys", "builtins")
_namespace_of = vars(types.ModuleType)["__dict__"].__get__


class Files:
    """A finder for `sys.meta_path`. A file is found where it stands, by its name, as ever.

    `rewrite` has its way with each syntax tree first, then `comparing`.
    """

    def __init__(
        self,
        files: dict[str, str],
        directory: str,
        rewrite: Callable[[ast.Module, bytes, str], None],
        comparing: Comparing,
    ) -> None:
        self._directory = directory
        self._writable = os.path.dirname(directory) + "/"
        self._codes: dict[str, types.CodeType | Exception] = {}
        self._parts: set[int] = set()
        self._run: list[dict[str, Any]] = []
        self._open = False
        self.imports: set[str] = set()
        for name, text in files.items():
            if name.endswith(".py"):
                path = f"{directory}/{name}"
                self._codes[path] = self._compiled(text, path, rewrite, comparing)
        for code in self._codes.values():
            if isinstance(code, types.CodeType):
                note(code, self._parts)
        self._names = {_module_name(path) for path in self._codes}

    def _compiled(
        self,
        text: str,
        path: str,
        rewrite: Callable[[ast.Module, bytes, str], None],
        comparing: Comparing,
    ) -> types.CodeType | Exception:
        source = work_files.to_bytes(text)
        try:
            tree = ast.parse(source, path)
            self.imports.update(imported(tree))
            rewrite(tree, source, path)
            comparing.into(tree)
            code: types.CodeType = compile(tree, path, "exec", dont_inherit=True)
            return comparing.embed(code)
        except Exception as error:
            return error

    def __contains__(self, path: object) -> bool:
        return path in self._codes

    def open(self) -> None:
        """From now on the submission's own modules are found as well."""
        self._open = True
        sys.path.append(self._directory)

    def wrote(self, code: types.CodeType) -> bool:
        """Tell whether this code stands in one of the files: it, and none that is like it."""
        return id(code) in self._parts

    def broken(self, names: Sequence[str]) -> str | None:
        """What is wrong with the text of one of these files; None when all of them are Python."""
        for name in names:
            code = self._codes.get(os.path.abspath(name))
            if isinstance(code, Exception):
                return f"{os.path.basename(name)}: {type(code).__name__}: {code}"
        return None

    def raised(self, error: BaseException) -> bool:
        """Tell whether an exception came out of one of the files."""
        entry = error.__traceback__
        while entry is not None:
            code, entry = entry.tb_frame.f_code, entry.tb_next
            if self.wrote(code):
                return True
        return error.__cause__ is not None and self.raised(error.__cause__)

    def filled(self, module: object) -> bool:
        """Tell whether one of the files was run in this module."""
        try:
            namespace = _namespace_of(module)
        except TypeError:
            return False
        return self.ran(namespace)

    def ran(self, namespace: object) -> bool:
        """Tell whether one of the files was run in these globals."""
        return any(each is namespace for each in self._run)

    def import_libraries(self) -> list[types.ModuleType]:
        """The libraries' modules that the files import, loaded; before the submission can be.

        What the submission brings under the name of a standard module is not found by the tests.
        """
        return import_libraries(self.imports, self._names)

    def run(self, path: str, module: types.ModuleType) -> None:
        """Runs a file in a module. Raises what is wrong with its text."""
        code = self._codes[path]
        if isinstance(code, Exception):
            raise code
        self._run.append(module.__dict__)
        module.__dict__["__builtins__"] = builtins  # and not ours
        exec(code, module.__dict__)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        """The import system's question."""
        entries = [entry for entry in (sys.path if path is None else path) if type(entry) is str]
        if self._open:
            return self._own(name, entries)
        return self._guarded(name, path, entries)

    def _own(self, name: str, entries: list[str]) -> ModuleSpec | None:
        """The order of the path holds, also for what is not ours."""
        last = name.rpartition(".")[2]
        if last not in self._names:
            return None
        for entry in entries:
            for suffix, is_package in (("/__init__.py", True), (".py", False)):
                file = f"{os.path.abspath(entry)}/{last}{suffix}"
                if file in self._codes:
                    return self._spec(name, file, is_package)
            other = PathFinder.find_spec(name, [entry])
            if other is not None and other.loader is not None:
                return None
        return None

    def _guarded(self, name: str, path: Sequence[str] | None, entries: list[str]) -> ModuleSpec:
        found = BuiltinImporter.find_spec(name) or FrozenImporter.find_spec(name)
        if found is None:
            found = self._own(name, entries if path is not None else [*entries, self._directory])
        if found is None:
            found = PathFinder.find_spec(name, [e for e in entries if not self._is_writable(e)])
        if found is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return found

    def _is_writable(self, entry: str) -> bool:
        return f"{os.path.realpath(entry)}/".startswith(self._writable)

    def _spec(self, name: str, file: str, is_package: bool) -> ModuleSpec:
        loader = _Loader(name, file)
        loader.files = self
        spec = ModuleSpec(name, loader, origin=file, is_package=is_package)
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [os.path.dirname(file)]
        return spec


class _Loader(SourceFileLoader):
    files: Files

    def exec_module(self, module: types.ModuleType) -> None:
        self.files.run(self.path, module)


def import_libraries(names: Iterable[str], own: Iterable[str]) -> list[types.ModuleType]:
    """Those of the modules that are there and are nobody's own, loaded.

    `own`: names of modules that are the tests'. Where Python does not tell its standard modules (before
    3.10), what the submission brings is its own.
    """
    standard: frozenset[str] = getattr(sys, "stdlib_module_names", frozenset())
    found = []
    for name in sorted(names):
        top = name.partition(".")[0]
        brought = top in own or any(map(os.path.lexists, (top, f"{top}.py")))
        if name not in _NEVER and (top in standard or not brought):
            try:
                found.append(importlib.import_module(name))
            except Exception:
                continue
    return found


def speak_of(word: str, texts: Iterable[str]) -> bool:
    """Tell whether a word occurs in any of the texts."""
    return any(word in text for text in texts)


def note(code: types.CodeType, parts: set[int]) -> None:
    """Adds the ids of a code and of all code in it."""
    parts.add(id(code))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            note(constant, parts)


def imported(tree: ast.Module) -> Iterator[str]:
    """The modules that a file imports by their full names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _module_name(path: str) -> str:
    directory, _, file = path.rpartition("/")
    return directory.rpartition("/")[2] if file == "__init__.py" else file[: -len(".py")]
