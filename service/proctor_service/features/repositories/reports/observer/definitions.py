"""What the test files define: functions by file and name, as they were when the file had run."""

import os
from types import CodeType, FunctionType
from typing import Any, Dict, List, Optional, Set, Tuple

Definition = Tuple[Any, Optional[CodeType]]


def plain_function(value: Any) -> Any:
    """The function of a method or static method; other values as they are."""
    return getattr(value, "__func__", value)


def definition_of(value: Any) -> Definition:
    """A callable and its code, by which a later replacement shows."""
    value = plain_function(value)
    return value, getattr(value, "__code__", None)


class Definitions:
    """Functions of test files, recorded when the file's code has run and before a test runs."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._codes: Set[CodeType] = set()
        self._by_file: Dict[str, Dict[str, Definition]] = {}
        self._helpers: Dict[str, List[Tuple[str, Any, CodeType]]] = {}
        self._namespaces: Dict[str, Dict[str, Any]] = {}

    def is_of_tests(self, name: str) -> bool:
        """Return True for a module's name that a file of tests may have."""
        return "test" in name.lower()

    def record(
        self, path: Optional[str], namespace: Dict[str, Any], code: Optional[CodeType]
    ) -> None:
        """Record what the code of a file defined; `code` is that of the module, where it is known."""
        if path is None or not os.path.realpath(path).startswith(self._directory + os.sep):
            return
        path = os.path.realpath(path)
        found: Dict[str, Definition] = {}
        helpers = []
        for name, value in list(namespace.items()):
            if isinstance(value, type):
                self._add_class(found, name, value, 3)
            elif callable(value):
                found[name] = definition_of(value)
                if isinstance(value, FunctionType) and value.__globals__ is namespace:
                    helpers.append((name, value, value.__code__))
        self._by_file[path] = found
        self._helpers[path] = helpers
        self._namespaces[path] = namespace
        if code is not None:
            self._add_codes(code)

    def _add_codes(self, code: CodeType) -> None:
        self._codes.add(code)
        for each in code.co_consts:
            if isinstance(each, CodeType):
                self._add_codes(each)

    def _add_class(self, found: Dict[str, Definition], name: str, value: type, depth: int) -> None:
        for base in reversed(value.__mro__[:-1]):
            if base.__module__.partition(".")[0] == "unittest":
                continue
            for key, member in list(vars(base).items()):
                if isinstance(member, type):
                    if depth and base is value:
                        self._add_class(found, name + "::" + key, member, depth - 1)
                elif callable(plain_function(member)):
                    found[name + "::" + key] = definition_of(member)

    def wrote(self, code: Optional[CodeType]) -> bool:
        """Return True for code of a recorded test file."""
        return code in self._codes

    def of(self, path: str, name: str) -> Optional[Definition]:
        """The definition of `name` (`Class::method` in classes) in a file, None if it has none."""
        return self._by_file.get(path, {}).get(name)

    def replaced_helper(self, path: str) -> Optional[Any]:
        """The value in place of a function that the file defined, None if all are in place."""
        namespace = self._namespaces.get(path, {})
        for name, value, code in self._helpers.get(path, ()):
            now = namespace.get(name)
            if isinstance(now, FunctionType) and (now is not value or now.__code__ is not code):
                return now
        return None
