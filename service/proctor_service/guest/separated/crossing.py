"""Values crossing between the two interpreters besides data: exceptions, iterators, awaitables, and names.

An exception is ``["e", number, class names, text, arguments, places, fields]``. The receiver makes an
instance of the first of its classes known from a library, or of a derived class with the same name. Only
``type(x)`` and the descriptors of built-in types are used, so no code of the object runs, except for the
text and the fields of an exception.
"""

from __future__ import annotations

import builtins
import importlib
import sys
import types
from typing import Any

from ...codec.introspection import class_members, class_mro, class_name
from ...codec.limits import Malformed

_type, _str = type, str
_args = vars(BaseException)["args"].__get__
_traceback = vars(BaseException)["__traceback__"].__get__
_module_dict = vars(types.ModuleType)["__dict__"].__get__
_modules = sys.modules
_import_module = importlib.import_module
_MOST_TEXT = 10_000
_MOST_NAMES = 50
_MOST_PLACES = 3
_SOLUTION = "/solution.py"
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)
_FIELDS = (
    *(
        "code",
        "colno",
        "doc",
        "encoding",
        "end",
        "errno",
        "expected",
        "filename",
        "lineno",
        "msg",
        "name",
    ),
    *("object", "offset", "pos", "reason", "start", "strerror", "text"),
)
"""Fields of exceptions open to tests (`judge/analysis/functions.py`)."""
# An exception of a test framework ends a test; the submission may not choose how.
_NOT_OF = ("unittest", "_pytest", "pytest")
TRACE, NUMBER = "__proctor_trace__", "__proctor_number__"
"""Marks of an exception from the other side, in its ``__dict__``: places, and number, if any."""


def names_of(error: BaseException) -> list[str]:
    """Return the full names of an exception's classes, most derived first."""
    return [class_name(cls) for cls in class_mro(_type(error))][:_MOST_NAMES]


def places_of(error: BaseException) -> list[list[Any]]:
    """Return ``[line, function]`` of a failure's last frames in the submission, innermost last."""
    places: list[list[Any]] = []
    trace = _traceback(error)
    while trace is not None and len(places) < 2000:
        code = trace.tb_frame.f_code
        if code.co_filename.endswith(_SOLUTION):
            places.append([trace.tb_lineno, code.co_name[:80]])
        trace = trace.tb_next
    return places[-_MOST_PLACES:]


def checked_places(places: Any) -> list[tuple[int, str]]:
    """Return (line, function) of received places; invalid ones are dropped."""
    found = []
    for place in places[-_MOST_PLACES:] if type(places) is list else []:
        if type(place) is list and [type(part) for part in place] == [int, str]:
            found.append((min(max(place[0], 0), 100_000), place[1][:80]))
    return found


def describe_exception(error: BaseException, encoder: Any, number: int = 0) -> list[Any]:
    """Return the wire form of an exception; ``number``: of the sender's object, 0 for a copy."""
    try:
        text = _str.__str__(_str(error))[:_MOST_TEXT]
    except BaseException:
        text = ""
    args = _args(error)
    arguments = encoder.visit(args if _type(args) is tuple else ())
    fields = {name: encoder.visit(value) for name, value in _fields_of(error)}
    return ["e", number, names_of(error), text, arguments, places_of(error), fields]


def _fields_of(error: BaseException) -> Any:
    for name in _FIELDS:
        try:
            value = getattr(error, name)
        except BaseException:
            continue
        if _type(value) in (_str, int, float, bytes, type(None)):
            yield name, value


def resolve_exception(wire: list[Any], decoder: Any) -> BaseException:
    """Return the local exception for a wire form. Raises ``Malformed``."""
    _, number, names, text, arguments, places, fields = wire
    args = decoder.visit(arguments)
    values = {name: decoder.visit(fields[name]) for name in _FIELDS if name in fields}
    if type(names) is not list or type(args) is not tuple or type(text) is not str:
        raise Malformed("not an exception")
    names = [name for name in names[:_MOST_NAMES] if type(name) is str]
    found, base = next(
        ((name, cls) for name, cls in ((each, _exception_class(each)) for each in names) if cls),
        ("", Exception),
    )
    error: BaseException
    if names and found == names[0]:
        error = _made(base, args)
    else:
        name = (names[0].rpartition(".")[2] if names else "") or "Exception"
        kind = type(name[:200], (base,), {"__module__": "solution", "__str__": lambda self: text})
        error = base.__new__(kind, *args) if base is Exception else _made(kind, args)
        vars(BaseException)["args"].__set__(error, args)
    for field, value in values.items():
        try:
            setattr(error, field, value)
        except (AttributeError, TypeError, ValueError):
            continue
    error.__dict__[TRACE] = checked_places(places)
    if type(number) is int and number:
        error.__dict__[NUMBER] = number
    return error


def _made(cls: Any, args: Any) -> Any:
    try:
        return cls(*args)
    except Exception:
        error = BaseException.__new__(cls)
        vars(BaseException)["args"].__set__(error, args)
        return error


def _exception_class(name: str) -> Any:
    """Return the exception class of a library loaded here, or None."""
    module, _, last = name.rpartition(".")
    if not module:
        found: Any = vars(builtins).get(last)
    elif module in ("solution", "__main__"):
        return None
    else:
        owner = _modules.get(module)
        found = _module_dict(owner).get(last) if _type(owner) is types.ModuleType else None
    if not (isinstance(found, type) and issubclass(found, Exception)):
        return None
    of = {base.__module__.partition(".")[0] for base in class_mro(found)}  # numpy has SkipTest, too
    ends = found in (StopIteration, StopAsyncIteration) or not of.isdisjoint(_NOT_OF)
    return None if ends else found


# ------------------------------------------------------------------- iterators and awaitables


def kind_of(cls: type) -> str:
    """Return the kind of a class's objects for the other side, or ""."""
    exact = _EXACT.get(id(cls), "")
    if exact:
        return exact
    if cls.__name__ in ("Future", "Task") and has(cls, "__await__"):
        return "awaitable"
    if not has(cls, "__next__"):
        return ""
    return "iterator" if has(cls, "__iter__") else "next"


_EXACT = {
    id(types.GeneratorType): "generator",
    id(types.AsyncGeneratorType): "async_generator",
    id(types.CoroutineType): "coroutine",
}


def has(cls: type, name: str) -> bool:
    """Return True if a class or a base defines a special method."""
    return any(name in class_members(base) for base in class_mro(cls))


def stand_in(conversation: Any, kind: str, number: int) -> Any:
    """Return the stand-in for an iterator or awaitable of the other side."""
    return STAND_INS[kind](conversation, number)


def _generator(conversation: Any, number: int) -> Any:
    while True:
        more, item = conversation.ask("next", number, "next")
        if not more:
            return item
        yield item


async def _async_generator(conversation: Any, number: int) -> Any:
    while True:
        more, item = conversation.ask("next", number, "next")
        if not more:
            return
        yield item


async def _coroutine(conversation: Any, number: int) -> Any:
    return conversation.ask("await", number)


class _StandIn:
    __slots__ = ("__weakref__", "_conversation", "_number")

    def __init__(self, conversation: Any, number: int) -> None:
        self._conversation, self._number = conversation, number


class _Next(_StandIn):
    """An object with answers decided by its class, also after its end."""

    __slots__ = ()

    def __bool__(self) -> Any:
        return self._conversation.ask("next", self._number, "bool")

    def __next__(self) -> Any:
        more, item = self._conversation.ask("next", self._number, "next")
        if more:
            return item
        raise StopIteration(item)


class Iterator(_Next):
    """Stands for an iterator other than a generator."""

    __slots__ = ()

    def __iter__(self) -> Any:
        return self._conversation.ask("next", self._number, "iter")


class Awaitable(_StandIn):
    """Stands for an awaitable other than a coroutine."""

    __slots__ = ()

    def __await__(self) -> Any:
        return self._conversation.ask("await", self._number)
        yield


STAND_INS: dict[str, Any] = {
    "generator": _generator,
    "async_generator": _async_generator,
    "coroutine": _coroutine,
    "next": _Next,
    "iterator": Iterator,
    "awaitable": Awaitable,
}
"""Stand-in of an object of the other side, by its kind."""


class EventLoop:
    """Event loop for a side's awaitables; the loop stays, so its tasks go on."""

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

    def step(self, iterator: Any, operation: Any) -> Any:
        """Return ``(True, item)``, or ``(False, result)`` after the last item; or the `iter` or `bool`."""
        if operation != "next":
            return iter(iterator) if operation == "iter" else bool(iterator)
        try:
            if hasattr(type(iterator), "__anext__"):
                return True, self.drive(type(iterator).__anext__(iterator))
            return True, next(iterator)
        except StopIteration as stop:
            return False, stop.value
        except StopAsyncIteration:
            return False, None


# ------------------------------------------------------------------- names


def importable_name(value: Any) -> list[Any] | None:
    """Return ``["n", module, name]`` for a function or class of a library, or None."""
    kind = _type(value)
    if kind in _FUNCTIONS:
        owner = getattr(value, "__objclass__", None)
        module = value.__module__ if owner is None else owner.__module__
        name = value.__qualname__
    elif any(base is type for base in class_mro(kind)):
        module, _, name = (f"builtins.{class_name(value)}").rpartition(".")
        module = module[len("builtins.") :] or "builtins"
    else:
        return None
    if type(module) is not str or module == "__main__":
        return None
    found: Any = _modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return ["n", module, name] if found is value else None


def find_importable(module: Any, name: Any) -> Any:
    """Import a name of the tests. Raises ``Malformed`` if the name is missing here."""
    try:
        found = _import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise Malformed(f"there is no {module}.{name} here") from error
    return found
