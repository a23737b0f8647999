"""The plain encoding in which values cross between two interpreters: JSON, never pickle.

``encode`` runs beside the submission, ``decode`` where the judging is done. The format is described
in ``encoding``, what is refused in ``refusals``. A message is a line of ASCII JSON, so lone
surrogates survive.
"""

from __future__ import annotations

import json
from typing import Any

from . import json_lines
from .decoding import NO_BASE, Decoder, Opaque, check_size, decode, expanded_size
from .encoding import Encoder, encode
from .refusals import MAX_LINE_BYTES, Malformed, ValueTooDeep, ValueTooLarge

__all__ = [
    "NO_BASE",
    "Decoder",
    "Encoder",
    "Malformed",
    "Opaque",
    "ValueTooDeep",
    "ValueTooLarge",
    "check_size",
    "decode",
    "dumps",
    "encode",
    "expanded_size",
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


def loads(line: bytes, in_steps: bool = False) -> Any:
    """What a line of JSON says, or ``Malformed``.

    ``in_steps``: parse some 64 KB at a time, so that other threads get their turn between. That is
    slower; a line of megabytes that is read beside an event loop needs it.
    """
    if len(line) > MAX_LINE_BYTES:
        raise Malformed("the line is too long")
    try:
        text = line.decode("ascii")
        if in_steps:
            return json_lines.parse(text)
        try:
            return _loads(text)
        except RecursionError:
            return json_lines.parse(text)
    except (ValueError, RecursionError, MemoryError) as error:
        raise Malformed(f"not a line of JSON: {type(error).__name__}") from error
