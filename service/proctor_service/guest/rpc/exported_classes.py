"""Descriptions of classes and exceptions for the other endpoint.

    description   [number, {"name", "module", "bases", "mro", "special", "text"}]
    exception     ["e", number, class, text, arguments, facts]

A class is named by its number, or by ``[module, name]`` if both endpoints have the class. Only
``type(x)`` and the descriptors of built-in types are used, so no code of the object runs, except
for the text of an exception.
"""

from __future__ import annotations

import types
from typing import Any

from ...codec.introspection import class_members, class_mro, class_name, derives
from ...codec.limits import Malformed
from .references import find_standard_class, standard_class

_type, _str = type, str
_bases = type.__dict__["__bases__"].__get__
_args = vars(BaseException)["args"].__get__
_traceback = vars(BaseException)["__traceback__"].__get__
_own_fields = vars(BaseException)["__dict__"].__get__
_CHAIN = {name: vars(BaseException)[name].__get__ for name in ("__cause__", "__context__")}
_FIELDS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_MOST_TEXT = 10_000
_MOST_PLACES = 3
_SOLUTION = "/solution.py"
# Marks of an exception from the other endpoint, stored in its ``__dict__``.
TRACE, NAMES, REFERENCE = "__proctor_trace__", "__proctor_names__", "__proctor_reference__"


def describe_class(cls: Any, number_of: Any) -> dict[str, Any]:
    """Return a class's description; ``number_of`` gives the numbers of referenced classes."""
    module, _, name = class_name(cls).rpartition(".")
    special: dict[str, bool] = {}
    for base in class_mro(cls):
        if base is not object:
            members = class_members(base)
            for key in members:
                if _type(key) is _str and key[:2] == "__":
                    special.setdefault(key, members[key] is not None)
    return {
        "name": name,
        "module": module,
        "bases": [_named(base, number_of) for base in _bases(cls)],
        "mro": [_named(base, number_of) for base in class_mro(cls)[1:]],
        "special": [key for key, there in special.items() if there],
        "text": class_name(cls),
    }


def _named(cls: Any, number_of: Any) -> Any:
    standard = standard_class(cls)
    return number_of(cls) if standard is None else standard


_CONTROL = {
    "SystemExit": "SystemExit",
    "KeyboardInterrupt": "KeyboardInterrupt",
    "GeneratorExit": "GeneratorExit",
    "asyncio.exceptions.CancelledError": "CancelledError",
    "concurrent.futures._base.CancelledError": "CancelledError",
    "unittest.case.SkipTest": "SkipTest",
    **{f"_pytest.outcomes.{name}": name for name in ("Skipped", "Failed", "Exit", "XFailed")},
    "_pytest.outcomes.OutcomeException": "OutcomeException",
}


ALL_CONTROL = frozenset(_CONTROL.values())


def is_made_here(cls: Any) -> bool:
    """Tell whether a class represents a remote class; its name and module are not trusted."""
    return "__proctor_class__" in class_members(cls)


def control_names(error: BaseException) -> set[str]:
    """Return the names of the exception's classes that end a test or a program."""
    found = set()
    for cls in class_mro(_type(error)):
        name = class_name(cls)
        if name in _CONTROL and not is_made_here(cls):
            found.add(_CONTROL[name])
    return found


def names_of(error: BaseException) -> list[str]:
    """Return the names of an exception's classes, most derived first."""
    return [class_name(cls).rpartition(".")[2] for cls in class_mro(_type(error))]


def places_of(error: BaseException) -> list[list[Any]]:
    """Return ``[line, function]`` of a failure's last frames in the submission, innermost last."""
    places: list[list[Any]] = []
    trace = _traceback(error)
    while trace is not None and len(places) < 2000:
        code = trace.tb_frame.f_code
        if code.co_filename.endswith(_SOLUTION) or code.co_filename == "<submission>":
            places.append([trace.tb_lineno, code.co_name[:80]])
        trace = trace.tb_next
    return places[-_MOST_PLACES:]


def checked_places(places: Any) -> list[tuple[int, str]]:
    """Return (line, function) of received failure positions; drop invalid entries."""
    found = []
    for place in places[-_MOST_PLACES:] if type(places) is list else []:
        if type(place) is list and [type(part) for part in place] == [int, str]:
            found.append((min(max(place[0], 0), 100_000), place[1][:80]))
    return found


def encode_exception(error: Any, encoder: Any, number: int, cls: Any, told: bool) -> list[Any]:
    """Return the wire form of an exception; text, arguments and fields only if ``told``."""
    if not told:
        return ["e", number, cls, "", encoder.visit(()), {}]
    text = _text_of(error)
    arguments = encoder.visit(_arguments(error))
    facts = {name: encoder.visit(value) for name, value in _facts(error, encoder).items()}
    return ["e", number, cls, text, arguments, facts]


def _arguments(error: BaseException) -> Any:
    args = _args(error)
    return args if _type(args) is tuple else ()


def _text_of(error: BaseException) -> str:
    try:
        text = _str(error)
    except BaseException:
        return ""
    return _str.__str__(text)[:_MOST_TEXT]


def _facts(error: BaseException, encoder: Any) -> dict[str, Any]:
    """Return the cause, the context, the notes, and fields such as ``errno``."""
    facts: dict[str, Any] = {}
    for name, get in _CHAIN.items():
        value = get(error)
        if derives(_type(value), BaseException) and not encoder.is_open(value):
            facts[name] = value
    for base in class_mro(_type(error)):
        members = class_members(base) if _type(base) is _type else {}
        for name in members:
            if _type(members[name]) in _FIELDS and name not in ("args", *_CHAIN):
                try:
                    facts.setdefault(name, members[name].__get__(error))
                except AttributeError:
                    continue
        if base is Exception:
            break
    own = _own_fields(error)
    for name in own if _type(own) is dict else ():
        if _type(name) is _str and (name == "__notes__" or name[:1] != "_"):
            facts.setdefault(name, own[name])
    plain = (_str, int, float)
    return {
        name: value
        for name, value in facts.items()
        if name in _CHAIN or name == "__notes__" or _type(value) in plain
    }


class Built:
    """A received exception: its local class, number, text, arguments and fields."""

    __slots__ = ("arguments", "cls", "facts", "number", "text")

    def __init__(self, wire: list[Any], decoder: Any, find_class: Any) -> None:
        if len(wire) != 6:
            raise Malformed("not an exception")
        _, number, named, text, arguments, facts = wire
        self.cls = find_class(named) if _type(named) is int else find_standard_class(named)
        if not issubclass(self.cls, BaseException) or _type(number) is not int:
            raise Malformed("not an exception")
        self.number = number
        self.text = text[:_MOST_TEXT] if _type(text) is _str else ""
        self.arguments = decoder.visit(arguments)
        if _type(self.arguments) is not tuple or _type(facts) is not dict:
            raise Malformed("not an exception")
        self.facts = {name: decoder.visit(value) for name, value in facts.items()}

    def make(self, plain: Any) -> Any:
        """Make the exception; ``plain`` is the standard class that provides ``__new__``."""
        error: Any = None
        if plain is self.cls:
            try:
                error = self.cls(*self.arguments)
            except Exception:
                error = None
        if not isinstance(error, BaseException):
            try:
                error = plain.__new__(self.cls, *self.arguments)
            except Exception:
                error = BaseException.__new__(self.cls)
            vars(BaseException)["args"].__set__(error, self.arguments)
        self._add_facts(error, own=plain is self.cls)
        return error

    def _add_facts(self, error: Any, own: bool) -> None:
        for name, value in self.facts.items():
            if name in _CHAIN:
                if isinstance(value, BaseException) and value is not error:
                    vars(BaseException)[name].__set__(error, value)
            elif name == "__notes__":
                if type(value) is list:
                    error.__dict__[name] = value
            elif type(value) in (str, int, float) and name[:1] != "_":
                if not (own or _is_field(error, name)):
                    continue
                try:
                    BaseException.__setattr__(error, name, value)
                except (AttributeError, TypeError, ValueError):
                    continue


def _is_field(error: BaseException, name: str) -> bool:
    for base in type(error).__mro__:
        if name in vars(base):
            return type(vars(base)[name]) in _FIELDS
    return False


def nearest_standard(cls: Any) -> Any:
    """Return the first class in an exception's MRO that represents no remote class."""
    for base in class_mro(cls):
        if not is_made_here(base):
            return base
    return Exception
