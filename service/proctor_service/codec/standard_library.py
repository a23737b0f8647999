"""Codec for values of the standard library.

Encoding uses loaded modules only: a value exists only if its module is loaded. Decoding imports
modules from a fixed list.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

from . import numpy_values
from .introspection import class_mro, loaded
from .introspection import content_of as _of
from .limits import Malformed, Opaque, ValueTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Visitor(Protocol):
        """Interface of an encoder or decoder of one part."""

        def visit(self, value: Any) -> Any:
            """Return the encoded or decoded part."""


_type, _str, _int, _len, _list, _any = type, str, int, len, list, any
_import_module = importlib.import_module
_get = object.__getattribute__

MAX_DECIMAL_CHARACTERS = 20_000
MAX_DECIMAL_EXPONENT = 1_000_000
MAX_FRACTION_BITS = 200_000
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")  # "Europe/Paris"; not "../zone"


def library_encoder(cls: type) -> Callable[[Any, Any], Any] | None:
    """Return the encoder for a class of the standard library or numpy, else None."""
    cached = _cache.get(id(cls))
    if cached is not None:
        return cached[1]
    for (module, name), function in _ENCODERS.items():
        if loaded(module, name) is cls:
            _cache[id(cls)] = (cls, function)
            return function
    return numpy_values.encoder_of(cls, class_mro(cls))


_cache: dict[int, tuple[type, Callable[[Any, Any], Any]]] = {}


def _decimal(encoder: Any, value: Any) -> Any:
    cls, value = loaded("decimal", "Decimal"), _of(value)
    text = cls.__str__(value)
    encoder.spend(_len(text))
    if cls.is_finite(value) and _exponent_is_absurd(cls.as_tuple(value).exponent):
        raise ValueTooLarge("the decimal has too large an exponent")
    if _len(text) > MAX_DECIMAL_CHARACTERS:
        raise ValueTooLarge("the decimal has too many digits")
    return ["decimal", text]


def _exponent_is_absurd(exponent: int) -> bool:
    return not -MAX_DECIMAL_EXPONENT <= exponent <= MAX_DECIMAL_EXPONENT


def _fraction(encoder: Visitor, value: Any) -> Any:
    value = _of(value)
    parts = (_get(value, "_numerator"), _get(value, "_denominator"))
    if _any(_int.bit_length(part) > MAX_FRACTION_BITS for part in parts):
        raise ValueTooLarge("the fraction is too large")
    return ["fraction", *[encoder.visit(part) for part in parts]]


_DAY = ("year", "month", "day")
_CLOCK = ("hour", "minute", "second", "microsecond", "fold")


def _fields(tag: str, *parts: str, zone: bool = False) -> Callable[[Visitor, Any], Any]:
    def encode(encoder: Visitor, value: Any) -> Any:
        value = _of(value)
        form = [tag, *[_get(value, part) for part in parts]]
        return [*form, encoder.visit(_get(value, "tzinfo"))] if zone else form

    return encode


def _timezone(encoder: Visitor, value: Any) -> Any:
    value = _of(value)
    return ["timezone", *[encoder.visit(part) for part in _type(value).__getinitargs__(value)]]


def _uuid(encoder: Visitor, value: Any) -> Any:
    return ["uuid", f"{_get(_of(value), 'int'):032x}"]


def _path(name: str) -> Callable[[Visitor, Any], Any]:
    return lambda encoder, value: [
        "path",
        name,
        encoder.visit(loaded("pathlib", "PurePath").__str__(_of(value))),
    ]


_ADDRESSES = tuple(
    f"IPv{version}{part}" for version in "46" for part in ("Address", "Network", "Interface")
)


def _address(name: str) -> Callable[[Visitor, Any], Any]:
    return lambda encoder, value: [
        "address",
        name,
        encoder.visit(loaded("ipaddress", name).__str__(_of(value))),
    ]


def _array(encoder: Any, value: Any) -> Any:
    source = _of(value)
    content = loaded("array", "array").tobytes(source)
    encoder.spend(2 * _len(content))
    return encoder.numbered(value, ["array", source.typecode, content.hex()])


_ENCODERS: dict[tuple[str, str], Callable[[Any, Any], Any]] = {
    ("decimal", "Decimal"): _decimal,
    ("fractions", "Fraction"): _fraction,
    ("datetime", "datetime"): _fields("datetime", *_DAY, *_CLOCK, zone=True),
    ("datetime", "date"): _fields("date", *_DAY),
    ("datetime", "time"): _fields("time", *_CLOCK, zone=True),
    ("datetime", "timedelta"): _fields("timedelta", "days", "seconds", "microseconds"),
    ("datetime", "timezone"): _timezone,
    ("zoneinfo", "ZoneInfo"): lambda encoder, value: ["zone", encoder.visit(_of(value).key)],
    ("uuid", "UUID"): _uuid,
    ("pathlib", "PurePosixPath"): _path("PurePosixPath"),
    ("pathlib", "PosixPath"): _path("PosixPath"),
    **{("ipaddress", name): _address(name) for name in _ADDRESSES},
    ("array", "array"): _array,
    ("collections", "ChainMap"): lambda encoder, value: encoder.numbered(
        value, ["chain"], _of(value).maps
    ),
    ("types", "MappingProxyType"): lambda encoder, value: encoder.numbered(
        value, ["proxy"], [{**value}]
    ),
    ("re", "Pattern"): lambda encoder, value: [
        "pattern",
        encoder.visit(_of(value).pattern),
        _of(value).flags,
    ],
    ("builtins", "memoryview"): lambda encoder, value: [
        "view",
        encoder.visit(_of(value).tobytes()),
    ],
}


def _find(module: str, name: str) -> Any:
    return getattr(_import_module(module), name)


def _to_decimal(decoder: Any, wire: list[Any]) -> Any:
    (text,) = wire[1:]
    if _type(text) is not _str or _len(text) > MAX_DECIMAL_CHARACTERS:
        raise Malformed("not a decimal")
    # The constructor keeps all digits in any decimal context.
    value = _find("decimal", "Decimal")(text)
    exponent = value.as_tuple().exponent
    if _type(exponent) is _int and _exponent_is_absurd(exponent):
        raise Malformed("a decimal with an absurd exponent")
    return value


def _to_fraction(decoder: Any, wire: list[Any]) -> Any:
    top, bottom = (decoder.visit(part) for part in wire[1:])
    if _type(top) is not _int or _type(bottom) is not _int:
        raise Malformed("not a fraction")
    if max(top.bit_length(), bottom.bit_length()) > MAX_FRACTION_BITS:
        raise Malformed("an absurd fraction")
    return _find("fractions", "Fraction")(top, bottom)


def _to_clock(name: str) -> Callable[[Any, list[Any]], Any]:
    def decode(decoder: Any, wire: list[Any]) -> Any:
        *parts, fold, zone = wire[1:]
        return _find("datetime", name)(*parts, decoder.visit(zone), fold=fold)

    return decode


def _to_day(name: str) -> Callable[[Any, list[Any]], Any]:
    return lambda decoder, wire: _find("datetime", name)(*wire[1:])


def _to_timezone(decoder: Any, wire: list[Any]) -> Any:
    offset, *name = [decoder.visit(part) for part in wire[1:]]
    if not name and not offset:
        return _find("datetime", "timezone").utc
    return _find("datetime", "timezone")(offset, *name)


def _to_zone(decoder: Any, wire: list[Any]) -> Any:
    (key,) = wire[1:]
    if _type(key) is not _str or _len(key) > 64 or not _ZONE.fullmatch(key):
        raise Malformed("not a time zone")
    return _find("zoneinfo", "ZoneInfo")(key)


def _to_uuid(decoder: Any, wire: list[Any]) -> Any:
    (text,) = wire[1:]
    return _find("uuid", "UUID")(hex=text)


def _to_path(decoder: Any, wire: list[Any]) -> Any:
    name, text = wire[1:]
    if name not in ("PurePosixPath", "PosixPath") or _type(text) is not _str:
        raise Malformed("not a path")
    return _find("pathlib", name)(text)


def _to_address(decoder: Any, wire: list[Any]) -> Any:
    name, text = wire[1:]
    if name not in _ADDRESSES or _type(text) is not _str:
        raise Malformed("not an address")
    return _find("ipaddress", name)(text)


def _to_array(decoder: Any, wire: list[Any]) -> Any:
    typecode, text = wire[1:]
    decoder.spend(_len(text))
    value = _find("array", "array")(typecode)
    value.frombytes(bytes.fromhex(text))
    decoder.remember(value, _len(text))
    return value


def _to_chain(decoder: Any, target: Any, parts: list[Any], wire: Any, weight: int) -> Any:
    if not all(isinstance(part, dict) for part in parts):
        raise Malformed("not mappings")
    return _find("collections", "ChainMap")(*parts)


def _to_proxy(decoder: Any, target: Any, parts: list[Any], wire: Any, weight: int) -> Any:
    (mapping,) = parts
    return _find("types", "MappingProxyType")(mapping)


def _to_pattern(decoder: Any, wire: list[Any]) -> Any:
    """Compile a pattern, which may take long: only in a sandbox, whose limits end it."""
    text, flags = wire[1:]
    pattern = decoder.visit(text)
    if _type(pattern) not in (_str, bytes) or _type(flags) is not _int:
        raise Malformed("not a pattern")
    return re.compile(pattern, flags) if decoder.wants_numpy else Opaque("re.Pattern", True)


def _to_view(decoder: Any, wire: list[Any]) -> Any:
    (content,) = wire[1:]
    return memoryview(decoder.visit(content))


DECODERS: dict[str, Callable[[Any, list[Any]], Any]] = {
    "pattern": _to_pattern,
    "view": _to_view,
    "decimal": _to_decimal,
    "fraction": _to_fraction,
    "date": _to_day("date"),
    "timedelta": _to_day("timedelta"),
    "time": _to_clock("time"),
    "datetime": _to_clock("datetime"),
    "timezone": _to_timezone,
    "zone": _to_zone,
    "uuid": _to_uuid,
    "path": _to_path,
    "address": _to_address,
    "array": _to_array,
}
CONTAINERS: dict[str, tuple[int, Any, Callable[..., Any]]] = {
    "chain": (1, None, _to_chain),
    "proxy": (1, None, _to_proxy),
}
