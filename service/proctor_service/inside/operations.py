"""What one side may ask of an object of the other: the operations, and the methods that stand for them.

The owner of the object carries an operation out with ``OPERATIONS``; a stand-in has for each of its
class's special methods one of ``forwarders``, which asks for the operation.
"""

import copy
import importlib
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

_import_module = importlib.import_module

COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
# What a local copy of the content answers better than the submission's own class.
CONTENT_METHODS = frozenset(
    [
        "__len__",
        "__iter__",
        "__next__",
        "__getitem__",
        "__contains__",
        "__reversed__",
        "__bool__",
        "__hash__",
        "__index__",
        "__int__",
        "__float__",
        "__complex__",
        "__bytes__",
    ]
)

_BINARY = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "lshift",
    "rshift",
    "and",
    "or",
    "xor",
    "divmod",
]
_UNARY = [
    "len",
    "iter",
    "next",
    "bool",
    "hash",
    "str",
    "repr",
    "int",
    "float",
    "complex",
    "index",
    "bytes",
    "reversed",
    "neg",
    "pos",
    "abs",
    "invert",
    "trunc",
    "floor",
    "ceil",
    "fspath",
    "dir",
    "enter",
]
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "and": operator.and_,
    "or": operator.or_,
    "divmod": divmod,
    "pow": pow,
}


class _Loop:
    """The event loop on which one side runs its coroutines, kept so that its tasks live on."""

    loop: Any = None


def drive(awaitable: Any) -> Any:
    """The result of an awaitable, run to its end, even inside a running loop."""
    asyncio: Any = _import_module("asyncio")

    async def main() -> Any:
        return await awaitable

    if _Loop.loop is None:
        _Loop.loop = asyncio.new_event_loop()
    own = _Loop.loop
    loop = asyncio.new_event_loop() if own.is_running() else own
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        return loop.run_until_complete(main())
    finally:
        asyncio._set_running_loop(running)
        if loop is not own:
            loop.close()


def _named(names: Iterable[str]) -> dict[str, Callable[..., Any]]:
    return {name: vars(operator)[name] for name in names}


def _signature(function: Any) -> tuple[Any, ...]:
    parameters = _import_module("inspect").signature(function).parameters.values()
    return tuple((p.name, int(p.kind), p.default is not p.empty) for p in parameters)


def _code_flags(function: Any) -> int:
    flags = function.__code__.co_flags
    return flags if type(flags) is int else 0


def _annotations(target: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = _import_module("inspect").get_annotations(target, eval_str=True)
    except Exception:
        found = target.__annotations__
    return dict(found)


def _throw(target: Any, error: BaseException) -> Any:
    return target.throw(error)


OPERATIONS: dict[str, Callable[..., Any]] = {
    **_named(name for name in _BINARY if name not in _FUNCTIONS),
    **_named(f"i{name}" for name in _BINARY if name != "divmod"),
    **_named(("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "index")),
    **_named(("getitem", "setitem", "delitem", "contains")),
    **_FUNCTIONS,
    **{call.__name__: call for call in (len, iter, next, bool, hash, str, repr, int, float)},
    **{call.__name__: call for call in (complex, bytes, reversed, format, round, dir)},
    **{call.__name__: call for call in (math.trunc, math.floor, math.ceil)},
    "fspath": lambda target: type(target).__fspath__(target),
    "missing": lambda target, key: type(target).__missing__(target, key),
    "enter": lambda target: type(target).__enter__(target),
    "exit": lambda target, *error: type(target).__exit__(target, *error),
    "aenter": lambda target: drive(type(target).__aenter__(target)),
    "aexit": lambda target, *error: drive(type(target).__aexit__(target, *error)),
    "aiter": lambda target: type(target).__aiter__(target),
    "anext": lambda target: drive(type(target).__anext__(target)),
    "asend": lambda target, value: drive(target.asend(value)),
    "athrow": lambda target, error: drive(target.athrow(error)),
    "aclose": lambda target: drive(target.aclose()),
    "await": drive,
    "send": lambda target, value: target.send(value),
    "throw": _throw,
    "close": lambda target: target.close(),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "get": getattr,
    "set": setattr,
    "del": delattr,
    "call": lambda target, args, kwargs: target(*args, **dict(kwargs)),
    "signature": _signature,
    "code_flags": _code_flags,
    "annotations": _annotations,
}


def _forwarder(operation: str, swapped: bool) -> Callable[..., Any]:
    def method(self: Any, *operands: Any) -> Any:
        request = type(self).__proctor_peer__.request
        if swapped:
            return request(operation, operands[0], self, *operands[1:])
        return request(operation, self, *operands)

    return method


def _leave(operation: str) -> Callable[..., Any]:
    """``__exit__``: tracebacks stay on their side."""

    def method(self: Any, *error: Any) -> Any:
        return type(self).__proctor_peer__.request(operation, self, *error[:2], None)

    return method


def _leave_later(self: Any, *error: Any) -> Any:
    return _awaiter("aexit")(self, *error[:2], None)


def _call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    return type(self).__proctor_peer__.request("call", self, args, tuple(kwargs.items()))


def _awaiter(operation: str) -> Callable[..., Any]:
    async def method(self: Any, *operands: Any) -> Any:
        return type(self).__proctor_peer__.request(operation, self, *operands)

    return method


def _await(self: Any) -> Any:
    return _awaiter("await")(self).__await__()


def _deep_copy(self: Any, memo: Any) -> Any:
    return type(self).__proctor_peer__.request("deepcopy", self)


FORWARDERS: dict[str, Callable[..., Any]] = {
    **{f"__{name}__": _forwarder(name, False) for name in _BINARY + _UNARY},
    **{f"__r{name}__": _forwarder(name, True) for name in _BINARY},
    **{f"__i{name}__": _forwarder(f"i{name}", False) for name in _BINARY if name != "divmod"},
    **{name: _forwarder(name.strip("_"), False) for name in COMPARISONS},
    **{
        f"__{name}__": _forwarder(name, False)
        for name in (
            "getitem",
            "setitem",
            "delitem",
            "contains",
            "missing",
            "format",
            "round",
            "aiter",
        )
    },
    **{f"__{name}__": _awaiter(name) for name in ("aenter", "anext")},
    "__exit__": _leave("exit"),
    "__aexit__": _leave_later,
    "__await__": _await,
    "__call__": _call,
}
# What computes with another value, what turns an object into another of its kind, and what makes a
# value of a built-in type of it.
ARITHMETIC = frozenset(f"__{prefix}{name}__" for name in _BINARY for prefix in ("", "r", "i"))
SIGNS = frozenset(["__neg__", "__pos__", "__invert__"])
CONVERSIONS = frozenset(
    [
        *("__abs__", "__round__", "__trunc__", "__floor__", "__ceil__", "__int__", "__float__"),
        *("__complex__", "__index__", "__bytes__", "__format__"),
    ]
)
COPIERS = {"__copy__": _forwarder("copy", False), "__deepcopy__": _deep_copy}
