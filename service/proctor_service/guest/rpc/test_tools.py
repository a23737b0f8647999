"""The object ``__proctor__``, used by transformed test code to mark own objects and comparisons."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from . import handles
from .handles import Handle, reference_of
from .object_operations import OPERATORS
from .shared_data import copied


class Tools:
    """Implementation of the name ``__proctor__`` in test code."""

    def __init__(self, side: Any) -> None:
        self._side = side

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
            for name, left, right in zip(names, operands, operands[1:]):  # noqa: B905 - Python 3.8
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
