"""Encoder of JSON for answers: valid UTF-8, for any output of a submission or a policy."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def encode(body: dict[str, Any] | str) -> bytes:
    """Encode JSON in valid UTF-8, for any output of a submission.

    UTF-8 cannot encode a lone surrogate, and most parsers reject its JSON escape as well: one
    submission could make the whole batch unreadable. The surrogate becomes its six-character Python
    escape.
    """
    try:
        return to_json(body, inf_nan_mode="null")
    except (PydanticSerializationError, UnicodeEncodeError):
        text = json.dumps(_finite(body), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return _LONE_SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text).encode()


def joined(*objects: bytes) -> bytes:
    """Return the JSON object with the members of all these, none of which has a name of another."""
    return b"".join([b"{", b",".join([each[1:-1] for each in objects if each != b"{}"]), b"}"])


def member(name: str, value: bytes) -> bytes:
    """Return the JSON object with one member, whose value is JSON."""
    return b"".join([b'{"', name.encode(), b'":', value, b"}"])


def _finite(value: Any) -> Any:
    """Replace each NaN and infinity by null: JSON has no form for them."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
