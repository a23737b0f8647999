"""What the submission's side may ask of objects of the tests' side.

Tests pass functions and objects to a submission: a comparator, a callback, a node. The submission
may use them as such, and may not reach through them: not to a function's globals or code, not to
frames, not into modules.
"""

import sys
import types
from typing import Any

from .descriptions import Owned
from .operations import OPERATIONS

_USES = frozenset(
    [
        *("call", "get", "set", "del", "len", "iter", "next", "bool", "hash", "str", "repr"),
        *("format", "contains", "getitem", "setitem", "delitem", "reversed", "copy", "deepcopy"),
        *("eq", "ne", "lt", "le", "gt", "ge", "int", "float", "complex", "index", "bytes"),
        *("round", "trunc", "floor", "ceil", "enter", "exit", "aenter", "aexit", "aiter"),
        *("anext", "asend", "athrow", "aclose", "await", "send", "throw", "close", "signature"),
        "code_flags",
        *("neg", "pos", "abs", "invert", "fspath"),
    ]
)
_ARITHMETIC = frozenset(
    [
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift"),
        *("and", "or", "xor", "divmod"),
    ]
)
_ATTRIBUTES = frozenset(["__name__", "__qualname__", "__doc__", "__module__"])
_FRAME_PREFIXES = ("f_", "gi_", "cr_", "ag_", "tb_", "co_", "func_", "im_")
_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodWrapperType,
)
_SECRET = (types.ModuleType, types.FrameType, types.CodeType, types.TracebackType)


class Forbidden(AttributeError):
    """The submission asked for what it may not have."""


def perform(owned: Owned, operation: str, operands: tuple[Any, ...]) -> Any:
    """Carry out what the submission asks; ``Forbidden`` if it may not ask it."""
    if operation == "again":
        return owned.tell_again(operands[0])
    base = operation.removeprefix("i")
    arithmetic = operation in _ARITHMETIC or (operation not in _USES and base in _ARITHMETIC)
    if operation not in _USES and not arithmetic:
        raise Forbidden("not an operation")
    if not operands or not any(map(owned.holds, operands[:2])):
        raise Forbidden("not an operation on an object of the tests")
    if not arithmetic and not (owned.holds(operands[0]) or operation in OPERATIONS_OF_TWO):
        raise Forbidden("not an object of the tests")
    if arithmetic and not any(map(_from_tests, operands[:2])):
        raise Forbidden("not an object of the tests")
    if operation in ("get", "set", "del"):
        _check_attribute(operation, operands)
    elif operation in ("setitem", "delitem") and not _from_tests(operands[0]):
        raise Forbidden("not an object of the tests")
    result = OPERATIONS[operation](*operands)
    if isinstance(result, _SECRET):
        raise Forbidden("not something to hand out")
    return result


OPERATIONS_OF_TWO = frozenset(["eq", "ne", "lt", "le", "gt", "ge"])


def _check_attribute(operation: str, operands: tuple[Any, ...]) -> None:
    target, name = operands[:2]
    if type(name) is not str or len(operands) != (3 if operation == "set" else 2):
        raise Forbidden("not an attribute")
    if operation == "get" and name in _ATTRIBUTES:
        return
    if name.startswith(("_", *_FRAME_PREFIXES)) or name == "mro":
        raise Forbidden(f"{name} is not for the submission")
    if _rules_a_mock(target, name):
        raise Forbidden(f"{name} is for the tests")
    if operation != "get" and not _from_tests(target):
        raise Forbidden(f"{name} can't be set")
    if operation == "set" and _is_method(type(target), name):
        raise Forbidden(f"{name} is a method of the tests")
    # What a function or a method carries is its own, or what the tests put there.
    if isinstance(target, _FUNCTIONS) and name not in getattr(target, "__dict__", ()):
        raise Forbidden(f"{name} is not for the submission")


def _rules_a_mock(target: Any, name: str) -> bool:
    """Whether a name is one by which tests set up a mock or ask it, instead of calling it."""
    mock: Any = sys.modules.get("unittest.mock")
    if mock is None or not isinstance(target, mock.NonCallableMock):
        return False
    kinds = mock.MagicMock, mock.AsyncMock
    return name == "method_calls" or any(hasattr(kind, name) for kind in kinds)


def _is_method(cls: type, name: str) -> bool:
    """Whether objects of a class have a method of this name, which they would no longer call."""
    found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    return callable(found) or isinstance(found, staticmethod | classmethod)


def _from_tests(value: Any) -> bool:
    """Whether a value is an instance of a class that the tests define."""
    return type(value).__module__ == "__main__" and isinstance(type(value), type)
