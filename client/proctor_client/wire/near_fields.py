"""The known field nearest to an unknown field of a request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel

MOST_CHARACTERS = 100
"""Longest unknown name that is compared: a comparison takes time by the square of the length."""


def unknown_field(model: type[BaseModel] | None, location: Sequence[int | str]) -> str:
    """Return "unknown field" with the near name, or with all names.

    `location`: where pydantic found the field in a `model`, with its names for the branches of unions.
    """
    text = "unknown field"
    names = _fields(model, location[:-1]) if model is not None else []
    if not names or len(str(location[-1])) > MOST_CHARACTERS:
        return text
    near = get_close_matches(str(location[-1]), names, 1)
    return f"{text}, did you mean {near[0]}?" if near else f"{text}, not one of {', '.join(names)}"


def _fields(model: type[BaseModel], location: Iterable[int | str]) -> list[str]:
    models = [model]
    for part in location:
        branch = [each for each in models if part in (each.__name__, *_kinds(each))]
        fields = [each.model_fields[str(part)] for each in models if part in each.model_fields]
        if branch and (len(models) > 1 or not fields):
            models = branch
        elif fields:  # otherwise a place in a list, or a branch without a model
            models = [inner for field in fields for inner in _models(field.annotation)]
    return list(dict.fromkeys(name for each in models for name in each.model_fields))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in a type, for example of a list or a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _kinds(model: type[BaseModel]) -> tuple[str, ...]:
    kind = model.model_fields.get("kind")
    return () if kind is None else get_args(kind.annotation)
