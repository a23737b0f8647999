"""JSON texts of the journal, which answers and requests take over without parsing them.

The writer makes them in its own process. What a text holds is chosen by submissions and may be
millions of values: parsing it would keep the service from everything else. Python's JSON allows lone
surrogates, NaN and infinities, which other parsers refuse. The writer marks these, in JSON that means
the same, so that `for_answer` finds them without parsing: the escape of a lone surrogate is `\\uD…` with a
capital D, in a text whose other backslashes are `\\u005c`; NaN and infinities follow a tab.
"""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

from proctor_client.wire import long_integers
from proctor_service.http.json import with_finite

SHORT_CHARACTERS = 1_000_000
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
        marked = with_finite(value, lambda number: mark + _LOOSE.encode(number))
        text = long_integers.dumps(marked, _STRICT)
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
    `http/json.py`.
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


def _is_unicode(value: object) -> bool:
    """Return True if no text in the value has a lone surrogate."""
    try:
        long_integers.dumps(value, _LOOSE).encode()
    except UnicodeEncodeError:
        return False
    return True
