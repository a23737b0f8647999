"""``__proctor__``: what transformed test code uses to say which objects it made, and where it compares."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from . import handles
from .handles import Handle, reference_of
from .object_operations import OPERATORS
from .shared_data import copied


class Tools:
    """The object that test code has under the name ``__proctor__``."""

    def __init__(self, side: Any) -> None:
        self._side = side

    def own(self, value: Any) -> Any:
        """The same object, written as a class's call or a name bound to one."""
        return handles.own_view(value)

    def make(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """A class's call: its result is an object, also where its class derives from a built-in type."""
        if not issubclass(type(function), Handle):
            return function(*args, **kwargs)
        return self._side.ask("make", reference_of(function), args, tuple(kwargs.items()))

    def hold(self) -> None:
        """Hold changes of arguments back until the comparison that begins here is over."""
        self._side.connection.held.begin()

    def compare(self, names: Any, held: None, *operands: Any) -> Any:
        """A comparison, or a sum, in which a call's arguments are as they were before the call.

        ``names`` is the name of an operator in ``ast``, or those of a chain.
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
        """A call whose arguments see those of the submission's calls among them as they were before.

        ``copies``: it compares its arguments, which are copied; otherwise it may look at what changed.
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
        """Within it, control-flow exceptions of these classes cross as themselves."""
        expected = self._side.expected
        entry = frozenset(names)
        expected.append(entry)
        try:
            yield
        finally:
            if entry in expected:
                expected.remove(entry)

    def expecting_call(self, names: tuple[str, ...], function: Any) -> Callable[..., Any]:
        """A callable that calls a function where these exceptions are expected."""

        def call(*args: Any, **kwargs: Any) -> Any:
            with self.expecting(*names):
                return function(*args, **kwargs)

        return call
