"""Exports of test objects to the submission: descriptions, and the access policy.

Tests pass functions and objects to a submission: a comparator, a callback, a node. The submission
may use these objects, but cannot reach a function's globals or code, frames, or modules.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from ...codec.introspection import class_mro, class_name, derives
from .endpoint import ITERATOR_KINDS
from .exported_classes import control_names
from .handles import Refused
from .references import importable_name

_words = str.split

_HIDDEN = (types.ModuleType, types.FrameType, types.CodeType, types.TracebackType)
_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)
_TEXTS = frozenset(["__name__", "__qualname__", "__doc__", "__module__"])
_REACHING = ("_", "f_", "gi_", "cr_", "ag_", "tb_", "co_", "func_", "im_")
_USES = frozenset(
    _words(
        "call get set del len iter next bool hash str repr int float index format contains getitem "
        "setitem delitem reversed eq ne lt le gt ge enter exit aenter aexit anext asend athrow aclose "
        "await send throw close neg pos abs invert"
    )
)
_ARITHMETIC = frozenset(
    _words("add sub mul truediv floordiv mod divmod pow matmul lshift rshift and or xor")
)
_CHANGING = frozenset(["setitem", "delitem"])
_CO_VARARGS, _CO_VARKEYWORDS, _CO_COROUTINE = 4, 8, 128


def is_telling(error: BaseException) -> bool:
    """Tell whether an exception decides the end of a test; the submission must not catch it."""
    if isinstance(error, (AssertionError, Refused)) or not isinstance(error, Exception):
        return True
    return bool(control_names(error))


class Forbidden(AttributeError):
    """Exception for a request that the access policy rejects."""


def describe(side: Any, value: Any, encoder: Any) -> Any:
    """Return the wire form of a test object. Raises ``TypeError`` for forbidden types."""
    named = importable_name(value)
    if named is not None:
        return named
    cls = type(value)
    exports = side.connection.exports
    if derives(cls, type):
        return ["h", side.class_number(value), {"k": "class"}]
    if derives(cls, *_HIDDEN):
        raise TypeError(f"a {class_name(cls)} can't be passed to the submission")
    if derives(cls, BaseException):
        told = not is_telling(value)
        return side.describe_exception(value, encoder, exports.number(value), told)
    number = exports.number(value)
    if cls in ITERATOR_KINDS:
        return ["h", number, {"k": ITERATOR_KINDS[cls]}]
    if cls is types.FunctionType or cls is types.MethodType:
        return ["h", number, {"k": "function", **_function_facts(value)}]
    return ["h", number, {"k": "object", "c": side.class_number(cls)}]


def _function_facts(function: Any) -> dict[str, Any]:
    """Return a function's name and parameters: [name, kind of ``inspect.Parameter``, optional]."""
    plain: Any = function
    bound = 0
    while type(plain) is types.MethodType:
        plain, bound = plain.__func__, bound + 1
    if type(plain) is not types.FunctionType:
        return {"name": "function", "p": None, "async": False, "doc": None}
    code = plain.__code__
    names, count = code.co_varnames, code.co_argcount
    least = count - len(plain.__defaults__ or ())
    parameters: list[list[Any]] = []
    for place, name in enumerate(names[:count]):
        kind = 0 if place < code.co_posonlyargcount else 1
        parameters.append([name, kind, place >= least])
    rest = names[count + code.co_kwonlyargcount :]
    if code.co_flags & _CO_VARARGS:
        parameters.append([rest[0], 2, True])
        rest = rest[1:]
    for name in names[count : count + code.co_kwonlyargcount]:
        parameters.append([name, 3, name in (plain.__kwdefaults__ or ())])
    if code.co_flags & _CO_VARKEYWORDS:
        parameters.append([rest[0], 4, True])
    return {
        "name": plain.__name__,
        "doc": plain.__doc__ if type(plain.__doc__) is str else None,
        "p": parameters[bound:] if bound <= count else None,
        "async": bool(code.co_flags & _CO_COROUTINE),
    }


def perform(side: Any, operation: str, operands: Any) -> Any:
    """Perform an operation for the submission. Raises ``Forbidden`` by the access policy."""
    holds = side.connection.exports.holds
    arithmetic = operation in _ARITHMETIC
    if not (operation in _USES or arithmetic) or not operands:
        raise Forbidden("not an operation")
    if not any(map(holds, operands[: 2 if arithmetic else 1])):
        raise Forbidden("not an object of the tests")
    if arithmetic and not any(map(_from_tests, operands[:2])):
        raise Forbidden("not an object of the tests")
    if derives(type(operands[0]), type) and not _is_tests_class(operation, operands[0]):
        raise Forbidden("not a class of the tests")
    if operation in ("get", "set", "del"):
        _check_attribute(operation, operands)
    elif operation in _CHANGING and not _from_tests(operands[0]):
        raise Forbidden("not an object of the tests")
    result = side.carry_out(operation, operands)
    if derives(type(result), *_HIDDEN):
        raise Forbidden("not something to hand out")
    return result


def _check_attribute(operation: str, operands: tuple[Any, ...]) -> None:
    target, name = operands[:2]
    if type(name) is not str or len(operands) != (3 if operation == "set" else 2):
        raise Forbidden("not an attribute")
    if operation == "get" and name in _TEXTS:
        return
    if name.startswith(_REACHING) or name == "mro":
        raise Forbidden(f"{name} is not for the submission")
    if _configures_mock(target, name):
        raise Forbidden(f"{name} is for the tests")
    if operation != "get" and not (_from_tests(target) or type(target) is types.SimpleNamespace):
        raise Forbidden(f"{name} can't be set")
    if operation == "set" and _is_method(type(target), name):
        raise Forbidden(f"{name} is a method of the tests")
    # On functions and methods, the submission may use only attributes in ``__dict__``.
    if derives(type(target), *_FUNCTIONS) and name not in getattr(target, "__dict__", ()):
        raise Forbidden(f"{name} is not for the submission")


def _configures_mock(target: Any, name: str) -> bool:
    """Tell whether a name belongs to a mock's configuration or call records."""
    mock: Any = sys.modules.get("unittest.mock")
    if mock is None or not isinstance(target, mock.NonCallableMock):
        return False
    kinds = mock.MagicMock, mock.AsyncMock
    return name == "method_calls" or any(hasattr(kind, name) for kind in kinds)


def _is_method(cls: type, name: str) -> bool:
    """Tell whether a class has a method with this name, which an attribute would hide."""
    found = next((vars(base)[name] for base in class_mro(cls) if name in vars(base)), None)
    return callable(found) or isinstance(found, (staticmethod, classmethod))


def _is_tests_class(operation: str, cls: Any) -> bool:
    """Tell whether the operation only reads a class of the tests or makes an instance."""
    return operation in ("call", "get", "iter", "len") and cls.__module__ == "__main__"


def _from_tests(value: Any) -> bool:
    """Tell whether a value is an instance of a class that the tests define."""
    return type(value).__module__ == "__main__" and isinstance(type(value), type)
