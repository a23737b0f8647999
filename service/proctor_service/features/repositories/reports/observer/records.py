"""Records of functions by their owner, whose replacement shows quickly."""

from operator import attrgetter, itemgetter
from types import CodeType, FunctionType, MethodType
from typing import Any, Iterator, List, Optional, Tuple

code_of_function = attrgetter("__code__")


def plain_function(value: Any) -> Any:
    """The function of a method or property; other values as they are.

    Types alone are asked: an attribute of an object such as a lazy one may run the repository's code.
    """
    if type(value) in (MethodType, staticmethod, classmethod):
        return value.__func__
    return value.fget if type(value) is property else value


def code_of(value: Any) -> Optional[CodeType]:
    """The code of a function, method or property; None for what is not made of Python code."""
    function = plain_function(value)
    return function.__code__ if type(function) is FunctionType else None


class Owner:
    """A module or class, and values that it had; functions also with their code.

    Values are compared by C code, some 30 ns each: they are compared for each test.
    """

    __slots__ = ("_codes", "_functions", "_get", "_names", "_namespace", "_values")

    def __init__(self, namespace: Any, names: List[str]) -> None:
        self._namespace = namespace
        self._names = names
        self._get = itemgetter(*names, names[0])  # of two names or more it returns a tuple
        self.accept()

    def accept(self) -> None:
        """Take the present values for the right ones."""
        values: Tuple[Any, ...] = self._get(self._namespace)
        self._values = values
        self._functions = [
            inner for inner in map(plain_function, values) if type(inner) is FunctionType
        ]
        self._codes = list(map(code_of_function, self._functions))

    def is_unchanged(self) -> bool:
        """Return True if all values, and the codes of functions, are the recorded ones."""
        try:
            values = self._get(self._namespace)
        except KeyError:
            return False
        return values == self._values and self._codes == list(
            map(code_of_function, self._functions)
        )

    def changes(self) -> Iterator[Tuple[str, Any]]:
        """The names with another value, and that value; all names if a function has another code."""
        found = False
        for name, value in zip(self._names, self._values):
            now = self._namespace.get(name)
            if now is not value:
                found = True
                yield name, now
        if not found and not self.is_unchanged():
            for name in self._names:
                yield name, self._namespace[name]
