"""What the owner of an object tells the other side about it.

    ["h", id, {"c": class, ...}]     an object: its class, the content of a built-in base
    ["h", id, {"k": "class", ...}]   a class: name, bases, the special methods it has
    ["h", id, {"k": "generator"}]    a generator, a coroutine, an asynchronous generator
    ["h", id]                        the same again, while the other side holds it
    ["e", class, args]               an exception of a class that both sides have
    ["n", module, name]              what both can import

Only ``type(x)`` and the built-in descriptors are used, so no code of the object runs.
"""

import types
from collections.abc import Callable
from typing import Any

from . import names
from .encoding import _BASES, _TYPE_NAMES, Encoder, class_mro, class_name, derives
from .operations import FORWARDERS
from .sharing import MUTABLE, Shared

_type, _id, _str, _tuple = type, id, str, tuple
_bases = type.__dict__["__bases__"].__get__
_members = type.__dict__["__dict__"].__get__
_args: Callable[[BaseException], Any] = vars(BaseException)["args"].__get__
_drop_traceback = vars(BaseException)["__traceback__"].__set__
_traceback: Callable[[BaseException], Any] = vars(BaseException)["__traceback__"].__get__
_own_fields: Callable[[BaseException], Any] = vars(BaseException)["__dict__"].__get__
_CHAIN: dict[str, Callable[[BaseException], Any]] = {
    name: vars(BaseException)[name].__get__ for name in ("__cause__", "__context__")
}
_FIELDS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_exception_text = BaseException.__str__

_KINDS = {
    types.GeneratorType: "generator",
    types.CoroutineType: "coroutine",
    types.AsyncGeneratorType: "async_generator",
}
_SPECIAL = frozenset(FORWARDERS)
_HIDDEN = (types.ModuleType, types.FrameType, types.CodeType, types.TracebackType)


class Owned:
    """The objects of this side that the other side holds references to."""

    def __init__(self, shared: Shared, trusted_receiver: bool) -> None:
        self._shared = shared
        # The side of the tests hands out nothing that can be walked, and names anything; the side
        # of the submission names only what would be followed.
        self._guarded = not trusted_receiver
        self._next = 1
        self._objects: dict[int, Any] = {}
        self._ids: dict[int, int] = {}
        self._told: set[int] = set()

    def object(self, number: Any) -> Any:
        """The object of a number; ``KeyError`` if the other side doesn't hold it."""
        return self._objects[number]

    def number(self, value: Any) -> int:
        """The number by which the other side will know an object."""
        return self._export(value)

    def holds(self, value: Any) -> bool:
        """Whether the other side may refer to an object."""
        return _id(value) in self._ids

    def drop(self, number: Any) -> None:
        """The other side no longer holds this."""
        value = self._objects.pop(number, None)
        if self._ids.get(_id(value)) == number:
            del self._ids[_id(value)]
            self._shared.untrack(value)
        self._told.discard(number)

    def tell_again(self, number: Any) -> Any:
        """The object of a number, to be described in full."""
        value = self._objects[number]
        self._told.discard(number)
        return value

    def _export(self, value: Any) -> int:
        number = self._ids.get(_id(value))
        if number is None:
            number = self._next
            self._next += 1
            self._ids[_id(value)] = number
            self._objects[number] = value
        return number

    def reopen(self, value: Any) -> Any:
        """How an object is named inside its own content, where that is possible."""
        number = self._ids.get(_id(value))
        mutable = derives(_type(value), *MUTABLE)
        return ["p", number] if mutable and number is not None else None

    def describe(self, value: Any, encoder: Encoder) -> Any:
        """What stands for an object that isn't plain."""
        named = self._name(value)
        if named is not None:
            return named
        cls = _type(value)
        if derives(cls, type):
            return self.describe_class(value, encoder)
        if self._guarded and derives(cls, *_HIDDEN):
            raise TypeError(f"a {class_name(cls)} can't be passed to the submission")
        failed = derives(cls, BaseException)
        if failed and (_id(cls) in _TYPE_NAMES or self._followed(cls)):
            facts = self._facts(value, encoder)
            return ["e", encoder.visit(cls), self._visit_args(value, encoder), *facts]
        number = self._export(value)
        if number in self._told:
            return ["h", number]
        self._told.add(number)
        if cls in _KINDS:
            return ["h", number, {"k": _KINDS[cls]}]
        info: dict[str, Any] = {"c": self.describe_class(cls, encoder)}
        if failed:
            info["x"] = self._visit_args(value, encoder)
            facts = self._facts(value, encoder)
            if facts:
                info["f"] = facts[0]
            _drop_traceback(value, None)
        for base in class_mro(cls):
            if any(base is each for each in MUTABLE):
                self._shared.track(["p", number], base, value)
                break
        return ["h", number, info]

    def _name(self, value: Any) -> list[Any] | None:
        return names.name_of(value) if self._guarded else names.followed(value)

    def _followed(self, cls: type) -> bool:
        return self._name(cls) is not None

    def _visit_args(self, error: BaseException, encoder: Encoder) -> Any:
        args = _args(error)
        return encoder.visit(args if _type(args) is _tuple else ())

    def _facts(self, error: BaseException, encoder: Encoder) -> list[Any]:
        """What an exception holds besides its arguments: nothing that the tests' side has."""
        if self._guarded:
            return []
        found = {name: get(error) for name, get in _CHAIN.items()}
        found = {name: value for name, value in found.items() if not encoder.is_open(value)}
        for base in class_mro(_type(error)):
            members = _members(base)
            for name in members if _type(base) is type else ():
                if _type(members[name]) in _FIELDS and name not in ("args", *_CHAIN):
                    found[name] = _field(members[name], error)
            if base is Exception:
                break
        own = _own_fields(error)
        for name in own if _type(own) is dict else ():
            if _type(name) is _str and (name == "__notes__" or name[:1] != "_"):
                found[name] = own[name]
        facts = {}
        for name, value in found.items():
            plain = _type(value) in (str, int)
            failed = name in _CHAIN and derives(_type(value), BaseException)
            if plain or failed or name == "__notes__":
                facts[name] = encoder.visit(value)
        return [facts] if facts else []

    def describe_class(self, cls: type, encoder: Encoder) -> Any:
        """A class, as such or as that of an object."""
        number = self._export(cls)
        if number in self._told:
            return ["h", number]
        self._told.add(number)
        bases = []
        for base in _bases(cls):
            if _id(base) in _TYPE_NAMES or self._followed(base):
                if derives(base, BaseException):
                    bases.append(encoder.visit(base))
            else:
                bases.append(self.describe_class(base, encoder))
        module, _, name = class_name(cls).rpartition(".")
        data = next((base for base in class_mro(cls) if _id(base) in _BASES), None)
        info = {
            "k": "class",
            "name": name,
            "mod": module,
            "bases": bases,
            "data": None if data is None else encoder.visit(data),
            "flags": _flags(cls),
            "own": [] if data is None else _own(cls, data),
        }
        return ["h", number, info]


def _field(descriptor: Any, error: BaseException) -> Any:
    try:
        return descriptor.__get__(error)
    except AttributeError:
        return None


def _flags(cls: type) -> list[str]:
    """The special methods of a class, those of ``object`` aside; ``!`` marks what is set to None."""
    found: dict[str, bool] = {}
    for base in class_mro(cls):
        if base is object:
            continue
        members = _members(base)
        for name in _SPECIAL.intersection(name for name in members if _type(name) is _str):
            found.setdefault(name, members[name] is not None)
    return sorted(name if there else f"!{name}" for name, there in found.items())


def _own(cls: type, data: type) -> list[str]:
    """The names that classes of the submission put before those of their built-in base."""
    found: set[str] = set()
    before = True
    for base in class_mro(cls):
        before = before and base is not data
        names_of_base = [name for name in _members(base) if _type(name) is _str]
        if before:
            found.update(names_of_base)
        elif base is not object:
            found.update(name for name in names_of_base if not hasattr(data, name))
    shadowing = {name for name in found if name in _SPECIAL or name in dir(data)}
    return sorted(shadowing)


def message_of(error: BaseException) -> str:
    """The text of an exception, without its own ``__str__``."""
    try:
        return _exception_text(error)[:2000]
    except Exception:
        return ""


def where(error: BaseException) -> str:
    """The last places of a failure, innermost last."""
    places: list[tuple[str, str]] = []
    trace = _traceback(error)
    while trace is not None and len(places) < 2000:
        code = trace.tb_frame.f_code
        places.append((code.co_filename, f"line {trace.tb_lineno} in {code.co_name}"))
        trace = trace.tb_next
    shown = [place for file, place in places if file != _FILE and _folder(file) != _folder(_FILE)]
    return ", ".join(shown[-3:])


def _folder(file: str) -> str:
    folder, slash, _ = file.rpartition("/")
    # A name without a folder is the submission's, or a text that came over a socket.
    return folder if slash else file


_FILE = where.__code__.co_filename
