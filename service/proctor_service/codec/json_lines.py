"""JSON parser and writer without recursion, for values nested beyond the recursion limit.

The interpreter's own parser and writer are far faster and run first. After a RecursionError, this
module takes over; here, nesting uses no stack.
"""

from __future__ import annotations

import json
import re
from typing import Any

_type, _len, _iter, _list, _dict, _str = type, len, iter, list, dict, str
_loads = json.JSONDecoder().decode
_dumps = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
_MAX_NESTING = 20_000
_RUN_CHARACTERS = 1 << 16

_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'  # `"a\\"b"`
# A comma must follow each scalar, so a cut never splits a scalar.
_run = re.compile(rf'(?:(?:{_STRING}|[^][{{}}",:]+),)+', re.DOTALL).match  # `1, "a",`
_scalar = re.compile(rf'{_STRING}|[^][{{}}",:]+', re.DOTALL).match  # `"a\\"b"`, `-1e9`, ` null`
_key = re.compile(rf"\s*({_STRING})\s*:\s*", re.DOTALL).match  # ` "k" : `
_space = re.compile(r"[ \t\r\n]*").match  # the blanks of JSON


def parse(text: str) -> Any:
    """Return the value of a JSON text. Raises only ``ValueError``, for any nesting."""
    parser = _Parser(text)
    while parser.open or not parser.found:
        parser.step()
    if _skip(text, parser.at) != _len(text):
        raise ValueError("more than one value")
    return parser.found[0]


def _skip(text: str, at: int) -> int:
    found = _space(text, at)
    return at if found is None else found.end()


class _Parser:
    """Parser state: a position in the text, and the open containers, outermost first."""

    def __init__(self, text: str) -> None:
        self.at = 0
        self.found: list[Any] = []
        self.open: list[Any] = []
        self._text = text
        # True at the start of a container and after a comma: a value must come next.
        self._wanted = True

    def step(self) -> None:
        """Read a bracket, a comma, a key with its value, or a run of scalars."""
        text = self._text
        self.at = _skip(text, self.at)
        mark = text[self.at : self.at + 1]
        inside = self.open[-1] if self.open else None
        if mark in ("]", "}"):
            self._close(mark, inside)
        elif mark == ",":
            if inside is None or self._wanted or not inside:
                raise ValueError("a comma where a value belongs")
            self.at += 1
            self._wanted = True
        else:
            if not self._wanted:
                raise ValueError("no comma")
            self._value(inside)

    def _close(self, mark: str, inside: Any) -> None:
        fits = _type(inside) is (_list if mark == "]" else _dict)
        if not fits or (self._wanted and inside):
            raise ValueError("a bracket that closes nothing")
        self.at += 1
        self.open.pop()
        self._wanted = False

    def _value(self, inside: Any) -> None:
        text, key = self._text, None
        if _type(inside) is _dict:
            named = _key(text, self.at)
            if named is None:
                raise ValueError("no key")
            key, self.at = _loads(named.group(1)), named.end()
        elif inside is not None:
            run = _run(text, self.at, self.at + _RUN_CHARACTERS)
            if run is not None:
                inside.extend(_loads(f"[{run.group()[:-1]}]"))
                self.at = run.end()
                return
        mark = text[self.at : self.at + 1]
        if mark in ("[", "{"):
            value: Any = [] if mark == "[" else {}
            self._put(inside, key, value)
            self.open.append(value)
            if _len(self.open) > _MAX_NESTING:
                raise ValueError("nested too deep")
            self.at += 1
            self._wanted = True
            return
        scalar = _scalar(text, self.at)
        if scalar is None:
            raise ValueError("no value")
        self._put(inside, key, _loads(scalar.group()))
        self.at = scalar.end()
        self._wanted = False

    def _put(self, inside: Any, key: Any, value: Any) -> None:
        if inside is None:
            self.found.append(value)
        elif _type(inside) is _dict:
            inside[key] = value
        else:
            inside.append(value)


def write(wire: Any) -> str:
    """Return the JSON text of lists, dicts with text keys, and scalars; ASCII, without spaces."""
    pieces: list[str] = []
    put = pieces.append
    frames: list[Any] = []
    children, named, closing, first = _iter((wire,)), False, "", True
    while True:
        for child in children:
            if not first:
                put(",")
            first = False
            if named:
                name, child = child
                put(_dumps(_str(name)))
                put(":")
            kind = _type(child)
            if kind is not _list and kind is not _dict:
                put(_dumps(child))
                continue
            frames.append((children, named, closing))
            named = kind is _dict
            put("{" if named else "[")
            children = _iter(_dict.items(child) if named else child)
            closing, first = "}" if named else "]", True
            break
        else:
            put(closing)
            if not frames:
                return "".join(pieces)
            children, named, closing = frames.pop()
            first = False
