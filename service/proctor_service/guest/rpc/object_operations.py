"""Operations on remote objects, by name; the endpoint with the object performs the operation."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

_words = str.split

_ARITHMETIC = _words("add sub mul truediv floordiv mod matmul lshift rshift and or xor")
_COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]
_CONVERSIONS = (len, iter, next, bool, hash, str, repr, int, float, reversed, format, abs, divmod)


# Keys are class names of operators in ``ast``.
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt, "LtE": operator.le,
    "Gt": operator.gt, "GtE": operator.ge, "In": lambda left, right: left in right,
    "NotIn": lambda left, right: left not in right,
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "Div": operator.truediv,
    "FloorDiv": operator.floordiv, "Mod": operator.mod, "MatMult": operator.matmul,
    "Pow": operator.pow, "BitAnd": operator.and_, "BitOr": operator.or_, "BitXor": operator.xor,
    "LShift": operator.lshift, "RShift": operator.rshift,
}  # fmt: skip


def _call(target: Any, args: Any, kwargs: Any) -> Any:
    return target(*args, **dict(kwargs))


def _throw(target: Any, error: BaseException) -> Any:
    return target.throw(error)


def _exit(name: str) -> Callable[..., Any]:
    def leave(target: Any, cls: Any, error: Any) -> Any:
        trace = None if error is None else error.__traceback__
        return getattr(type(target), name)(target, cls, error, trace)

    return leave


def _enter(name: str) -> Callable[..., Any]:
    return lambda target: getattr(type(target), name)(target)


OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, f"__{name}__") for name in _ARITHMETIC + _COMPARISONS},
    **{function.__name__: function for function in _CONVERSIONS},
    **{name: getattr(operator, name) for name in ("getitem", "setitem", "delitem", "contains")},
    **{name: getattr(operator, name) for name in ("neg", "pos", "invert", "index")},
    "pow": pow,
    "call": _call,
    "make": _call,
    "get": getattr,
    "has": hasattr,
    "set": setattr,
    "del": delattr,
    "enter": _enter("__enter__"),
    "exit": _exit("__exit__"),
    "send": lambda target, value: target.send(value),
    "throw": _throw,
    "close": lambda target: target.close(),
}
# Operations that return an awaitable, which must run to its end.
AWAITED: dict[str, Callable[..., Any]] = {
    "aenter": _enter("__aenter__"),
    "aexit": _exit("__aexit__"),
    "anext": lambda target: type(target).__anext__(target),
    "asend": lambda target, value: target.asend(value),
    "athrow": lambda target, error: target.athrow(error),
    "aclose": lambda target: target.aclose(),
    "await": lambda target: target,
}
_BINARY = [*_ARITHMETIC, "divmod", "pow"]
_DIRECT = [
    *(_words("len iter next bool hash str repr int float reversed abs neg pos invert index")),
    *(["getitem", "setitem", "delitem", "contains", "format", "enter"]),
    *_BINARY,
    *_COMPARISONS,
]


def forwarders(ask: Callable[..., Any], leave: Any) -> dict[str, Callable[..., Any]]:
    """Make special methods that call ``ask(operation, object, *operands)`` or ``leave``."""
    found = {f"__{name}__": _forwarder(ask, name) for name in _DIRECT}
    found.update({f"__r{name}__": _swapped(ask, name) for name in _BINARY})
    for name in ("aenter", "anext"):
        found[f"__{name}__"] = _later(ask, name)
    found["__exit__"] = lambda self, cls, error, trace: leave("exit", self, cls, error)
    found["__aexit__"] = _leave_later(leave)
    found["__call__"] = lambda self, *args, **kwargs: ask("call", self, args, _pairs(kwargs))
    found["__aiter__"] = lambda self: self
    return found


def _pairs(kwargs: dict[str, Any]) -> Any:
    return tuple(kwargs.items())


def _forwarder(ask: Callable[..., Any], name: str) -> Callable[..., Any]:
    return lambda self, *operands: ask(name, self, *operands)


def _swapped(ask: Callable[..., Any], name: str) -> Callable[..., Any]:
    return lambda self, other: ask(name, other, self)


def _later(ask: Callable[..., Any], name: str) -> Callable[..., Any]:
    async def method(self: Any) -> Any:
        return ask(name, self)

    return method


def _leave_later(leave: Any) -> Callable[..., Any]:
    async def method(self: Any, cls: Any, error: Any, trace: Any) -> Any:
        return leave("aexit", self, cls, error)

    return method
