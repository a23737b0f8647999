"""Values of the standard library and of numpy: how they cross.

Encoding imports nothing: a value of a class can only exist where its module is loaded. Decoding
imports what it needs, from a fixed list. numpy's arrays come back as arrays only where the caller
asks for it.
"""

import importlib
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol

from .refusals import Malformed

_type, _str, _int, _len, _list, _any = type, str, int, len, list, any
_modules = sys.modules
_import_module = importlib.import_module
_module_dict: Callable[[Any], dict[str, Any]] = vars(ModuleType)["__dict__"].__get__
_get = object.__getattribute__
_type_mro = type.__dict__["__mro__"].__get__

MAX_DECIMAL_CHARACTERS = 20_000
MAX_DECIMAL_EXPONENT = 1_000_000
MAX_FRACTION_BITS = 200_000
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")


class Visitor(Protocol):
    """What encodes, or decodes, a part."""

    def visit(self, value: Any) -> Any:
        """The part on the other side of the encoding."""


def loaded(module: str, name: str) -> Any:
    """``module.name`` if that module is loaded, else None."""
    found = _modules.get(module)
    return _module_dict(found).get(name) if _type(found) is ModuleType else None


def library_encoder(cls: type) -> Callable[[Any, Any], Any] | None:
    """What encodes instances of a class of the standard library or numpy; else None."""
    known = _cache.get(id(cls))
    if known is not None:
        return known[1]
    for (module, name), function in _ENCODERS.items():
        if loaded(module, name) is cls:
            _cache[id(cls)] = (cls, function)
            return function
    generic = loaded("numpy", "generic")
    # By identity: a metaclass may say that its classes equal any other.
    if generic is not None and _any(each is generic for each in _type_mro(cls)):
        return _numpy_scalar
    return None


_cache: dict[int, tuple[type, Callable[[Any, Any], Any]]] = {}


def _of(value: Any) -> Any:
    # An instance of a subclass comes wrapped; see encoding._Content.
    return value.value if _type(value).__name__ == "_Content" else value


def _decimal(encoder: Visitor, value: Any) -> Any:
    return ["decimal", loaded("decimal", "Decimal").__str__(_of(value))]


def _fraction(encoder: Visitor, value: Any) -> Any:
    value = _of(value)
    parts = (_get(value, "_numerator"), _get(value, "_denominator"))
    return ["fraction", *[encoder.visit(part) for part in parts]]


def _date(encoder: Visitor, value: Any) -> Any:
    value = _of(value)
    return ["date", *[_get(value, part) for part in ("year", "month", "day")]]


_CLOCK = ("hour", "minute", "second", "microsecond", "fold")


def _time(encoder: Visitor, value: Any) -> Any:
    value = _of(value)
    parts = [_get(value, part) for part in _CLOCK]
    return ["time", *parts, encoder.visit(_get(value, "tzinfo"))]


def _datetime(encoder: Visitor, value: Any) -> Any:
    value = _of(value)
    parts = [_get(value, part) for part in ("year", "month", "day", *_CLOCK)]
    return ["datetime", *parts, encoder.visit(_get(value, "tzinfo"))]


def _timedelta(encoder: Visitor, value: Any) -> Any:
    value = _of(value)
    return ["timedelta", *[_get(value, part) for part in ("days", "seconds", "microseconds")]]


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


def _array(encoder: Any, value: Any) -> Any:
    source = _of(value)
    content = _list(loaded("array", "array").tolist(source))
    return encoder.items("array", value, content, source.typecode)


def _numpy_scalar(encoder: Visitor, value: Any) -> Any:
    value = _of(value)
    return ["ns", value.dtype.str, encoder.visit(value.item())]


def _numpy_array(encoder: Visitor, value: Any) -> Any:
    value = _of(value)
    shape = [_int(size) for size in value.shape]
    return ["nd", value.dtype.str, shape, encoder.visit(value.ravel().tolist())]


_ENCODERS: dict[tuple[str, str], Callable[[Any, Any], Any]] = {
    ("decimal", "Decimal"): _decimal,
    ("fractions", "Fraction"): _fraction,
    ("datetime", "datetime"): _datetime,
    ("datetime", "date"): _date,
    ("datetime", "time"): _time,
    ("datetime", "timedelta"): _timedelta,
    ("datetime", "timezone"): _timezone,
    ("zoneinfo", "ZoneInfo"): lambda encoder, value: ["zone", encoder.visit(_of(value).key)],
    ("uuid", "UUID"): _uuid,
    ("pathlib", "PurePosixPath"): _path("PurePosixPath"),
    ("pathlib", "PosixPath"): _path("PosixPath"),
    ("array", "array"): _array,
    ("numpy", "ndarray"): _numpy_array,
}


def _find(module: str, name: str) -> Any:
    return getattr(_import_module(module), name)


def _to_decimal(decoder: Any, wire: list[Any]) -> Any:
    (text,) = wire[1:]
    if _type(text) is not _str or _len(text) > MAX_DECIMAL_CHARACTERS:
        raise Malformed("not a decimal")
    # A context of its own: the current one may trap, and rounds nothing here anyway.
    value = _find("decimal", "Decimal")(text)
    exponent = value.as_tuple().exponent
    if _type(exponent) is _int and abs(exponent) > MAX_DECIMAL_EXPONENT:
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


def _to_array(decoder: Any, wire: list[Any]) -> Any:
    typecode, *content = wire[1:]
    value = _find("array", "array")(typecode)
    decoder.keep(value)
    value.fromlist([decoder.visit(part) for part in content])
    return value


def _to_numpy(decoder: Any, wire: list[Any]) -> Any:
    """numpy's, if the decoder wants that and numpy is there; else a plain scalar, or opaque."""
    scalar = wire[0] == "ns"
    dtype, content = wire[1], decoder.visit(wire[-1])
    try:
        numpy = _import_module("numpy") if decoder.wants_numpy else None
    except ImportError:
        numpy = None
    if numpy is None:
        return content if scalar else decoder.opaque("numpy.ndarray")
    kind = numpy.dtype(dtype)
    if kind.kind not in "?biufcSUMmO" or kind.itemsize > 1 << 16:
        raise Malformed("not an array")
    if scalar:
        return numpy.array(content, dtype=kind)[()]
    flat = numpy.empty(_len(content), dtype=kind)
    flat[:] = content
    return flat.reshape(wire[2])


DECODERS: dict[str, Callable[[Any, list[Any]], Any]] = {
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
    "array": _to_array,
    "ns": _to_numpy,
    "nd": _to_numpy,
}
