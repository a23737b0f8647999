"""JSON texts of the journal, which answers and requests take over without parsing them.

The writer makes them in its own process. What a text holds is chosen by submissions and may be
millions of values: parsing it would keep the service from everything else. Python's JSON allows lone
surrogates, NaN and infinities, which other parsers refuse. The writer marks these, in JSON that means
the same, so that `for_answer` finds them without parsing: the escape of a lone surrogate is `\\uD…` with a
capital D, in a text whose other backslashes are `\\u005c`; NaN and infinities follow a tab.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Callable
from typing import Any

from proctor_client.wire import long_integers

SHORT_CHARACTERS = 1_000_000
_PART_CHARACTERS = 1 << 16
_STRICT = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_LOOSE = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_SURROGATE = re.compile(r"(\\ud[89ab]..\\ud[c-f]..)|\\ud([89a-f])")
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


def dump(value: object) -> str:
    """Return the JSON text of a value, as the journal stores it."""
    try:
        text = long_integers.dumps(value, _STRICT)
    except ValueError:  # NaN or an infinity
        mark = uuid.uuid4().hex
        text = long_integers.dumps(_marked(value, mark), _STRICT)
        for name in _NOT_FINITE:
            text = text.replace(f'"{mark}{name}"', f"\t{name}")
    has_lone = r"\ud" in text and not _is_unicode(value)
    if has_lone or r"\uD" in text:
        text = text.replace(r"\\", r"\u005c")  # now each backslash begins an escape
    if has_lone:
        text = _SURROGATE.sub(lambda found: found[1] or rf"\uD{found[2]}", text)
    return text


def for_answer(text: str) -> str:
    """Return a stored text as any parser takes it.

    NaN and infinities become null, and a lone surrogate its six-character escape, as in
    `http/responses.py`.
    """
    if r"\uD" in text:
        for digit in "89abcdef":
            text = text.replace(rf"\uD{digit}", rf"\\ud{digit}")
    if "\t" in text:
        for name in _NOT_FINITE:
            text = text.replace(f"\t{name}", "null")
    return text


def parsed_if_short(text: str | None, most_characters: int = SHORT_CHARACTERS) -> Any:
    """Return the value of a stored text, or None if there is none or it is longer than that."""
    return None if text is None or len(text) > most_characters else long_integers.loads(text)


def encoded_text(text: str, encode: Callable[[str], bytes]) -> bytes:
    """Return a long text as a JSON string, encoded in parts; other threads run between two."""
    parts = [
        encode(text[begin : begin + _PART_CHARACTERS])[1:-1]
        for begin in range(0, len(text), _PART_CHARACTERS)
    ]
    return b"".join([b'"', *parts, b'"'])


def joined(*objects: bytes) -> bytes:
    """Return the JSON object with the members of all these, none of which has a name of another."""
    return b"".join([b"{", b",".join([each[1:-1] for each in objects if each != b"{}"]), b"}"])


def member(name: str, value: bytes) -> bytes:
    """Return the JSON object with one member, whose value is JSON."""
    return b"".join([b'{"', name.encode(), b'":', value, b"}"])


def _marked(value: Any, mark: str) -> Any:
    """Return the value with a text in place of each number that is not finite."""
    if isinstance(value, dict):
        return {name: _marked(each, mark) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_marked(each, mark) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return mark + ("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
    return value


def _is_unicode(value: object) -> bool:
    """Return True if no text in the value has a lone surrogate."""
    try:
        long_integers.dumps(value, _LOOSE).encode()
    except UnicodeEncodeError:
        return False
    return True
