"""Globals of test code: its own names, the submission's names, and the object ``__proctor__``."""

from __future__ import annotations

import ast
import builtins
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from . import handles
from .handles import Handle, reference_of
from .object_operations import OPERATORS
from .shared_data import copied
from .test_endpoint import TestEndpoint

# Importing these modules has side effects.
_NEVER_IMPORTED = frozenset(
    [
        *("antigravity", "this", "idlelib", "turtledemo", "turtle", "tkinter", "test", "lib2to3"),
        *("__main__", "ensurepip", "venv", "solution"),
    ]
)
_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "": lambda value: value,
    "s": str,
    "r": repr,
    "a": ascii,
}


class Namespace(dict):  # type: ignore[type-arg]
    """Globals of test code; names of the submission are requested on use.

    Import statements of the submission (``imports``) run on use, too. They replace no built-in
    name, and a failing import binds nothing.
    """

    def __init__(self, side: TestEndpoint, names: frozenset[str], imports: list[str]) -> None:
        super().__init__({"__name__": "__main__", "__builtins__": builtins})
        self._side = side
        self._names = names
        self._imports = _bindings(imports)

    def __missing__(self, name: str) -> Any:
        statement = self._imports.pop(name, None)
        if statement is not None and not hasattr(builtins, name):
            found: dict[str, Any] = {}
            try:
                exec(statement, found)
            except BaseException:
                found.clear()
            if name in found:
                self[name] = found[name]
                return found[name]
        if name not in self._names:
            raise KeyError(name)
        try:
            value = self._side.ask("name", name)
        except LookupError:
            raise KeyError(name) from None
        return self._side.named(value, name)


def _bindings(statements: list[str]) -> dict[str, str]:
    """Map each bound name to its import statement."""
    found: dict[str, str] = {}
    for statement in statements:
        for node in _statements(statement):
            if isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            else:
                continue
            tops = [module.partition(".")[0] for module in modules]
            if any(top in _NEVER_IMPORTED or top[:1] in ("_", "") for top in tops):
                continue
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                found[name] = statement
    return found


def import_statements(source: str) -> list[str]:
    """Return the top-level import statements of a source text."""
    lines = source.splitlines()
    found = []
    for node in _statements(source):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            text = ast.get_source_segment(source, node)
            found.append(text if text is not None else lines[node.lineno - 1])
    return found


def _statements(source: str) -> list[ast.stmt]:
    try:
        return ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


class Tools:
    """The object ``__proctor__``: transformed test code marks own objects and comparisons by it."""

    def __init__(self, side: Any, namespace: Namespace) -> None:
        self._side = side
        self._namespace = namespace

    def name(self, name: str) -> Any:
        """Return a global for the body of a class, which asks only for real items of globals."""
        try:
            return self._namespace[name]
        except KeyError:
            raise NameError(f"name {name!r} is not defined") from None

    def formatted(self, value: Any, conversion: str, spec: str) -> str:
        """Return the text of a format string's part, as of `{value!r:spec}`."""
        return format(_CONVERSIONS[conversion](value), spec)

    def own(self, value: Any) -> Any:
        """Return an own handle for a class call's result, or for a name bound to such a result."""
        return handles.own_view(value)

    def make(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a class; the result crosses as an object, even if derived from a built-in type."""
        if not issubclass(type(function), Handle):
            return function(*args, **kwargs)
        return self._side.ask("make", reference_of(function), args, tuple(kwargs.items()))

    def hold(self) -> None:
        """Start to hold changes of arguments, until the comparison is over."""
        self._side.connection.held.begin()

    def compare(self, names: Any, held: None, *operands: Any) -> Any:
        """Compare or add operands; a call's arguments look as before the call.

        ``names`` is the name of an operator in ``ast``, or the names of a comparison chain.
        """
        held_back = self._side.connection.held
        try:
            if type(names) is str:
                return OPERATORS[names](*operands)
            result: Any = True
            for name, left, right in zip(names, operands, operands[1:]):
                result = OPERATORS[name](left, right)
                if not result:
                    break
            return result
        finally:
            held_back.end()

    def apply(self, function: Any, copies: bool, held: None, *args: Any, **kwargs: Any) -> Any:
        """Call a function; arguments of nested submission calls look as before these calls.

        ``copies``: the function compares its arguments, so they are copied. Otherwise the function
        may read the changes.
        """
        held_back = self._side.connection.held
        try:
            if copies:
                args = tuple([copied(value) for value in args])
                kwargs = {name: copied(value) for name, value in kwargs.items()}
        finally:
            held_back.end()
        return function(*args, **kwargs)

    @contextlib.contextmanager
    def expecting(self, *names: str) -> Iterator[None]:
        """Let control-flow exceptions of these classes cross unchanged inside the context."""
        expected = self._side.expected
        entry = frozenset(names)
        expected.append(entry)
        try:
            yield
        finally:
            if entry in expected:
                expected.remove(entry)

    def expecting_call(self, names: tuple[str, ...], function: Any) -> Callable[..., Any]:
        """Make a callable that calls a function while these exceptions are expected."""

        def call(*args: Any, **kwargs: Any) -> Any:
            with self.expecting(*names):
                return function(*args, **kwargs)

        return call
