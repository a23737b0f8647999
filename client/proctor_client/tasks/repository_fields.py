"""Columns of rows about repositories: lists of tests, commands and images, as the data sets write them.

A column may be null, NaN, a list, JSON text of a list, or the text of a Python list; its name may be in
upper or lower case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from proctor_client.tasks.fields import decoded_value, plain
from proctor_client.tasks.task import BadTask, Row

_NULLS = frozenset({"", "null", "none", "nan", "[]", "{}"})
_PROGRESS = re.compile(r"\[\s*\d{1,3}%\]")
"""A progress mark of pytest, `[100%]`, which a text parser took for the name of a test."""
_HOST = re.compile(r"localhost|[^/]*[.:][^/]*")
"""The first part of an image's name that is a registry: `ghcr.io`, `localhost`; not `swebench`."""


def column_of(row: Row, *names: str) -> Any:
    """Return the first non-null value of these columns, in any case of their letters; else None."""
    for name in names:
        value = row.get(name)
        if not is_null(value):
            return value
    lower = {key.lower(): key for key in row if isinstance(key, str)}
    for name in names:
        value = row.get(lower.get(name.lower(), ""))
        if not is_null(value):
            return value
    return None


def is_null(value: Any) -> bool:
    """Tell whether a value is null, pandas' NaN, or a blank text."""
    if value is None or (isinstance(value, float) and value != value):
        return True
    return isinstance(value, str) and not value.strip()


def text_of_column(row: Row, *names: str) -> str:
    """Return the first of these columns with a value as text, or an empty text.

    A number is written as text: `version` is an integer in some rows. Raises BadTask for other values.
    """
    value = plain(column_of(row, *names))
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadTask(f"{names[0]}: no text")
    return str(value)


def needed_text(row: Row, *names: str) -> str:
    """Return the first text of these columns. Raises BadTask if all lack a text."""
    text = text_of_column(row, *names)
    if not text:
        raise BadTask(f"the field {names[0]!r} is missing")
    return text


def list_of(value: Any, name: str) -> list[Any]:
    """Return a list of a column: null, a list, or a list's text in JSON or Python. Raises BadTask."""
    if is_null(value) or (isinstance(value, str) and value.strip().lower() in _NULLS):
        return []
    value = decoded_value(value)
    if isinstance(value, list):
        return value
    raise BadTask(f"{name}: neither a list nor the text of one")


def named_tests(row: Row, *names: str) -> list[str]:
    """Return the names of tests in a column, each once. Raises BadTask.

    Of an object from names to outcomes, also a columnar one, `{"name": […], "fix": […]}`, its names.
    """
    value = column_of(row, *names)
    decoded = None if is_null(value) else decoded_value(value)
    if isinstance(decoded, Mapping):
        found: Iterable[Any] = _names_of_object(decoded, names[0])
    else:
        found = list_of(value, names[0])
    return distinct(found, names[0])


def distinct(found: Iterable[Any], name: str) -> list[str]:
    """Return names of tests, each once, without blank ones and progress marks. Raises BadTask."""
    tests: dict[str, None] = {}
    for each in found:
        if is_null(each):
            continue
        if not isinstance(each, str):
            raise BadTask(f"{name}: a name of a test is no text")
        if not _PROGRESS.fullmatch(each.strip()):
            tests[each] = None
    return list(tests)


def _names_of_object(value: Mapping[str, Any], name: str) -> Iterable[Any]:
    """Return the names of tests; Arrow writes an object with any names as columns."""
    names = value.get("name")
    if not isinstance(names, list):
        return value
    if any(not isinstance(each, list) for each in value.values()):
        return value
    if any(len(each) != len(names) for each in value.values()):
        raise BadTask(f"{name}: columns of different lengths")
    return names


def object_of(value: Any, name: str) -> Mapping[str, Any]:
    """Return an object of a column: null, an object, or its JSON text. Raises BadTask."""
    if is_null(value) or (isinstance(value, str) and value.strip().lower() in _NULLS):
        return {}
    value = decoded_value(value)
    if not isinstance(value, Mapping):
        raise BadTask(f"{name}: neither an object nor the text of one")
    return value


def command_of(value: Any, name: str) -> str:
    """Return a command for a shell; of a list, a command on each line. Raises BadTask."""
    if is_null(value):
        return ""
    value = decoded_value(value)
    lines = value if isinstance(value, list) else [value]
    if any(not isinstance(each, str) for each in lines if each is not None):
        raise BadTask(f"{name}: a command is no text")
    return "\n".join(each.strip() for each in lines if not is_null(each))


def image_of(text: str) -> str:
    """Return the whole name of an image, `docker.io/swebench/x:latest`, of a short one. Raises BadTask."""
    name = text.strip().removeprefix("docker://")
    if not name or any(letter.isspace() for letter in name):
        raise BadTask(f"image: {text[:100]!r} is no name of an image")
    first, slash, _ = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif not _HOST.fullmatch(first):
        name = f"docker.io/{name}"
    last = name.rpartition("/")[2]
    return name if ":" in last or "@" in last else f"{name}:latest"
