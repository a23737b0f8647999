"""The grader's files as Python modules, imported from their text and independent of the disk.

Otherwise a submission with files could replace the grader's: by a package or extension module with
a test file's name, a forged `.pyc`, or a path hook. All files are compiled before any code of the
submission runs, and each import can be checked afterwards.

Before `open()`, the finder blocks imports from directories that the submission can write, for any
`sys.path`.
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
    """Finder for `sys.meta_path`; files keep their usual names and places.

    `rewrite` transforms each syntax tree first, then `comparing`.
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
        """Allow imports of the submission's own modules from now on."""
        self._open = True
        sys.path.append(self._directory)

    def wrote(self, code: types.CodeType) -> bool:
        """Tell whether a code object belongs to the files, by identity."""
        return id(code) in self._parts

    def broken(self, names: Sequence[str]) -> str | None:
        """Return the compile error of the first invalid file, or None if all are valid."""
        for name in names:
            code = self._codes.get(os.path.abspath(name))
            if isinstance(code, Exception):
                return f"{os.path.basename(name)}: {type(code).__name__}: {code}"
        return None

    def raised(self, error: BaseException) -> bool:
        """Tell whether an exception passed through the files."""
        entry = error.__traceback__
        while entry is not None:
            code, entry = entry.tb_frame.f_code, entry.tb_next
            if self.wrote(code):
                return True
        return error.__cause__ is not None and self.raised(error.__cause__)

    def filled(self, module: object) -> bool:
        """Tell whether any of the files ran in this module."""
        try:
            namespace = _namespace_of(module)
        except TypeError:
            return False
        return self.ran(namespace)

    def ran(self, namespace: object) -> bool:
        """Tell whether any of the files ran in these globals."""
        return any(each is namespace for each in self._run)

    def import_libraries(self) -> list[types.ModuleType]:
        """Import the library modules used by the files, before the submission can be imported.

        Tests then get the standard modules, even if the submission has modules with the same names.
        """
        return import_libraries(self.imports, self._names)

    def run(self, path: str, module: types.ModuleType) -> None:
        """Run a file in a module. Raises the file's compile error."""
        code = self._codes[path]
        if isinstance(code, Exception):
            raise code
        self._run.append(module.__dict__)
        module.__dict__["__builtins__"] = builtins  # the real builtins instead of this module's
        exec(code, module.__dict__)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        """Implement the finder interface of the import system."""
        entries = [entry for entry in (sys.path if path is None else path) if type(entry) is str]
        if self._open:
            return self._own(name, entries)
        return self._guarded(name, path, entries)

    def _own(self, name: str, entries: list[str]) -> ModuleSpec | None:
        """Find a file of the grader; other modules earlier on the path take precedence."""
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
    """Import the modules in `names` that come from Python or a library; return the existing ones.

    `own`: module names of the tests. Before Python 3.10 the standard modules are unknown; then any
    name brought by the submission is skipped.
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


def note(code: types.CodeType, parts: set[int]) -> None:
    """Add the ids of a code object and of all nested code objects."""
    parts.add(id(code))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            note(constant, parts)


def imported(tree: ast.Module) -> Iterator[str]:
    """Iterate over the full names of the modules imported by a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _module_name(path: str) -> str:
    directory, _, file = path.rpartition("/")
    return directory.rpartition("/")[2] if file == "__init__.py" else file[: -len(".py")]
