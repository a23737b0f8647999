"""Handles: objects in the test sandbox that stand for objects of the submission.

A handle does not behave like data. Tests can call a handle, read and set attributes, enter its
context, and ask for its text and number. Any other use is refused, and the test fails permanently.
Operators never reach the submission.
"""

from __future__ import annotations

import collections
import types
from typing import Any

from .exported_classes import REFERENCE
from .object_operations import forwarders
from .references import Reference

_words = str.split

_new, _set_slot = object.__new__, object.__setattr__
# Array attributes used by tests, except `data`, which linked lists have too.
_ARRAY_NAMES = _words(
    "all any argmax argmin argsort astype clip cumsum diagonal dot dtype flat flatten item "
    "itemsize max mean min nbytes ndim nonzero prod ravel repeat reshape round searchsorted shape "
    "size sort squeeze std strides sum swapaxes T take tobytes tolist trace transpose var view"
)
# Values of these attributes must be strings or None.
TEXTS = frozenset(["__name__", "__qualname__", "__doc__", "__module__"])
WRAPPED = "__wrapped__"
# The interpreter and `typing` look for these names; handles lack them all.
ABSENT = frozenset(
    _words(
        "__typing_subst__ __typing_prepare_subst__ __typing_unpacked_tuple_args__ __parameters__ "
        "__origin__ __args__ __metadata__ __supertype__ __isabstractmethod__ __set_name__ "
        "__type_params__ __annotations__ __notes__ __unittest_skip__ __unittest_skip_why__ "
        "__unittest_expecting_failure__ __no_type_check__ __self__ __func__ __code__ "
        "__partialmethod__ __text_signature__"
    )
)


class Refused(TypeError):
    """Exception for a use of a handle as data."""


def data_names() -> frozenset[str]:
    """Return the names of the attributes and methods of data types.

    The imports are here because, in the zygote, they would add a cost to each sandbox.
    """
    import datetime
    import decimal
    import fractions

    types = (
        *(str, bytes, bytearray, int, float, complex, list, tuple, dict, set, frozenset, range),
        *(collections.deque, collections.Counter, collections.OrderedDict, collections.defaultdict),
        *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone),
        *(decimal.Decimal, fractions.Fraction),
    )
    found = {name for cls in types for name in dir(cls) if not name.startswith("_")}
    return frozenset(found.union(_ARRAY_NAMES))


def is_dunder(name: str) -> bool:
    """Tell whether a name has the form of a special name, like ``__len__``."""
    return name[:2] == "__" and name[-2:] == "__"


def _ask(operation: str, handle: Any, *operands: Any) -> Any:
    return tests_of(handle).ask(operation, reference_of(handle), *operands)


def _leave(operation: str, handle: Any, cls: Any, error: Any) -> Any:
    return tests_of(handle).leave(operation, handle, cls, error)


def _exactly(kind: Any, operation: str) -> Any:
    """Make the method for a conversion, which must return exactly the type ``kind``."""
    return lambda self, *operands: tests_of(self).exact(self, kind, operation, *operands)


_FORWARDERS: dict[str, Any] = dict(forwarders(_ask, _leave))


class Handle:
    """Local object that stands for an object of the submission."""

    __slots__ = ("__proctor_reference__", "__proctor_tests__", "__weakref__")

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return type(self)
        return tests_of(self).attribute(self, name, own=issubclass(type(self), OwnHandle))

    def __setattr__(self, name: str, value: Any) -> None:
        if is_dunder(name):
            tests_of(self).refuse(self, f"can't have its {name} set")
        tests_of(self).ask("set", reference_of(self), name, value)

    def __delattr__(self, name: str) -> None:
        tests_of(self).ask("del", reference_of(self), name)

    def __eq__(self, other: Any) -> Any:
        if not issubclass(type(other), Handle):
            return NotImplemented
        return reference_of(self) is reference_of(other)

    def __hash__(self) -> int:
        return hash((Handle, reference_of(self).number))

    def __bool__(self) -> bool:
        tests = tests_of(self)
        if issubclass(type(self), OwnHandle):
            return bool(tests.exact(self, bool, "bool"))
        if tests.defines(self, "__bool__", "__len__"):
            tests.refuse(self, "has a truth of its own")
        return True

    __str__ = _exactly(str, "str")
    __repr__ = _exactly(str, "repr")
    __format__ = _exactly(str, "format")
    __int__ = _exactly(int, "int")
    __float__ = _exactly(float, "float")
    __enter__, __exit__ = _FORWARDERS["__enter__"], _FORWARDERS["__exit__"]
    __aenter__, __aexit__ = _FORWARDERS["__aenter__"], _FORWARDERS["__aexit__"]


reference_of = vars(Handle)["__proctor_reference__"].__get__
tests_of = vars(Handle)["__proctor_tests__"].__get__


class CallableHandle(Handle):
    """Handle of a function or another callable object."""

    __slots__ = ()

    __call__ = _FORWARDERS["__call__"]


class ClassHandle(CallableHandle):
    """Handle of a class."""

    __slots__ = ()

    def __instancecheck__(self, value: Any) -> bool:
        return bool(tests_of(self).derives(class_number_of(value), self))

    def __subclasscheck__(self, cls: Any) -> bool:
        if not isinstance(cls, ClassHandle):
            number = vars(cls).get("__proctor_class__") if isinstance(cls, type) else None
            return bool(tests_of(self).derives(number, self))
        return bool(tests_of(self).derives(reference_of(cls).number, self))

    def __or__(self, other: Any) -> Any:
        return _union(self, other)

    def __ror__(self, other: Any) -> Any:
        return _union(other, self)


def _union(left: Any, right: Any) -> Any:
    """Return the meaning of an annotation such as ``Node | None``."""
    import typing

    return typing.Union[left, right]


class IteratorHandle(Handle):
    """Handle of an iterator with a class of the submission; gives items, as a generator does."""

    __slots__ = ()

    __iter__, __next__ = _FORWARDERS["__iter__"], _FORWARDERS["__next__"]


class OwnHandle(IteratorHandle):
    """Handle of an object made by the tests: also supports length, items and truth."""

    __slots__ = ()

    __len__ = _exactly(int, "len")
    __getitem__ = _FORWARDERS["__getitem__"]
    __setitem__, __delitem__ = _FORWARDERS["__setitem__"], _FORWARDERS["__delitem__"]


class OwnCallableHandle(OwnHandle, CallableHandle):
    """Own handle of a callable object."""

    __slots__ = ()


class OwnClassHandle(OwnHandle, ClassHandle):
    """Own handle of a class, for example an enumeration."""

    __slots__ = ()


_OWN = {
    Handle: OwnHandle,
    IteratorHandle: OwnHandle,
    CallableHandle: OwnCallableHandle,
    ClassHandle: OwnClassHandle,
}
_REFUSED = _words(
    "len iter next getitem setitem delitem contains reversed lt le gt ge neg pos abs invert round "
    "trunc floor ceil index complex bytes copy deepcopy reduce reduce_ex getstate fspath dir "
    "array array_ufunc array_function missing"
)
_ARITHMETIC = _words("add sub mul truediv floordiv mod divmod pow matmul lshift rshift and or xor")


def _refusal(name: str) -> Any:
    def method(self: Any, *operands: Any, **more: Any) -> Any:
        tests_of(self).refuse(self, f"has no {name.strip('_')} that a test may use")

    return method


_REFUSALS = [
    *(f"__{name}__" for name in _REFUSED),
    *(f"__{prefix}{name}__" for name in _ARITHMETIC for prefix in ("", "r", "i")),
]
for _name in _REFUSALS:
    setattr(Handle, _name, _refusal(_name))
# Special methods of handles that ask the submission or refuse. The others, as `__eq__`, answer
# without the submission, which is right for an operator but not for a call by name.
_ASKING = frozenset(
    _words(
        "__str__ __repr__ __format__ __int__ __float__ __call__ __enter__ __exit__ __aenter__ "
        "__aexit__"
    )
).union(_REFUSALS)


def special_method(handle: Any, name: str) -> Any:
    """Return a special method of a handle as an attribute, or None if handles lack the method."""
    kinds = type(handle).__mro__
    found = next((vars(kind)[name] for kind in kinds if name in vars(kind)), None)
    if not callable(found):
        return None
    return types.MethodType(found if name in _ASKING else _refusal(name), handle)


def make_handle(kind: Any, reference: Reference, tests: Any) -> Any:
    """Make a handle of the given handle class."""
    handle = _new(kind)
    _set_slot(handle, "__proctor_reference__", reference)
    _set_slot(handle, "__proctor_tests__", tests)
    return handle


def own_view(value: Any) -> Any:
    """Return an own handle for a handle; return any other value unchanged."""
    kind = _OWN.get(type(value))
    return value if kind is None else make_handle(kind, reference_of(value), tests_of(value))


def class_number_of(value: Any) -> int | None:
    """Return the number of the submission's class of a value, by exact type, else None."""
    kind = type(value)
    if issubclass(kind, Handle):
        number: int | None = reference_of(value).class_number
        return number
    found = type.__dict__["__dict__"].__get__(kind).get("__proctor_class__")
    return found if type(found) is int else None


# ------------------------------------------------------------------- content and exceptions

_FROZEN = (int, float, complex, str, bytes, tuple, frozenset)
_FROZEN_NAMES = frozenset(["decimal.Decimal", "fractions.Fraction"])
_MUTABLE = (list, dict, set, bytearray, collections.OrderedDict, collections.Counter)


def _attribute(tests: Any) -> Any:
    """Make ``__getattr__`` for local classes with instances of the submission."""

    def attribute(self: Any, name: str) -> Any:
        if is_dunder(name):
            raise AttributeError(name)
        return tests.content_attribute(self, name)

    return attribute


def _is_frozen(base: Any) -> bool:
    return base in _FROZEN or f"{base.__module__}.{base.__qualname__}" in _FROZEN_NAMES


def content_class(info: Any, base: Any, tests: Any) -> Any:
    """Make a local class for the submission's subclass of a built-in type; None if unsupported."""
    if not _is_frozen(base) and base not in _MUTABLE:
        return None

    members = {
        "__module__": "solution",
        "__proctor_class__": info.number,
        "__proctor_base__": base,
        "__getattr__": _attribute(tests),
        "__copy__": lambda self: base(self),
        "__deepcopy__": lambda self, memo: _deep_copy(base(self), memo),
        "__reduce_ex__": lambda self, protocol: (base, (base(self),)),
    }
    return type(info.name, (base,), members)


def _deep_copy(value: Any, memo: Any) -> Any:
    import copy

    return copy.deepcopy(value, memo)


def make_content(cls: Any, base: Any, value: Any, reference: Reference) -> Any:
    """Make an instance of a class from ``content_class``."""
    if _is_frozen(base):
        content = base.__new__(cls, value)
    else:
        content = base.__new__(cls)
        base.__init__(content, value)
    content.__dict__[REFERENCE] = reference
    return content


class ExceptionClass(type):
    """Metaclass of the local classes for the submission's exception classes."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return vars(cls)["__proctor_tests__"].construct(cls, args, kwargs)

    def __getattr__(cls, name: str) -> Any:
        if is_dunder(name) or "__proctor_tests__" not in vars(cls):
            raise AttributeError(name)
        return vars(cls)["__proctor_tests__"].class_attribute(cls, name)


def exception_class(info: Any, bases: tuple[Any, ...], tests: Any) -> Any:
    """Make a local class for an exception class of the submission."""

    members = {
        "__module__": info.module or "solution",
        "__proctor_class__": info.number,
        "__proctor_tests__": tests,
        "__getattr__": _attribute(tests),
        "__str__": lambda self: self.__dict__.get("__proctor_text__", ""),
    }
    return ExceptionClass(info.name, bases, members)
