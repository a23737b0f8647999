"""Codec for numpy arrays and scalars.

Encoding never imports numpy: an array exists only if numpy is already loaded. Decoding makes numpy
values only if the decoder wants numpy. Otherwise, as in the service, a scalar becomes its plain
value if it has one, and an array becomes an ``Opaque``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import wide_numpy
from .introspection import content_of as _of
from .introspection import loaded
from .limits import PART_BYTES, Malformed, Opaque

if TYPE_CHECKING:
    from collections.abc import Callable

_type, _str, _int, _len, _list, _tuple, _any = type, str, int, len, list, tuple, any
_import_module = importlib.import_module
_MAX_ITEM_BYTES = 1 << 16
_MAX_DTYPE_NESTING = 8
_MAX_DIMENSIONS = 64
_MAX_ITEMS = 4_000_000


def encoder_of(cls: type, mro: tuple[type, ...]) -> Callable[[Any, Any], Any] | None:
    """Return the encoder for instances of a numpy class, else None."""
    generic = loaded("numpy", "generic")
    if generic is None:
        return None
    if cls is loaded("numpy", "ndarray"):
        return _array
    # By identity: a metaclass may claim that its classes equal any class.
    return _scalar if _any(each is generic for each in mro) else None


def numpy_for(decoder: Any) -> Any:
    """Return numpy if the decoder wants numpy and the import succeeds, else None."""
    try:
        return _import_module("numpy") if decoder.wants_numpy else None
    except ImportError:
        return None


def _scalar(encoder: Any, value: Any) -> Any:
    source = _of(value)
    kind = source.dtype
    if kind.kind in "biufcSU" and kind.char not in "gG":
        return ["ns", kind.str, encoder.visit(source.item())]
    form = _dtype(kind)
    if form is None:
        return encoder.handle(value) if source is value else None
    content = source.tobytes()
    encoder.spend(2 * _len(content))
    return ["ns", form, None, content.hex()]


def _array(encoder: Any, value: Any) -> Any:
    source = _of(value)
    if encoder.plain_arrays:
        return encoder.visit(source.tolist())
    shape = [_int(size) for size in source.shape]
    order = "F" if source.flags.f_contiguous and not source.flags.c_contiguous else "C"
    form = _dtype(source.dtype)
    if form is None:
        return encoder.handle(value) if source is value else None
    if form == "|O":
        parts = source.ravel(order).tolist()
        encoder.spend(PART_BYTES * _len(parts))
        return encoder.numbered(value, ["nd", form, shape, order], parts)
    content = source.tobytes(order)
    encoder.spend(2 * _len(content))
    return encoder.numbered(value, ["nd", form, shape, order, content.hex()])


def _dtype(kind: Any) -> Any:
    """Return the wire form of a dtype; None for nested objects or titles other than text."""
    if kind.char == "O":
        return "|O"
    if kind.hasobject:
        return None
    if kind.subdtype is not None:
        base, shape = kind.subdtype
        form = _dtype(base)
        return None if form is None else ["sub", form, _list(shape)]
    if kind.names is None:
        return kind.str
    fields = [kind.fields[name] for name in kind.names]
    names = [[name, *field[2:]] for name, field in zip(kind.names, fields)]
    if not all(_type(part) is _str for name in names for part in name):
        return None  # any hashable value may be the title of a field
    forms = [_dtype(field[0]) for field in fields]
    if None in forms:
        return None
    offsets = [field[1] for field in fields]
    return ["fields", names, forms, offsets, kind.itemsize, kind.isalignedstruct]


def _to_dtype(numpy: Any, form: Any, nesting: int = 0) -> Any:
    if nesting > _MAX_DTYPE_NESTING:
        raise Malformed("not a type of items")
    if _type(form) is _str:
        found = numpy.dtype(form)
        if found.char == "O" and (nesting or form != "|O"):
            raise Malformed("not a type of items")
    elif _type(form) is _list and form and form[0] == "sub":
        base, shape = form[1:]
        _count(shape)
        found = numpy.dtype((_to_dtype(numpy, base, nesting + 1), _tuple(shape)))
    elif _type(form) is _list and form and form[0] == "fields":
        names, forms, offsets, size, aligned = form[1:]
        fields = {
            "names": [name[0] for name in names],
            "titles": [name[1] if _len(name) > 1 else None for name in names],
            "formats": [_to_dtype(numpy, each, nesting + 1) for each in forms],
            "offsets": offsets,
            "itemsize": size,
        }
        found = numpy.dtype(fields, align=aligned is True)
    else:
        raise Malformed("not a type of items")
    if found.kind not in "?biufcSUMmOV" or found.itemsize > _MAX_ITEM_BYTES:
        raise Malformed("not a type of items")
    return found


def _count(shape: Any) -> int:
    """Return the number of items in an array of this shape. Raises ``Malformed``."""
    if _type(shape) is not _list or _len(shape) > _MAX_DIMENSIONS:
        raise Malformed("not a shape")
    count, empty = 1, False
    for size in shape:
        if _type(size) is not _int or not 0 <= size <= _MAX_ITEMS:
            raise Malformed("not a shape")
        empty = empty or size == 0
        count *= size or 1
        if count > _MAX_ITEMS * 64:
            raise Malformed("not a shape")
    return 0 if empty else count


def _content(decoder: Any, text: Any) -> bytes:
    if _type(text) is not _str:
        raise Malformed("not the bytes of an array")
    decoder.spend(_len(text))
    return bytes.fromhex(text)


def _to_scalar(decoder: Any, wire: list[Any]) -> Any:
    if _len(wire) == 3:
        content = decoder.visit(wire[2])
        numpy = numpy_for(decoder)
        if numpy is None:
            return content
        kind = _to_dtype(numpy, wire[1])
        if kind.char == "O":
            raise Malformed("not a scalar")
        # An array would drop trailing zeros of text and bytes.
        found = kind.type(content) if kind.kind in "SU" else numpy.array(content, dtype=kind)[()]
        if not isinstance(found, numpy.generic):
            raise Malformed("not a scalar")
        return wide_numpy.scalar(numpy, found) if decoder.widens else found
    form, _, text = wire[1:]
    numpy, content = numpy_for(decoder), _content(decoder, text)
    if numpy is None:
        return Opaque("numpy.generic")
    kind = _to_dtype(numpy, form)
    return numpy.frombuffer(content, dtype=kind).copy()[0]


def _to_array(decoder: Any, wire: list[Any]) -> Any:
    form, shape, order, *parts = wire[1:]
    if order not in ("C", "F"):
        raise Malformed("not an order")
    numpy, count = numpy_for(decoder), _count(shape)
    kind = None if numpy is None else _to_dtype(numpy, form)
    if form == "|O":
        if count != _len(parts):
            raise Malformed("not as many items as the shape says")
        value: Any = Opaque("numpy.ndarray") if kind is None else numpy.empty(count, dtype=kind)
        shaped = value if kind is None else value.reshape(shape, order=order)

        def fill(found: list[Any]) -> None:
            for index, item in enumerate(found if kind is not None else ()):
                value[index] = item

        decoder.spend(PART_BYTES * count)
        return decoder.keep_and_fill(shaped, parts, fill)
    (text,) = parts
    content = _content(decoder, text)
    if kind is None:
        value = Opaque("numpy.ndarray")
    elif kind.itemsize * count != _len(content):
        raise Malformed("not as many items as the shape says")
    elif content:
        flat = numpy.frombuffer(bytearray(content), dtype=kind)
        value = flat.reshape(shape, order=order).copy(order=order)
    else:
        value = numpy.zeros(shape, dtype=kind, order=order)
        value = wide_numpy.empty_array(numpy, value) if decoder.widens else value
    decoder.remember(value, 2 * _len(content))
    return value


DECODERS: dict[str, Callable[[Any, list[Any]], Any]] = {"ns": _to_scalar, "nd": _to_array}
