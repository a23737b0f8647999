"""Encoding of values for transfer between two interpreters: JSON, never pickle.

``encode`` runs in the submission's interpreter, ``decode`` in the judging process. ``encoding``
describes the format, ``limits`` the bounds and errors. A message is a line of ASCII JSON, so lone
surrogates survive.
"""

from __future__ import annotations

import json
from typing import Any

from . import json_lines
from .decoding import Decoder, decode
from .encoding import Encoder, encode
from .limits import MAX_LINE_BYTES, Malformed, NotData, Opaque, ValueTooDeep, ValueTooLarge

__all__ = [
    "Decoder",
    "Encoder",
    "Malformed",
    "NotData",
    "Opaque",
    "ValueTooDeep",
    "ValueTooLarge",
    "decode",
    "dumps",
    "encode",
    "loads",
    "loads_message",
]

# Bound at import: an honest submission may replace json.dumps.
_join = "".join
_make: Any = vars(json.encoder)["c_make_encoder"]  # None where the interpreter lacks it
# `JSONEncoder.encode` makes such an encoder for each value, which takes longer than to use it.
_encode: Any = _make and _make(
    None, None, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True
)
_slow_dumps = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
_decoder: Any = json.JSONDecoder()
_scan, _decode = _decoder.scan_once, _decoder.decode
_MOST_MESSAGE_BYTES = 1 << 17


def dumps(wire: Any) -> bytes:
    """Return one line of JSON. Raises ``ValueTooLarge``."""
    try:
        text = _join(_encode(wire, 0)) if _encode else _slow_dumps(wire)
    except RecursionError:
        text = json_lines.write(wire)
    if len(text) >= MAX_LINE_BYTES:
        raise ValueTooLarge("the value is too large")
    return text.encode("ascii") + b"\n"


def _loads(text: str) -> Any:
    """Return the value of a JSON text. Raises ValueError or RecursionError."""
    try:
        value, end = _scan(text, 0)  # `decode` looks for white space first, which costs as much
        if end == len(text):
            return value
    except StopIteration:
        pass
    return _decode(text)


def loads(line: bytes) -> Any:
    """Return the value of a line of JSON. Raises ``Malformed``."""
    if len(line) > MAX_LINE_BYTES:
        raise Malformed("the line is too long")
    try:
        text = line.decode("ascii")
        try:
            return _loads(text)
        except RecursionError:
            return json_lines.parse(text)
    except (ValueError, RecursionError, MemoryError) as error:
        raise Malformed(f"not a line of JSON: {type(error).__name__}") from error


def loads_message(line: bytes) -> Any:
    """Return a runner's message about a submission, which is short and hardly nested.

    The submission may forge the line; parsing takes a few ms at most. Raises ``Malformed``.
    """
    if len(line) > _MOST_MESSAGE_BYTES:
        raise Malformed("the message is too long")
    try:
        return _loads(line.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not a message: {type(error).__name__}") from error
