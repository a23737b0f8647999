"""Common base of both endpoints of a connection: classes, exceptions and iterators.

Each class description is sent once. Local generators, iterators and coroutines drive objects of the
other endpoint, so ``list``, ``next``, ``yield from``, ``StopIteration.value``, ``await`` and
``asyncio.gather`` work. A remote coroutine runs to its end in a single request.
"""

from __future__ import annotations

import collections
import importlib
import itertools
import types
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any

from ...codec.introspection import derives
from ...codec.limits import Malformed
from .connection import Connection
from .exported_classes import REFERENCE, Built, describe_class, encode_exception
from .object_operations import AWAITED, OPERATIONS
from .references import Reference, find_standard_class, standard_class

_type, _str, _int, _list, _dict = type, str, int, list, dict
_own_fields = vars(BaseException)["__dict__"].__get__
_import_module = importlib.import_module
_MOST_NAMES = 5000
_SEQUENCES: tuple[Any, ...] = (
    *((), [], {}, "", "é", b"", bytearray(), range(0), range(1 << 70), collections.deque()),
)
_VIEWS: tuple[Any, ...] = ({}.values(), {}.items())
_SAMPLES: tuple[Any, ...] = (
    *(iter(each) for each in _SEQUENCES),
    *(iter(each) for each in (set(), *_VIEWS, collections.OrderedDict())),
    *(reversed(each) for each in (*_SEQUENCES, *_VIEWS)),
    *(iter(int, 0), iter(collections.OrderedDict().items())),
    *(map(int, ()), filter(None, ()), zip(), enumerate(())),
)
_ITERTOOLS = (item for item in vars(itertools).values() if isinstance(item, type))
ITERATOR_KINDS: dict[type, str] = {
    **{type(sample): "iterator" for sample in _SAMPLES},
    **{item: "iterator" for item in _ITERTOOLS if hasattr(item, "__next__")},
    types.GeneratorType: "generator",
    types.CoroutineType: "coroutine",
    types.AsyncGeneratorType: "async_generator",
}
KINDS = frozenset(ITERATOR_KINDS.values())


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

    # Hooks that an endpoint may override.

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


class EventLoop:
    """Event loop for an endpoint's coroutines; the loop is kept, so that its tasks continue."""

    def __init__(self) -> None:
        self._loop: Any = None

    def drive(self, awaitable: Any) -> Any:
        """Run an awaitable to its end, even inside a running loop, and return the result."""
        asyncio: Any = _import_module("asyncio")

        async def main() -> Any:
            return await awaitable

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        own = self._loop
        loop = asyncio.new_event_loop() if own.is_running() else own
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return loop.run_until_complete(main())
        finally:
            asyncio._set_running_loop(running)
            if loop is not own:
                loop.close()


def local_version(side: Any, kind: str, reference: Any) -> Any:
    """Make a generator, coroutine or asynchronous generator that drives a remote object."""
    makers: dict[str, Any] = {"coroutine": _coroutine, "async_generator": _async_generator}
    return makers.get(kind, _generator)(side, reference, kind)


def _generator(side: Any, reference: Any, kind: str) -> Generator[Any, Any, Any]:
    step: tuple[Any, ...] = ("next", reference)
    while True:
        try:
            item = side.ask(*step)
        except StopIteration as stop:
            return stop.value
        try:
            sent = yield item
            step = ("next", reference) if sent is None else ("send", reference, sent)
        except GeneratorExit:
            # Garbage collection also drops the remote generator; only an explicit close() needs a
            # request.
            if kind == "generator" and side.connection.references.view(reference) is not None:
                side.ask("close", reference)
            raise
        except BaseException as error:
            if kind != "generator":
                raise
            step = ("throw", reference, error)


async def _coroutine(side: Any, reference: Any, kind: str) -> Coroutine[Any, Any, Any]:
    result: Coroutine[Any, Any, Any] = side.ask("await", reference)
    return result


async def _async_generator(side: Any, reference: Any, kind: str) -> AsyncGenerator[Any, Any]:
    step: tuple[Any, ...] = ("anext", reference)
    while True:
        try:
            item = side.ask(*step)
        except StopAsyncIteration:
            return
        try:
            sent = yield item
            step = ("anext", reference) if sent is None else ("asend", reference, sent)
        except GeneratorExit:
            if side.connection.references.view(reference) is not None:
                side.ask("aclose", reference)
            raise
        except BaseException as error:
            step = ("athrow", reference, error)
