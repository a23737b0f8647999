"""Picklable functions: copies of a reward function go to worker processes and to Ray."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any


class function:
    """The function returned by `make(*arguments)`; each copy calls `make` again.

    A closure is a function, but cannot be pickled. A callable object can be pickled, but is not a
    function: TRL uses `inspect.isfunction` to name a reward's metrics, and `iscoroutinefunction` to
    decide about `await`. So this class presents itself as the wrapped function, also by its
    lower-case name. Copies keep the attributes set on an instance.
    """

    def __init__(self, make: Callable[..., Callable[..., Any]], *arguments: Any) -> None:
        self._made_of = (make, *arguments)
        self._function = make(*arguments)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._function(*arguments, **named)

    @property
    def __class__(self) -> type:
        return FunctionType

    @__class__.setter
    def __class__(self, kind: type) -> None:
        raise TypeError("a function stays one")

    def __getattr__(self, name: str) -> Any:
        if name in ("_function", "_made_of"):
            raise AttributeError(name)
        return getattr(self._function, name)

    def __repr__(self) -> str:
        return repr(self._function)

    def __reduce__(self) -> tuple[Any, ...]:
        own = ("_function", "_made_of")
        more = {name: value for name, value in self.__dict__.items() if name not in own}
        return function, self._made_of, more
