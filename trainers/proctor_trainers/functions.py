"""Functions that can be pickled: a reward function that a worker process, or Ray, gets a copy of."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any


class function:
    """The function that `make(*arguments)` gives, and in each copy one that is made there.

    A closure is a function but cannot be pickled, an object that is called can be but is no
    function: TRL and others tell by `inspect.isfunction` what to call a reward's metrics, and by
    `iscoroutinefunction` whether to await it. So this passes for the function that it calls, and
    that goes for the name of this class, too. What was set on it goes along into copies.
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
