"""The plain encoding in which values cross between two interpreters: JSON, never pickle.

``encode`` runs beside the submission, ``decode`` where the judging is done. The format is described
in ``encoding``, what is refused in ``refusals``. A message is a line of ASCII JSON, so lone
surrogates survive.
"""

from __future__ import annotations

import json
from typing import Any

from . import json_lines
from .decoding import Decoder, decode
from .encoding import Encoder, encode
from .limits import MAX_LINE_BYTES, Malformed, Opaque, ValueTooDeep, ValueTooLarge

__all__ = [
    "Decoder",
    "Encoder",
    "Malformed",
    "Opaque",
    "ValueTooDeep",
    "ValueTooLarge",
    "decode",
    "dumps",
    "encode",
    "loads",
]

# Bound now: a submission may replace json.dumps, and then still be honest.
_dumps = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
_loads = json.JSONDecoder().decode


def dumps(wire: Any) -> bytes:
    """One line of JSON. Raises ``ValueTooLarge``."""
    try:
        text = _dumps(wire)
    except RecursionError:
        text = json_lines.write(wire)
    if len(text) >= MAX_LINE_BYTES:
        raise ValueTooLarge("the value is too large")
    return text.encode("ascii") + b"\n"


def loads(line: bytes) -> Any:
    """What a line of JSON says, or ``Malformed``."""
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
