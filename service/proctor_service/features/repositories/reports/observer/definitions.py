"""What the test files define: functions by file and name, as they were when the file had run."""

import dis
import os
from types import CodeType, FunctionType
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from .records import code_of, plain_function

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
CO_OPTIMIZED = 1
"""Flag of a function's code, which a class's has not."""
Definition = Tuple[Any, Optional[CodeType]]


def definition_of(value: Any) -> Definition:
    """A callable and its code, by which a later replacement shows."""
    value = plain_function(value)
    return value, code_of(value)


class Definitions:
    """Functions of test files, recorded when the file's code has run and before a test runs."""

    def __init__(self, directory: str, is_of_submission: Callable[[Any], bool]) -> None:
        self._directory = directory
        self._is_of_submission = is_of_submission
        self._replaced: Set[str] = set()
        self._codes: Set[CodeType] = set()
        self._by_file: Dict[str, Dict[str, Definition]] = {}
        self._helpers: Dict[str, List[Tuple[str, Any, CodeType]]] = {}
        self._namespaces: Dict[str, Dict[str, Any]] = {}

    def is_of_tests(self, name: str) -> bool:
        """Return True for a module's name that a file of tests may have."""
        return "test" in name.lower()

    def is_below(self, path: Optional[str]) -> bool:
        """Return True for a file of the repository, outside of environments in it."""
        real = os.path.realpath(path or "")
        return real.startswith(self._directory + os.sep) and "site-packages" not in real

    def record(
        self, path: Optional[str], namespace: Dict[str, Any], code: Optional[CodeType]
    ) -> None:
        """Record what the code of a file defined; `code` is that of the module, where it is known."""
        if path is None or not self.is_below(path):
            return
        try:
            self._record(os.path.realpath(path), namespace, code)
        except Exception:  # of an odd object in the file: its tests run all the same
            self._by_file.pop(os.path.realpath(path), None)

    def _record(self, path: str, namespace: Dict[str, Any], code: Optional[CodeType]) -> None:
        found: Dict[str, Definition] = {}
        helpers = []
        for name, value in list(namespace.items()):
            if issubclass(type(value), type):
                self._add_class(found, name, value, 3)
            elif callable(value):
                found[name] = definition_of(value)
                is_own = type(value) is FunctionType and value.__globals__ is namespace
                if is_own and not name.startswith("test"):  # a test is checked by itself
                    helpers.append((name, value, value.__code__))
        self._by_file[path] = found
        self._helpers[path] = helpers
        self._namespaces[path] = namespace
        if code is not None:
            self._add_codes(code)
            if self._is_tampered(found, namespace, code):
                self._replaced.add(path)

    def _is_tampered(
        self, found: Dict[str, Definition], namespace: Dict[str, Any], code: CodeType
    ) -> bool:
        """Return True if another's function stands where the file's code defines one, or shadows.

        A function of the submission that has the name of a built-in counts, unless the file binds it.
        """
        for name, defined in functions_of(code, ""):
            value = found.get(name, (None, None))[0]
            below = functions_below(value)
            if value is None or any(each.__code__ is defined for each in below):
                continue
            if any(map(self._is_of_submission, [value, *below])):
                return True
        shadows = [each for each in CHECKED_BUILTINS if each in namespace]
        return any(
            self._is_of_submission(namespace[each]) and each not in bound_by(code)
            for each in shadows
        )

    def is_replaced_in(self, path: str) -> bool:
        """Return True if a file's tests were others' when its code had run."""
        return path in self._replaced

    def _add_codes(self, code: CodeType) -> None:
        self._codes.add(code)
        for each in code.co_consts:
            if isinstance(each, CodeType):
                self._add_codes(each)

    def _add_class(self, found: Dict[str, Definition], name: str, value: type, depth: int) -> None:
        for base in reversed(value.__mro__[:-1]):
            if str(base.__module__).partition(".")[0] == "unittest":
                continue
            for key, member in list(vars(base).items()):
                if issubclass(type(member), type):
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


def functions_of(code: CodeType, prefix: str) -> Iterator[Tuple[str, CodeType]]:
    """The functions that a module's code defines, by name; `Class::method` in classes."""
    for each in code.co_consts:
        if isinstance(each, CodeType) and not each.co_name.startswith("<"):
            if each.co_flags & CO_OPTIMIZED:
                yield prefix + each.co_name, each
            else:
                yield from functions_of(each, prefix + each.co_name + "::")


def bound_by(code: CodeType) -> Set[str]:
    """The names that a module's code binds itself; all built-ins where it imports `*`."""
    bound = set()
    for each in dis.get_instructions(code):
        if each.opname in ("STORE_NAME", "STORE_GLOBAL"):
            bound.add(str(each.argval))
        elif each.opname == "IMPORT_STAR" or each.argrepr == "INTRINSIC_IMPORT_STAR":
            return set(CHECKED_BUILTINS)
    return bound


def functions_below(value: Any, depth: int = 4) -> List[FunctionType]:
    """The functions that a callable is made of: what wrappers, closures, partials and objects hold."""
    value = plain_function(value)
    found: List[FunctionType] = []
    below: List[Any] = []
    if type(value) is FunctionType:
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
