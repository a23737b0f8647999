"""Stand-ins for objects of the other side.

Each class over there gets one class here, with the same name, base classes and special methods, so
``isinstance``, ``type(x) is C``, ``except C`` and ``callable`` tell the truth. An instance of a
subclass of a built-in type is here an instance of that type, with its content. What the special
methods do is up to a policy: the side of the tests compares by its own rules (``trust``), the side
of the submission asks.
"""

import decimal
import sys
import types
from collections.abc import Callable
from typing import Any

from .decoding import Opaque
from .operations import COMPARISONS, COPIERS, FORWARDERS
from .refusals import Malformed
from .sharing import MUTABLE, contents, replace

VALUES: tuple[type, ...] = (int, str, float, complex, bytes, tuple, frozenset, decimal.Decimal)
_LOCAL = "__proctor_"
# Code is made of these: ``unittest.mock`` does. A class of their own would say what it is.
_TEXTS = frozenset(["__name__", "__qualname__", "__module__"])
_MAX_NAMES = 5000
# Methods of mutable containers that change nothing.
_TELLING = frozenset(["count", "index", "isdisjoint", "issubset", "issuperset"])


def peer_of(cls: Any) -> Any:
    """The peer through which a stand-in's class asks."""
    return cls.__proctor_peer__


class Mirror(type):
    """The class of the classes here that stand for classes there."""

    def __call__(cls, /, *args: Any, **kwargs: Any) -> Any:
        if "__proctor_peer__" not in cls.__dict__:
            if issubclass(cls, BaseException):
                return super().__call__(*args, **kwargs)
            raise TypeError("a class of the submission can't be subclassed by tests")
        return peer_of(cls).request("call", cls, args, tuple(kwargs.items()))

    def __getattr__(cls, name: str) -> Any:
        if name.startswith(_LOCAL):
            raise AttributeError(name)
        return peer_of(cls).request("get", cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        if name.startswith("__") or "__proctor_peer__" not in cls.__dict__:
            super().__setattr__(name, value)
        else:
            peer_of(cls).request("set", cls, name, value)

    def __delattr__(cls, name: str) -> None:
        peer_of(cls).request("del", cls, name)

    def __iter__(cls) -> Any:
        return peer_of(cls).request("iter", cls)

    def __len__(cls) -> int:
        return int(peer_of(cls).request("len", cls))

    def __bool__(cls) -> bool:
        return True

    def __getitem__(cls, key: Any) -> Any:
        return peer_of(cls).request("getitem", cls, key)

    def __contains__(cls, key: Any) -> bool:
        if not cls.__proctor_trusted__:
            return any(each is key or each == key for each in cls)
        return bool(peer_of(cls).request("contains", cls, key))


class Instance(metaclass=Mirror):
    """What stand-ins have in common: attributes are asked for."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith(_LOCAL):
            raise AttributeError(name)
        if name == "__signature__" and callable(self):
            return _signature(self)
        if name == "__code__" and callable(self):
            return _Code(self)
        if name == "__annotations__":
            return _annotations(self)
        value = peer_of(type(self)).request("get", self, name)
        if name in _TEXTS and isinstance(value, str):
            return str.__str__(value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # The interpreter says in these what was asked of whom, when one leaves `__getattr__`.
        context = name in ("name", "obj") and isinstance(self, AttributeError)
        if context or (name.startswith("__") and name.endswith("__")):
            super().__setattr__(name, value)
        else:
            peer_of(type(self)).request("set", self, name, value)

    def __delattr__(self, name: str) -> None:
        peer_of(type(self)).request("del", self, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("an object of the other side can't be pickled")


for _name, _method in COPIERS.items():
    type.__setattr__(Instance, _name, _method)


class _Code:
    """As much of a code object as tells what a function takes, and whether it is a coroutine's."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __getattr__(self, name: str) -> Any:
        function = self._function
        if name == "co_flags":
            flags = peer_of(type(function)).request("code_flags", function)
            return flags if type(flags) is int else 0
        parameters = _signature(function).parameters
        if name == "co_argcount":
            return len([p for p in parameters.values() if int(p.kind) < 2])
        if name == "co_varnames":
            return tuple(parameters)
        raise AttributeError(name)


def _signature(function: Any) -> Any:
    inspect: Any = sys.modules.get("inspect") or __import__("inspect")
    parts = peer_of(type(function)).request("signature", function)
    kinds = list(inspect._ParameterKind)
    empty = inspect.Parameter.empty
    return inspect.Signature(
        inspect.Parameter(name, kinds[kind], default=None if optional else empty)
        for name, kind, optional in parts
    )


def _annotations(thing: Any) -> Any:
    """Evaluated over there: a text would be evaluated here, by ``typing`` or ``inspect``."""
    found = peer_of(type(thing)).request("annotations", thing)
    if type(found) is not dict:
        raise AttributeError("__annotations__")
    return {
        name: Opaque("str") if isinstance(value, str) else value for name, value in found.items()
    }


class Attribute:
    """What a class here has a version of its own of, or its built-in base: asked for over there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: Any) -> Any:
        target = owner if instance is None else instance
        return peer_of(owner).request("get", target, self._name)

    def __set__(self, instance: Any, value: Any) -> None:
        peer_of(type(instance)).request("set", instance, self._name, value)


class _Content(Attribute):
    """The same where the class is not to be asked: a method is the one of the built-in base."""

    def __get__(self, instance: Any, owner: Any) -> Any:
        found = super().__get__(instance, owner)
        if not callable(found):
            return found
        return getattr(owner.__proctor_data__, self._name).__get__(instance, owner)


class Described:
    """A class as the other side describes it, checked."""

    def __init__(self, number: int, info: dict[str, Any], bases: list[Any], data: Any) -> None:
        self.number = number
        self.bases = [
            base
            for base in bases
            if isinstance(base, type) and (type(base) is Mirror or issubclass(base, BaseException))
        ]
        self.failure = any(issubclass(base, BaseException) for base in self.bases)
        known = isinstance(data, type) and (data in VALUES or data in MUTABLE)
        self.data: Any = data if known and not self.failure else None
        self.name = _text(info.get("name")) or "object"
        self.module = _text(info.get("mod")) or "builtins"
        self.flags = _texts(info.get("flags"))
        self.own = _texts(info.get("own"))


def _text(value: Any) -> str:
    return value[:200] if type(value) is str else ""


def _texts(value: Any) -> set[str]:
    if type(value) is not list or len(value) > _MAX_NAMES:
        return set()
    return {part for part in value if type(part) is str}


Policy = Callable[[Described], dict[str, Any]]
"""Chooses the special methods of a stand-in."""


def build(peer: Any, described: Described, policy: Policy) -> Any:
    """The class here for a class there."""
    members = {
        "__proctor_peer__": peer,
        "__proctor_class__": described.number,
        "__proctor_data__": described.data,
        "__proctor_trusted__": True,
        "__module__": described.module,
        "__qualname__": described.name,
        "__doc__": Attribute("__doc__"),
    }
    members.update(policy(described))
    if (described.module, described.name) == ("builtins", "function"):
        members["__class__"] = property(lambda self: types.FunctionType)
    if described.data is not None:
        # A class that nobody trusts can't tell otherwise than its content does.
        for name in described.own:
            if not name.startswith("_") and hasattr(described.data, name):
                tells = described.data in VALUES or name in _TELLING
                content = tells and not members["__proctor_trusted__"]
                members[name] = _Content(name) if content else Attribute(name)
    bases: list[Any] = sorted(described.bases, key=lambda base: type(base) is not Mirror)
    if not any(type(base) is Mirror for base in bases):
        bases.insert(0, Instance)
    if described.data is not None and not any(issubclass(b, described.data) for b in bases):
        bases.append(described.data)
    name = described.name.rpartition(".")[2]
    try:
        return Mirror(name, tuple(dict.fromkeys(bases)), members)
    except TypeError:
        # Over there the bases fit together in ways that built-in types here do not.
        members["__proctor_data__"] = None
        members = {key: value for key, value in members.items() if not isinstance(value, Attribute)}
        return Mirror(name, (Instance,), members)


def asking(described: Described) -> dict[str, Any]:
    """The policy of the submission's side: every special method asks."""
    names = described.flags if described.data is None else described.own
    members: dict[str, Any] = {name: FORWARDERS[name] for name in names if name in FORWARDERS}
    if any(name in members for name in COMPARISONS) and "__hash__" not in members:
        plain = described.data or object
        members["__hash__"] = None if "!__hash__" in described.flags else plain.__hash__
    return members


def make(cls: Any, content: Callable[[], Any], arguments: Any, keep: Callable[[Any], None]) -> Any:
    """An instance of a class that stands for another, ``keep`` being told of it once it exists."""
    data = cls.__proctor_data__
    if issubclass(cls, BaseException):
        value = _failure(cls, arguments)
        keep(value)
        return value
    if data in MUTABLE:
        value = data.__new__(cls)
        keep(value)
        _fill(data, value, content())
        return value
    if data is None:
        value = object.__new__(cls)
    else:
        plain = content()
        if type(plain) is not data:
            raise Malformed("not the content of its base")
        value = data.__new__(cls, plain)
    keep(value)
    return value


def _fill(data: Any, value: Any, plain: Any) -> None:
    if type(plain) is not data:
        raise Malformed("not the content of its base")
    if data.__name__ == "defaultdict":
        data.__init__(value, plain.default_factory)
    elif data.__name__ == "deque":
        data.__init__(value, (), plain.maxlen)
    replace(data, value, contents(data, plain))


def _failure(cls: Any, arguments: Any) -> Any:
    if type(arguments) is not tuple:
        raise Malformed("not the arguments of an exception")
    value = cls.__new__(cls)
    base = next(b for b in cls.__mro__ if type(b) is not Mirror and issubclass(b, BaseException))
    try:
        base.__init__(value, *arguments)
    except Exception:
        pass
    vars(BaseException)["args"].__set__(value, arguments)
    return value
