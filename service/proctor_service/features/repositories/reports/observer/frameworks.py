"""Test frameworks come from the image, and their functions stay as they were loaded."""

import os
import sys
import sysconfig
from importlib.machinery import PathFinder
from types import CodeType, FrameType, FunctionType
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Set, Tuple

from .definitions import Definitions

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
CHECKED_BUILTINS = frozenset(
    [
        each.__name__
        for each in (
            AssertionError, BaseException, Exception, abs, all, any, bool, bytes, dict, enumerate,
            filter, float, frozenset, getattr, hasattr, hash, id, int, isinstance, issubclass, iter,
            len, list, map, max, min, next, object, range, repr, reversed, round, set, sorted, str,
            sum, tuple, type, vars, zip,
        )
    ]
)  # fmt: skip
"""What tests compare with; other built-ins are replaced for good reasons, such as `print`."""

Recorded = Tuple[Dict[str, Any], Any, str, Any, Optional[CodeType]]
"""A namespace, its class or None, a name in it, the value when it was loaded, and its code."""


def code_of(value: Any) -> Optional[CodeType]:
    """The code of a function, method or property; None for what is not made of Python code."""
    value = getattr(value, "__func__", value)
    value = getattr(value, "fget", value)
    code = getattr(value, "__code__", None)
    return code if isinstance(code, CodeType) else None


class Frameworks:
    """A finder for `sys.meta_path`, and the record of the functions of the frameworks it found.

    `when_loaded` is called with the name and module of each of the frameworks' modules.
    """

    def __init__(self, directory: str, changed: FrozenSet[str]) -> None:
        self.changed = changed
        self.definitions = Definitions(directory)
        self.when_loaded: Callable[[str, Any], None] = lambda name, module: None
        self._here = os.path.basename(os.path.dirname(os.path.abspath(__file__)))
        self._records: List[Recorded] = []
        self._first_records: List[Recorded] = []
        self._paths: Dict[str, bool] = {}
        names = vars(sys.modules["builtins"])
        self._records += [(names, None, n, names[n], None) for n in CHECKED_BUILTINS]
        self._first_records += self._records

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
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._watch(spec, is_framework)
        return spec

    def _folders(self, top: str) -> List[str]:
        if top in FROM_THE_LIBRARY:
            return [sysconfig.get_path("stdlib")]
        return [each for each in sys.path if os.path.isdir(os.path.join(each, self._here))]

    def _watch(self, spec: Any, is_framework: bool) -> None:
        loader = spec.loader
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            if is_framework:
                self._observe(spec.name, module)
            else:
                self.definitions.record(vars(module).get("__file__"), vars(module), None)

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a loader with fixed attributes, such as one of a zip file
            return

    def _observe(self, name: str, module: Any) -> None:
        if getattr(module, "__file__", None) in self.changed:
            return  # the repository is the framework itself
        self.when_loaded(name, module)
        self._record(name, vars(module), None)
        for each in list(vars(module).values()):
            if isinstance(each, type) and each.__module__ == name:
                self._record(name + "." + each.__name__, vars(each), each)

    def _record(self, name: str, namespace: Any, owner: Any) -> None:
        for key, value in list(namespace.items()):
            code = code_of(value)
            if code is None and not isinstance(value, (staticmethod, classmethod, property)):
                continue
            record = (namespace, owner, key, value, code)
            self._records.append(record)
            if name in CHECKED_FOR_EACH_TEST or key == "pytest_pyfunc_call":
                self._first_records.append(record)

    def is_changed(self, path: Any) -> bool:
        """Return True for the path of a file that the submission wrote."""
        answer = self._paths.get(path)
        if answer is None:
            answer = isinstance(path, str) and os.path.realpath(path) in self.changed
            self._paths[path] = answer
        return answer

    def is_foreign(self, value: Any) -> bool:
        """Return True for a callable whose code the submission wrote, or that has no code."""
        code = code_of(value)
        if code is None:
            return True
        path: Any = code.co_filename
        if path.startswith("<") and not path.startswith("<frozen"):  # made by exec
            function = getattr(value, "fget", getattr(value, "__func__", value))
            path = getattr(function, "__globals__", {}).get("__file__")
            return path is None or self.is_changed(path)
        return self.is_changed(path)

    def is_replaced(self, function: Any, definition: Any) -> bool:
        """Return True if a test is no more the one that its file defined, nor made of it by others."""
        value, code = definition
        if getattr(function, "__func__", function) is value:
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
        for records in (self._records, self._first_records):
            for i, (namespace, owner, name, value, code) in enumerate(records):
                now = namespace.get(name)
                if now is value and code_of(now) is code:
                    continue
                if self.is_foreign(now):
                    wrong.append(name)
                else:
                    records[i] = (namespace, owner, name, now, code_of(now))
        return wrong

    def first_change(self, is_thorough: bool) -> Optional[str]:
        """Return the name of a function that is no more as it was loaded, None if all are."""
        for namespace, _, name, value, code in (
            self._records if is_thorough else self._first_records
        ):
            now = namespace.get(name)
            if now is not value or (code is not None and code_of(now) is not code):
                return name
        return None

    def foreign_frame(self, frame: Optional[FrameType], outer: Set[FrameType]) -> bool:
        """Return True if the submission's code is among the callers up to the frames in `outer`."""
        while frame is not None and frame not in outer:
            if self.is_changed(frame.f_code.co_filename):
                return True
            frame = frame.f_back
        return False


def functions_below(value: Any, depth: int = 4) -> List[FunctionType]:
    """The functions that a callable is made of: what wrappers, closures, partials and objects hold."""
    value = getattr(value, "__func__", value)
    found: List[FunctionType] = []
    below: List[Any] = []
    if isinstance(value, FunctionType):
        found.append(value)
        below += [vars(value).get("__wrapped__"), *map(cell_value, value.__closure__ or ())]
    elif not isinstance(value, type):
        below += [vars(type(value)).get("__call__"), getattr(value, "__wrapped__", None)]
        below += [getattr(value, "func", None), *list(getattr(value, "__dict__", {}).values())]
    for each in below if depth else ():
        if callable(each):
            found += functions_below(each, depth - 1)
    return found


def cell_value(cell: Any) -> Any:
    """The value of a closure's cell; None while it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
