"""Common base of both endpoints of a connection: class descriptions, sent once, and exceptions."""

from __future__ import annotations

from typing import Any

from ...codec.introspection import derives
from ...codec.limits import Malformed
from .connection import Connection
from .exported_classes import REFERENCE, Built, describe_class, encode_exception
from .importable_names import find_standard_class, standard_class
from .iterators import KINDS, EventLoop, local_version
from .object_operations import AWAITED, OPERATIONS
from .references import Reference

_type, _str, _int, _list, _dict = type, str, int, list, dict
_own_fields = vars(BaseException)["__dict__"].__get__
_MOST_NAMES = 5000


class ClassInfo:
    """Description of a remote class: name, bases, method resolution order, special methods."""

    __slots__ = ("bases", "failure", "module", "mro", "name", "number", "special", "text")

    def __init__(self, number: int, info: Any) -> None:
        if _type(info) is not _dict:
            raise Malformed("not a class")
        self.number = number
        self.name = _identifier(info.get("name"))
        self.module = _text(info.get("module"))
        self.text = _text(info.get("text"))
        self.bases = _entries(info.get("bases"))
        mro = _entries(info.get("mro"))
        self.mro = frozenset(each for each in mro if _type(each) is _int)
        # First standard exception class of the MRO, used to make the local exception.
        standard = (find_exception(each) for each in mro if _type(each) is _list)
        self.failure: Any = next((each for each in standard if each is not None), None)
        special = info.get("special")
        names = special if _type(special) is _list and len(special) <= _MOST_NAMES else []
        self.special = frozenset(name for name in names if _type(name) is _str)


def find_exception(wire: Any) -> Any:
    """Return the standard exception class named by ``[module, name]``, else None."""
    try:
        found = find_standard_class(wire)
    except Malformed:
        return None
    return found if issubclass(found, BaseException) else None


def _text(value: Any) -> str:
    return value[:200] if _type(value) is _str else ""


def _identifier(value: Any) -> str:
    name = _text(value).rpartition(".")[2]
    return name if name.isidentifier() else "object"


def _entries(value: Any) -> list[Any]:
    if _type(value) is not _list or len(value) > _MOST_NAMES:
        raise Malformed("not a class")
    return list(value)


class Endpoint:
    """Base class; subclasses transfer objects by ``describe``, ``resolve`` and ``build_class``."""

    def __init__(self, channel: Any, first: int) -> None:
        self.connection = Connection(channel, self, first)
        self.event_loop = EventLoop()
        self.classes: dict[int, ClassInfo] = {}
        self._built: dict[int, Any] = {}
        self._told: set[int] = set()

    def ask(self, operation: str, *operands: Any) -> Any:
        """Send a request to the other endpoint."""
        return self.connection.request(operation, *operands)

    # Hooks that the tests' endpoint overrides; the submission may raise and print freely.

    def options(self) -> Any:
        """Return the options to send with a request, or None."""
        return None

    def heard(self, brought: Any) -> None:
        """Handle the extra data of an answer."""

    def failed(self, error: BaseException) -> None:
        """Record an exception raised while serving a request."""

    def arrived(self, error: BaseException, places: Any) -> BaseException:
        """Return the exception to raise here for a remote exception with its failure positions."""
        return error

    # ---------------------------------------------------------------- classes

    def class_number(self, cls: Any) -> int:
        """Return the number of a local class; on first use, queue its description."""
        number = self.connection.exports.number(cls, keep=True)
        if number not in self._told:
            self._told.add(number)
            info = describe_class(cls, self.class_number)
            self.connection.classes_to_tell.append([number, info])
        return number

    def learn(self, classes: Any) -> None:
        """Store received class descriptions. Raises ``Malformed``."""
        for number, info in classes:
            if _type(number) is not _int:
                raise Malformed("not a class")
            if number not in self.classes:
                self.classes[number] = ClassInfo(number, info)

    def local_class(self, number: Any) -> Any:
        """Return the local class for a remote class. Raises ``Malformed``."""
        if number not in self._built:
            info = self.classes.get(number)
            if info is None:
                raise Malformed("an unknown class")
            self._built[number] = None  # under construction: a class is not its own base
            try:
                self._built[number] = self.build_class(info)
            except (TypeError, ValueError):
                raise Malformed("a class that can't be built") from None
        cls = self._built[number]
        if cls is None:
            raise Malformed("a class that can't be built")
        return cls

    def build_class(self, info: ClassInfo) -> Any:
        """Build the local class for a description."""
        raise NotImplementedError

    # ---------------------------------------------------------------- objects

    def describe_exception(self, error: Any, encoder: Any, number: int, told: bool) -> list[Any]:
        """Return the wire form of a local exception."""
        standard = standard_class(_type(error))
        cls = self.class_number(_type(error)) if standard is None else standard
        return encode_exception(error, encoder, number, cls, told)

    def resolve_exception(self, wire: list[Any], decoder: Any) -> Any:
        """Return the local exception for a received wire form."""
        built = Built(wire, decoder, self.local_class)
        if not built.number:
            return built.make(built.cls)
        references = self.connection.references
        reference = references.get(built.number)
        present = references.view(reference)
        if present is not None:
            return present
        own = _type(wire[2]) is _int
        error = built.make(self.classes[wire[2]].failure if own else built.cls)
        error.__dict__[REFERENCE] = reference
        if own:
            reference.class_number = wire[2]
            error.__dict__["__proctor_text__"] = built.text
            references.stand(error, reference)
        return error

    def resolve_iterator(self, kind: str, number: int) -> Any:
        """Return the local generator or coroutine for a remote object."""
        references = self.connection.references
        reference = references.get(number)
        present = references.view(reference)
        if present is None:
            present = local_version(self, kind, reference)
            references.stand(present, reference)
        return present

    def number_of(self, value: Any) -> int | None:
        """Return the number of the remote object behind a local value, else None."""
        kind = _type(value)
        if kind is Reference:
            found: int = value.number
            return found
        if kind in _PLAIN:
            return None
        reference = self.connection.references.of(value)
        if reference is None and derives(kind, BaseException):
            fields = _own_fields(value)
            reference = fields.get(REFERENCE) if _type(fields) is _dict else None
        return reference.number if isinstance(reference, Reference) else None

    def carry_out(self, operation: str, operands: Any) -> Any:
        """Return the result of an operation on a local object."""
        if operation in AWAITED:
            return self.event_loop.drive(AWAITED[operation](*operands))
        return OPERATIONS[operation](*operands)


_PLAIN = (list, tuple, dict, set)


def kind_and_number(wire: list[Any]) -> tuple[str, int, dict[str, Any]]:
    """Return the kind, number and facts of ``["h", number, facts]``. Raises ``Malformed``."""
    if len(wire) not in (3, 4) or wire[0] != "h" or _type(wire[1]) is not _int:
        raise Malformed("not an object")
    info = wire[2]
    kind = info.get("k") if _type(info) is _dict else None
    if _type(kind) is not _str or kind not in KINDS | {"class", "content", "object", "function"}:
        raise Malformed("not an object")
    return kind, wire[1], info
