"""JSON to Python values, from a source that nobody trusts.

Whatever is wrong with the input raises ``Malformed``. No code is looked up by a name that the input
chose, sizes are checked before anything is built, and hashing is watched: a set of numbers chosen
to collide, or a tuple of shared tuples whose hash takes 2**60 steps, is refused instead of
computed.
"""

import collections
import time
from collections.abc import Callable, Iterable
from typing import Any

from . import library
from .encoding import BUILTIN_TYPES
from .refusals import MAX_BYTES, MAX_DEPTH, Malformed

_FEW = 1000
_CHUNK = 256
_MAX_HASH_STEPS = 1_000_000
_PENDING = object()


class Opaque:
    """What isn't plain: it has a class's name, equals nothing but itself, and can do nothing."""

    __slots__ = ("truth", "type_name")

    def __init__(self, type_name: str, truth: bool | None = None) -> None:
        self.type_name = type_name
        self.truth = truth

    def __repr__(self) -> str:
        return f"<{self.type_name} object>"


ResolveHandle = Callable[[list[Any], Any], Any]
"""Called with a reference as it arrived, and a function that decodes the content of its built-in
base (or answers ``NO_BASE``). Whatever else the reference holds must be decoded in the order in
which it was encoded."""

NO_BASE = object()


class Decoder:
    """One decoding. ``kept`` holds the containers in the order of their numbers."""

    def __init__(
        self,
        resolve_handle: ResolveHandle | None = None,
        known: Callable[[Any], Any] | None = None,
    ) -> None:
        self.kept: list[Any] = []
        self.wants_numpy = resolve_handle is not None
        self._resolve = resolve_handle
        self._known = known
        self._depth = 0
        self._hash_steps: dict[int, int] = {}

    def decode(self, wire: Any) -> Any:
        """The value of an encoding; may be called again, and numbers then go on."""
        try:
            return self.visit(wire)
        except Malformed:
            raise
        except Exception as error:
            raise Malformed(f"not an encoded value: {type(error).__name__}") from None

    def visit(self, wire: Any) -> Any:
        """One value and what it holds."""
        kind = type(wire)
        if kind is list:
            handler = _DECODERS.get(wire[0]) if wire and type(wire[0]) is str else None
            if handler is None:
                raise Malformed("unknown tag")
            self._depth += 1
            if self._depth > 2 * MAX_DEPTH:
                raise Malformed("nested too deep")
            value = handler(self, wire)
            self._depth -= 1
            return value
        if wire is None or kind is int or kind is str or kind is float or kind is bool:
            return wire
        raise Malformed("an object where a value belongs")

    def keep(self, value: Any) -> int:
        """Give a container the next number."""
        self.kept.append(value)
        return len(self.kept) - 1

    def opaque(self, name: str) -> Opaque:
        """A value that is not represented here."""
        return Opaque(name)

    def back(self, wire: list[Any]) -> Any:
        """A container met before."""
        (number,) = wire[1:]
        if type(number) is not int or not 0 <= number < len(self.kept):
            raise Malformed("a reference to nothing")
        value = self.kept[number]
        if value is _PENDING:
            raise Malformed("a value that contains itself")
        return value

    def known(self, wire: list[Any]) -> Any:
        """A container that an earlier message brought."""
        if self._known is None:
            raise Malformed("a reference to another message")
        return self._known(wire)

    def handle(self, wire: list[Any]) -> Any:
        """A reference to an object; without a resolver, what its built-in base holds."""
        number = self.keep(_PENDING)
        if self._resolve is not None:
            value = self._resolve(wire, lambda: self.content(wire))
        else:
            value = self.plain_handle(wire)
        self.kept[number] = value
        return value

    def content(self, wire: list[Any]) -> Any:
        """What the built-in base of a reference holds, or ``NO_BASE``."""
        info = wire[2] if len(wire) == 3 else None
        if type(info) is not dict or "base" not in info:
            return NO_BASE
        inner = len(self.kept)
        base = self.visit(info["base"])
        if len(self.kept) > inner:
            # The content is nobody's container: it is not shared, and nothing refers to it.
            self.kept[inner] = None
        return base

    def plain_handle(self, wire: list[Any]) -> Any:
        """A reference that nobody resolves."""
        info = wire[2] if len(wire) == 3 else {}
        if wire[0] != "h" or len(wire) < 2 or type(info) is not dict:
            raise Malformed("not a reference")
        value = self.content(wire)
        if value is NO_BASE:
            name, truth = info.get("type"), info.get("truth")
            name = name[:200] if type(name) is str else "?"
            value = Opaque(name, truth if type(truth) is bool else None)
        return value

    def frozen(self, build: Callable[[Iterable[Any]], Any], wire: list[Any]) -> Any:
        """A tuple or frozenset: built after its items, so that it can't contain itself."""
        number = self.keep(_PENDING)
        items = []
        for index in range(1, len(wire)):
            items.append(self.visit(wire[index]))
        if build is frozenset:
            value: Any = frozenset(self.hashed(items))
        else:
            value = build(items)
        self.kept[number] = value
        return value

    def fill_dict(self, target: Any, pairs: Iterable[Any]) -> Any:
        """Give a dict its number and put decoded pairs into it."""
        self.keep(target)
        return self.put_pairs(target, pairs)

    def put_pairs(self, target: Any, pairs: Iterable[Any]) -> Any:
        """Put decoded pairs into a dict."""
        keys, values = [], []
        for pair in pairs:
            if type(pair) is not list:
                raise Malformed("not a pair")
            key, value = pair
            keys.append(self.visit(key))
            values.append(self.visit(value))
        self.hashed(keys)
        for key, value in zip(keys, values, strict=True):
            target[key] = value
        return target

    def fill_set(self, target: set[Any], items: Iterable[Any]) -> set[Any]:
        """Give a set its number and put decoded items into it."""
        self.keep(target)
        found = []
        for part in items:
            found.append(self.visit(part))
        target.update(self.hashed(found))
        return target

    def hashed(self, items: list[Any]) -> list[Any]:
        """The items, if a table of them can be built in reasonable time."""
        for item in items:
            if self._steps(item) > _MAX_HASH_STEPS:
                raise Malformed("a value that is too costly to hash")
        if len(items) <= _FEW:
            return items
        distinct = len({*map(id, items)}), len({*map(hash, items)})
        if distinct[1] < distinct[0] // 2:
            raise Malformed("too many equal hashes")
        # Different hashes can still be chosen to collide in the table. Honest ones cost well under
        # a microsecond each; stand-ins ask the other side.
        allowed = 0.25 + len(items) * (2e-6 if self._resolve is None else 5e-4)
        end = time.thread_time() + allowed
        table: set[Any] = set()
        for start in range(0, len(items), _CHUNK):
            table.update(items[start : start + _CHUNK])
            if time.thread_time() > end:
                raise Malformed("hashes that collide")
        return items

    def _steps(self, item: Any) -> int:
        if type(item) is not tuple:
            return 1
        steps = self._hash_steps.get(id(item))
        if steps is None:
            steps = 1 + sum(map(self._steps, item))
            self._hash_steps[id(item)] = steps
        return steps


def decode(wire: Any, resolve_handle: ResolveHandle | None = None) -> Any:
    """The value of an encoding, or ``Malformed``.

    ``resolve_handle(reference, content)`` turns references into objects. Without it a reference to
    an instance of a subclass of a built-in type is that type's content, and any other reference an
    ``Opaque``.
    """
    return Decoder(resolve_handle).decode(wire)


def _big(decoder: Decoder, wire: list[Any]) -> int:
    (text,) = wire[1:]
    if type(text) is not str:
        raise Malformed("not an integer")
    return int(text, 16)


def _raw(wire: list[Any]) -> bytes:
    (text,) = wire[1:]
    if type(text) is not str or len(text) > 4 * MAX_BYTES:
        raise Malformed("not bytes")
    return bytes.fromhex(text)


def _bytearray(decoder: Decoder, wire: list[Any]) -> bytearray:
    value = bytearray(_raw(wire))
    decoder.keep(value)
    return value


def _list(decoder: Decoder, wire: list[Any]) -> list[Any]:
    value: list[Any] = []
    decoder.keep(value)
    append, visit = value.append, decoder.visit
    for index in range(1, len(wire)):
        append(visit(wire[index]))
    return value


def _deque(decoder: Decoder, wire: list[Any]) -> Any:
    length = wire[1]
    if length is not None and type(length) is not int:
        raise Malformed("not a length")
    value: collections.deque[Any] = collections.deque(maxlen=length)
    decoder.keep(value)
    value.extend(decoder.visit(part) for part in wire[2:])
    return value


def _default_dict(decoder: Decoder, wire: list[Any]) -> Any:
    factory = decoder.visit(wire[1])
    target: Any = collections.defaultdict(factory if callable(factory) else None)
    return decoder.fill_dict(target, wire[2:])


def _complex(decoder: Decoder, wire: list[Any]) -> complex:
    real, imag = wire[1:]
    if type(real) is not float or type(imag) is not float:
        raise Malformed("not a complex number")
    return complex(real, imag)


def _range(decoder: Decoder, wire: list[Any]) -> range:
    start, stop, step = (decoder.visit(part) for part in wire[1:])
    if not type(start) is type(stop) is type(step) is int:
        raise Malformed("not a range")
    return range(start, stop, step)


def _slice(decoder: Decoder, wire: list[Any]) -> slice:
    start, stop, step = (decoder.visit(part) for part in wire[1:])
    return slice(start, stop, step)


def _builtin_type(decoder: Decoder, wire: list[Any]) -> type:
    (name,) = wire[1:]
    if type(name) is not str or name not in BUILTIN_TYPES:
        raise Malformed("not a built-in type")
    return BUILTIN_TYPES[name]


def _keys_view(decoder: Decoder, wire: list[Any]) -> Any:
    return dict.fromkeys(decoder.hashed([decoder.visit(part) for part in wire[1:]])).keys()


def _items_view(decoder: Decoder, wire: list[Any]) -> Any:
    return decoder.put_pairs({}, wire[1:]).items()


_DECODERS: dict[str, Callable[[Decoder, list[Any]], Any]] = {
    **library.DECODERS,
    "i": _big,
    "b": lambda decoder, wire: _raw(wire),
    "ba": _bytearray,
    "c": _complex,
    "l": _list,
    "t": lambda decoder, wire: decoder.frozen(tuple, wire),
    "s": lambda decoder, wire: decoder.fill_set(set(), wire[1:]),
    "fs": lambda decoder, wire: decoder.frozen(frozenset, wire),
    "d": lambda decoder, wire: decoder.fill_dict({}, wire[1:]),
    "od": lambda decoder, wire: decoder.fill_dict(collections.OrderedDict(), wire[1:]),
    "cn": lambda decoder, wire: decoder.fill_dict(collections.Counter(), wire[1:]),
    "dd": _default_dict,
    "dq": _deque,
    "dk": _keys_view,
    "dv": lambda decoder, wire: dict(
        enumerate([decoder.visit(part) for part in wire[1:]])
    ).values(),
    "di": _items_view,
    "range": _range,
    "slice": _slice,
    "...": lambda decoder, wire: ...,
    "ni": lambda decoder, wire: NotImplemented,
    "T": _builtin_type,
    "r": Decoder.back,
    "m": Decoder.known,
    "h": Decoder.handle,
    "n": Decoder.handle,
    "e": Decoder.handle,
    "o": Decoder.known,
    "p": Decoder.known,
}
