"""Test cases in LiveCodeBench's form: JSON, or JSON in a pickled text in zlib in base64."""

from __future__ import annotations

import base64
import io
import pickle
import zlib
from collections.abc import Mapping
from typing import Any

from proctor_client.tasks.fields import plain
from proctor_client.tasks.task import Row
from proctor_client.wire.long_integers import loads


def packed_cases(row: Row, name: str) -> list[Mapping[str, Any]]:
    """Return the test cases of a field. Raises KeyError and ValueError."""
    text = plain(row[name])
    if not text or isinstance(text, list):
        return text or []
    if not isinstance(text, str):
        raise ValueError(f"{name}: neither a text nor a list")
    try:
        if not text.lstrip().startswith("["):
            text = _Texts(io.BytesIO(zlib.decompress(base64.b64decode(text)))).load()
        cases = loads(text) if isinstance(text, str) else text
    except (ValueError, TypeError, EOFError, pickle.UnpicklingError, zlib.error):
        raise ValueError(f"{name}: not in LiveCodeBench's form") from None
    if not isinstance(cases, list):
        raise ValueError(f"{name}: no list")
    return cases


class _Texts(pickle.Unpickler):
    """Unpickler of plain data: pickles with classes or functions are refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}: only a text is expected")
