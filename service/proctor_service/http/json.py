"""JSON for requests and answers: valid UTF-8 out, and any length in without holding up the event loop.

A submission or a policy chooses the texts. UTF-8 cannot encode a lone surrogate, JSON has no form for
NaN, and Python's parser reads both: `encode` writes JSON for every parser, in a single call. Pieces of
finished JSON are joined as bytes (`joined`, `member`).

`PacedJson` parses a long text of any shape with regular pauses. The interpreter's parser holds the
interpreter lock, even in another thread. So `PacedJson` gives that parser short texts alone: a short
array or object, several of them in an array, or a run of numbers and strings. `PacedJson` opens a longer
array or object and reads the items in turn.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from proctor_client.wire import long_integers
from proctor_service.scheduling.pacer import Pacer

SHORT_CHARACTERS = 16_384
MOST_OPEN = 1000
"""Depth of arrays and objects, counted: the limit of Python's own parser differs between its versions."""
MOST_OPEN_WITH_SHORT = 50
"""Greatest depth for calls of the interpreter's parser, which has a depth limit of its own."""
_PART_CHARACTERS = 1 << 16
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a pair of UTF-16, as in `"\\ud800"`."""
_SPACE = re.compile(r"[ \t\n\r]*")
_SCALARS = re.compile(
    r'(?:[ \t\n\r]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[ \t\n\r]*+|[^][{}",:]++),)++', re.DOTALL
)
"""Strings, numbers and constants of an array, each with its comma: `1, "a]", null,`."""


def encode(body: dict[str, Any] | str) -> bytes:
    """Encode JSON in valid UTF-8, for any output of a submission.

    Most parsers reject the JSON escape of a lone surrogate: a single submission could make the whole
    batch unreadable. The surrogate becomes its six-character Python escape, and NaN becomes null.
    """
    try:
        return to_json(body, inf_nan_mode="null")
    except (PydanticSerializationError, UnicodeEncodeError):
        finite = with_finite(body, lambda number: None)
        text = json.dumps(finite, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return _LONE_SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text).encode()


def joined(*objects: bytes) -> bytes:
    """Return the JSON object with the members of all these; their names differ."""
    return b"".join([b"{", b",".join([each[1:-1] for each in objects if each != b"{}"]), b"}"])


def member(name: str, value: bytes) -> bytes:
    """Return the JSON object with a single member. `value`: JSON."""
    return b"".join([b'{"', name.encode(), b'":', value, b"}"])


def with_finite(value: Any, replacement: Callable[[float], Any]) -> Any:
    """Return the value with a replacement for each NaN and infinity."""
    if isinstance(value, dict):
        return {name: with_finite(each, replacement) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [with_finite(each, replacement) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return replacement(value)
    return value


def without_surrogates(text: str) -> str:
    """Return `text` with U+FFFD for each lone surrogate, which UTF-8 cannot encode."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


STRICT = json.JSONDecoder(parse_constant=_refuse_constant)
"""Decoder without NaN and infinities; raises ValueError and RecursionError."""


class PacedJson:
    """A JSON text and the state of its decoding."""

    def __init__(self, text: str, decoder: json.JSONDecoder | None = None) -> None:
        self._text = text
        self._at = 0
        self._decoder = json.JSONDecoder() if decoder is None else decoder
        self._open: list[Any] = []  # arrays and objects that are not closed, the outermost first
        self._key = ""  # of the next value in an object
        self._is_empty = True  # nothing is in the innermost array or object
        self._found: list[Any] = []
        self._next_try = 0  # position from which on the parser is tried again
        self._next_series = 0

    async def decode(self) -> Any:
        """Return the value. Raises json.JSONDecodeError, ValueError and RecursionError."""
        pacer = Pacer()
        self._value()
        while self._open:
            self._step()
            if pacer.is_due:
                await pacer.pause()
        if self._peek():
            raise json.JSONDecodeError("Extra data", self._text, self._at)
        return self._found[0]

    def _step(self) -> None:
        """Read an item of the innermost array or object, several items, or its end."""
        inside = self._open[-1]
        is_list = type(inside) is list
        mark = self._peek()
        if mark == ("]" if is_list else "}"):
            self._at += 1
            self._open.pop()
            self._is_empty = False
            return
        if not self._is_empty:
            self._expect(",")
            mark = self._peek()
        if is_list:
            if mark not in ("[", "{") and self._scalars(inside):
                return
        else:
            if mark != '"':
                text = "Expecting property name enclosed in double quotes"
                raise json.JSONDecodeError(text, self._text, self._at)
            self._key, self._at = self._decoder.raw_decode(self._text, self._at)
            self._expect(":")
        self._value()

    def _value(self) -> None:
        mark = self._peek()
        if mark not in ("[", "{"):
            self._put(self._scalar())
        elif not self._short_value():
            value: Any = [] if mark == "[" else {}
            self._put(value)
            self._open.append(value)
            if len(self._open) > MOST_OPEN:
                raise RecursionError("the JSON text is nested too deeply")
            self._at += 1
            self._is_empty = True

    def _scalar(self) -> Any:
        begin = self._at
        try:
            value, self._at = self._decoder.raw_decode(self._text, begin)
        except json.JSONDecodeError:
            raise
        except ValueError:  # an integer with more digits than Python converts
            value, self._at = long_integers.integer_at(self._text, begin)
        return value

    def _put(self, value: Any) -> None:
        if not self._open:
            self._found.append(value)
        elif type(self._open[-1]) is list:
            self._open[-1].append(value)
        else:
            self._open[-1][self._key] = value
        self._is_empty = False

    def _short_value(self) -> bool:
        """Read a short array or object, and similar values behind; return False for a long value."""
        if self._at < self._next_try or len(self._open) > MOST_OPEN_WITH_SHORT:
            return False
        text = self._text[self._at : self._at + SHORT_CHARACTERS]
        try:
            value, length = self._decoder.raw_decode(text)
        except (ValueError, RecursionError):
            # Too long, or broken. In a series of long values, only a few of the tries are in vain.
            self._next_try = self._at + SHORT_CHARACTERS // 4
            return False
        self._put(value)
        self._at += length
        if self._at >= self._next_series and self._open and type(self._open[-1]) is list:
            self._series(self._open[-1], text, length)
        return True

    def _series(self, inside: list[Any], text: str, length: int) -> None:
        """Read the short items of an array with the same end as the item before, `text[:length]`."""
        last = text[max(0, length - 16) : length]
        closing = last[len(last.rstrip("]}")) :]
        end = text.rfind(f"{closing},", length)
        if end <= length:
            return
        end += len(closing)
        try:
            values = self._decoder.decode(f"[null{text[length:end]}]")
        except (ValueError, RecursionError):
            self._next_series = self._at + SHORT_CHARACTERS
            return
        inside.extend(values[1:])
        self._at += end - length

    def _scalars(self, inside: list[Any]) -> bool:
        """Read a run of numbers, strings and constants in an array, up to the comma behind the run."""
        run = _SCALARS.match(self._text, self._at, self._at + SHORT_CHARACTERS)
        if run is None:
            return False
        try:
            values = self._decoder.decode(f"[{run.group()[:-1]}]")
        except ValueError:
            return False
        inside.extend(values)
        self._at = run.end() - 1
        self._is_empty = False
        return True

    def _peek(self) -> str:
        """Return the next character after white space; empty at the end."""
        space = _SPACE.match(self._text, self._at)
        assert space is not None, "the pattern matches the empty string"
        self._at = space.end()
        return self._text[self._at : self._at + 1]

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            name = "',' delimiter" if character == "," else "':' delimiter"
            raise json.JSONDecodeError(f"Expecting {name}", self._text, self._at)
        self._at += 1
