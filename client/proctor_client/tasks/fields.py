"""Fields of a row that several converters read. Errors name the field; a BadTask is a ValueError."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from proctor_client.tasks.columns import BadTask

Row = Mapping[str, Any]


def text_of(row: Row, name: str) -> str:
    """Return a field that must be a text. Raises KeyError and ValueError."""
    if not isinstance(row[name], str):
        raise ValueError(f"{name}: no text")
    return cast(str, row[name])


def optional_text(row: Row, *names: str) -> str | None:
    """Return the first of these fields that is a text with a character, or None."""
    return next((row[each] for each in names if isinstance(row.get(each), str) and row[each]), None)


def decoded(row: Row, name: str) -> Any:
    """Return a field; a text is read as JSON, since some sets hold lists so. Raises ValueError."""
    value = row[name]
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError(f"{name}: no JSON") from None


def cases_of(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[dict[str, str]]:
    """Return the cases of the grader `stdio`; a list holds the lines of a text. Raises BadTask."""
    pairs = pairs_of(inputs, outputs)
    return [{"stdin": stream(a, "in"), "stdout": stream(b, "out")} for a, b in pairs]


def pairs_of(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return each input with its output. Raises BadTask for another number of outputs."""
    if len(inputs) != len(outputs):
        raise BadTask(f"{len(inputs)} inputs and {len(outputs)} outputs")
    return list(zip(inputs, outputs, strict=True))


def stream(text: Any, name: str) -> str:
    """Return the standard input or output of a program, a text or its lines. Raises BadTask."""
    if isinstance(text, list) and all(isinstance(line, str) for line in text):
        return "\n".join(text)
    if isinstance(text, str):
        return text
    raise BadTask(f"a test without std{name} or {name}put")
