"""Test frameworks come from the image, and their functions stay as they were loaded."""

import os
import sys
import sysconfig
from importlib.machinery import PathFinder
from types import CodeType, FrameType
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Set

from .definitions import CHECKED_BUILTINS, Definitions, functions_below
from .records import Owner, code_of, plain_function

FROM_THE_LIBRARY = ("unittest", "doctest")
FROM_SITE_PACKAGES = ("pytest", "_pytest", "pluggy")
CHECKED_FOR_EACH_TEST = frozenset(
    [
        "_pytest.runner",
        "_pytest.reports.TestReport",
        "_pytest.python.Function",
        "_pytest.unittest.TestCaseFunction",
        "_pytest.doctest.DoctestItem",
        "pluggy._callers",
        "pluggy.callers",
        "unittest.case.TestCase",
        "unittest.case._Outcome",
        "doctest.OutputChecker",
    ]
)
"""Modules and classes that decide an outcome; all others are checked once for each test file."""


def functions_in(namespace: Any) -> List[str]:
    """The names in a module or class that have functions, methods or properties."""
    return [
        name
        for name, value in list(namespace.items())
        if code_of(value) or isinstance(value, (staticmethod, classmethod, property))
    ]


class Frameworks:
    """A finder for `sys.meta_path`, and the record of the functions of the frameworks it found.

    `when_loaded` is called with the name and module of each of the frameworks' modules.
    """

    def __init__(self, directory: str, changed: FrozenSet[str]) -> None:
        self.changed = changed
        self.codes: Set[CodeType] = set()
        self.definitions = Definitions(directory, self.is_of_submission)
        self.when_loaded: Callable[[str, Any], None] = lambda name, module: None
        self._here = os.path.basename(os.path.dirname(os.path.abspath(__file__)))
        self._owners: List[Owner] = []
        self._first_owners: List[Owner] = []
        self._paths: Dict[str, bool] = {}
        names = [*sorted(CHECKED_BUILTINS), "__build_class__"]
        self._first_owners.append(Owner(vars(sys.modules["builtins"]), names))

    def protect(self, *owners: Any) -> None:
        """Record functions of the observation itself, so that their replacement shows."""
        for each in owners:
            self._owners.append(Owner(vars(each), functions_in(vars(each))))

    def observe_loaded(self) -> None:
        """Observe the frameworks' modules that were loaded before this one."""
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] in FROM_THE_LIBRARY + FROM_SITE_PACKAGES:
                self._observe(name, module)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find a module of a framework where the image has it, whatever stands first on the path."""
        top = name.partition(".")[0]
        is_framework = top in FROM_THE_LIBRARY or top in FROM_SITE_PACKAGES
        if not is_framework and not self.definitions.is_of_tests(name):
            return None
        spec = None
        if is_framework and path is None:
            spec = PathFinder.find_spec(name, self._folders(top), target)
        if spec is None:
            spec = PathFinder.find_spec(name, path, target)
        is_watched = is_framework or self.definitions.is_below(getattr(spec, "origin", None))
        if is_watched and spec is not None and hasattr(spec.loader, "exec_module"):
            self._watch(spec, is_framework)
        return spec

    def _folders(self, top: str) -> List[str]:
        if top in FROM_THE_LIBRARY:
            return [sysconfig.get_path("stdlib")]
        return [each for each in sys.path if os.path.isdir(os.path.join(each, self._here))]

    def _watch(self, spec: Any, is_framework: bool) -> None:
        loader = spec.loader
        execute = loader.exec_module

        def observe_module(module: Any) -> None:
            execute(module)
            self._observe(spec.name, module)

        def run_tests_file(module: Any) -> None:
            path = loader.get_filename(spec.name)
            # compiled anew: a prepared cache of the file's code does not count
            code = loader.source_to_code(loader.get_data(path), path)
            exec(code, vars(module))
            self.definitions.record(path, vars(module), code)

        try:
            if is_framework:
                loader.exec_module = observe_module
            elif str(spec.origin).endswith(".py") and hasattr(loader, "source_to_code"):
                loader.exec_module = run_tests_file
        except AttributeError:  # a loader with fixed attributes, such as one of a zip file
            return

    def _observe(self, name: str, module: Any) -> None:
        if getattr(module, "__file__", None) in self.changed:
            return  # the repository is the framework itself
        self.when_loaded(name, module)
        self._record(name, vars(module))
        for each in list(vars(module).values()):
            if isinstance(each, type) and each.__module__ == name:
                self._record(name + "." + each.__name__, vars(each))

    def _record(self, name: str, namespace: Any) -> None:
        names = functions_in(namespace)
        self.codes.update(filter(None, [code_of(namespace[each]) for each in names]))
        if name in CHECKED_FOR_EACH_TEST:
            self._first_owners.append(Owner(namespace, names))
        elif names:
            self._owners.append(Owner(namespace, names))
            if "pytest_pyfunc_call" in names:
                self._first_owners.append(Owner(namespace, ["pytest_pyfunc_call"]))

    def is_changed(self, path: Any) -> bool:
        """Return True for the path of a file that the submission wrote."""
        answer = self._paths.get(path)
        if answer is None:
            answer = isinstance(path, str) and os.path.realpath(path) in self.changed
            self._paths[path] = answer
        return answer

    def is_of_submission(self, value: Any) -> bool:
        """Return True for a callable whose code a file of the submission has, or made."""
        code = code_of(value)
        if code is None:
            return False
        made_in = plain_function(value).__globals__.get("__file__")
        return self.is_changed(code.co_filename) or self.is_changed(made_in)

    def is_foreign(self, value: Any) -> bool:
        """Return True for a callable of the submission, one that no file has, or one without code."""
        code = code_of(value)
        if code is None or self.is_of_submission(value):
            return True
        has_file = plain_function(value).__globals__.get("__file__") is not None
        return not has_file and not code.co_filename.startswith("<frozen")

    def is_replaced(self, function: Any, definition: Any) -> bool:
        """Return True if a test is no more the one that its file defined, nor made of it by others."""
        value, code = definition
        if plain_function(function) is value:
            return code is not None and value.__code__ is not code
        below = functions_below(function)
        if not any(each is value and each.__code__ is code for each in below):
            return True
        return any(
            self.is_foreign(each) and not self.definitions.wrote(each.__code__) for each in below
        )

    def accept_changes(self) -> List[str]:
        """Record anew what installed plugins or unchanged files replaced; return the other names."""
        wrong = []
        for owner in self._first_owners + self._owners:
            if not owner.is_unchanged():
                foreign = [name for name, value in owner.changes() if self.is_foreign(value)]
                wrong += foreign
                if not foreign:
                    owner.accept()
        return wrong

    def first_change(self, is_thorough: bool) -> Optional[str]:
        """Return the name of a function that is no more as it was loaded, None if all are."""
        for owner in self._first_owners + (self._owners if is_thorough else []):
            if not owner.is_unchanged():
                return next(owner.changes(), ("a function", None))[0]
        return None

    def foreign_frame(self, frame: Optional[FrameType], outer: Set[FrameType]) -> bool:
        """Return True if the submission's code is among the callers up to the frames in `outer`."""
        while frame is not None and frame not in outer:
            if self.is_changed(frame.f_code.co_filename):
                return True
            frame = frame.f_back
        return False
