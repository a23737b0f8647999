"""Short text of values for messages, made without running code of foreign classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .introspection import class_mro

if TYPE_CHECKING:
    from collections.abc import Callable

_whole = slice(None)
_COPIES: dict[Any, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    bytes: lambda value: bytes.__getitem__(value, _whole),
    tuple: lambda value: tuple.__getitem__(value, _whole),
    list: lambda value: list.__getitem__(value, _whole),
    dict: lambda value: dict(dict.items(value)),
    set: lambda value: set(set.__iter__(value)),
}
_PLAIN = (int, float, complex, bool, type(None), type(...), range)
_BRACKETS: dict[Any, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
    dict: ("{", "}"),
}


def show(value: Any, limit: int = 200) -> str:
    """Return a text like ``repr``, at most ``limit`` characters; other objects by class name."""
    parts: list[str] = []
    _write(value, parts, [limit], 0)
    text = "".join(parts)
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def _write(value: Any, parts: list[str], left: list[int], depth: int) -> None:
    if left[0] < 0:
        return
    kind = type(value)
    if kind in _BRACKETS:
        _write_items(value, parts, left, depth)
        return
    if kind in (str, bytes, bytearray):
        # UTF-8 cannot encode a lone surrogate, so the text shows an escape.
        text = repr(value[: left[0] + 8]).encode("utf-8", "backslashreplace").decode()
    elif kind is int and value.bit_length() > 1000:
        text = f"<an integer of {value.bit_length()} bits>"
    elif kind in _PLAIN or kind.__module__ in ("decimal", "fractions", "datetime"):
        text = _repr(value)
    elif kind is type:
        text = type.__dict__["__qualname__"].__get__(value)
    else:
        name = type.__dict__["__qualname__"].__get__(kind)
        base = next((base for base in class_mro(kind) if base in _COPIES), None)
        text = (
            f"<{name} object>" if base is None else f"{name}({show(_COPIES[base](value), left[0])})"
        )
    left[0] -= len(text)
    parts.append(text)


def _repr(value: Any) -> str:
    """Return ``repr`` of a value; the class name if Python refuses to print a long number."""
    try:
        return repr(value)
    except ValueError:
        return f"<{type(value).__name__} object>"


def _write_items(value: Any, parts: list[str], left: list[int], depth: int) -> None:
    kind = type(value)
    opening, closing = _BRACKETS[kind]
    if not value and kind in (set, frozenset):
        opening, closing = kind.__name__ + "(", ")"
    parts.append(opening)
    left[0] -= len(opening) + len(closing)
    for index, item in enumerate(value.items() if kind is dict else value):
        if left[0] < 0 or depth > 20:
            parts.append("…")
            break
        if index:
            parts.append(", ")
            left[0] -= 2
        if kind is dict:
            _write(item[0], parts, left, depth + 1)
            parts.append(": ")
            _write(item[1], parts, left, depth + 1)
        else:
            _write(item, parts, left, depth + 1)
    if kind is tuple and len(value) == 1:
        parts.append(",")
    parts.append(closing)
