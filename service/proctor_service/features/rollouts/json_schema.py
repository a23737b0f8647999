"""Checker of tool arguments against a JSON schema.

A part of JSON Schema 2020-12, checked in time proportional to the size of the schema times the size
of the value. A schema with another keyword is refused as a whole. `pattern` is missing
because a regular expression can take exponential time, and `$ref` because a recursive schema can;
a reference could also lead to another host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

MOST_LEVELS = 32
"""Maximum depth of a schema."""
MOST_STEPS = 50_000
"""Maximum of pairs of a value and a schema, which takes tens of milliseconds."""
SHOWN_CHARACTERS = 100
ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "format", "deprecated", "$schema", "$comment"}
)
"""Keywords without an effect here."""
_TYPES: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        "object": (dict,),
        "array": (list,),
        "string": (str,),
        "boolean": (bool,),
        "null": (type(None),),
        "number": (int, float),
        "integer": (int, float),
    }
)
_BOUNDS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = MappingProxyType(
    {
        "minimum": (lambda value, bound: value >= bound, "at least"),
        "maximum": (lambda value, bound: value <= bound, "at most"),
        "exclusiveMinimum": (lambda value, bound: value > bound, "more than"),
        "exclusiveMaximum": (lambda value, bound: value < bound, "less than"),
    }
)
_SIZES: Mapping[str, tuple[type, bool, str]] = MappingProxyType(
    {
        "minLength": (str, True, "characters"),
        "maxLength": (str, False, "characters"),
        "minItems": (list, True, "items"),
        "maxItems": (list, False, "items"),
        "minProperties": (dict, True, "properties"),
        "maxProperties": (dict, False, "properties"),
    }
)
_CHOICES = ("anyOf", "oneOf", "allOf")


def schema_problem(schema: Any, where: str, level: int = 0) -> str | None:
    """Return the reason why this schema cannot be checked, with its place; None if good."""
    if isinstance(schema, bool):
        return None
    if not isinstance(schema, dict):
        return f"{where}: a schema is an object"
    if level > MOST_LEVELS:
        return f"{where}: a schema has at most {MOST_LEVELS} levels"
    for name, value in schema.items():
        wrong = _keyword_problem(name, value)
        if wrong:
            return f"{where}.{name[:SHOWN_CHARACTERS]}: {wrong}"
    inner = (schema_problem(each, f"{where}.{at}", level + 1) for at, each in _inner(schema))
    return next((problem for problem in inner if problem), None)


def _keyword_problem(name: str, value: Any) -> str | None:
    """Return the reason why a keyword cannot be checked."""
    match name:
        case "type":
            listed = value if isinstance(value, list) else [value]
            good = listed and all(isinstance(each, str) and each in _TYPES for each in listed)
            return None if good else f"a type is one of {', '.join(_TYPES)}"
        case "properties":
            return None if isinstance(value, dict) else "must be an object"
        case "required":
            good = isinstance(value, list) and all(isinstance(each, str) for each in value)
            return None if good else "must be a list of names"
        case "enum":
            return None if isinstance(value, list) and value else "must be a list with values"
        case "const" | "items" | "additionalProperties":
            return None
    if name in _CHOICES:
        return None if isinstance(value, list) and value else "must be a list of schemas"
    if name in _BOUNDS:
        return None if _is_number(value) else "must be a number"
    if name in _SIZES:
        return None if type(value) is int and value >= 0 else "must be a whole number from 0"
    if name in ANNOTATIONS:
        return None
    return "this keyword is not supported; check the value in the command"


def _inner(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the schemas within a schema and their places."""
    for name, each in schema.get("properties", {}).items():
        yield f"properties.{name[:SHOWN_CHARACTERS]}", each
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield name, schema[name]
    for name in _CHOICES:
        for number, each in enumerate(schema.get(name, ())):
            yield f"{name}.{number}", each


def violation(value: Any, schema: Any) -> str | None:
    """Return how a JSON value breaks a good schema, in words for the policy; None if it fits."""
    return _Checker().violation(value, schema, "arguments")


class TooLarge(Exception):
    """The value and the schema together take too many steps to check."""


class _Checker:
    """Check of one value; `MOST_STEPS` bounds its time."""

    def __init__(self) -> None:
        self._steps = 0

    def violation(self, value: Any, schema: Any, where: str) -> str | None:
        """Return the first violation, if any. Raises TooLarge."""
        self._steps += 1
        if isinstance(schema, bool):
            return None if schema else f"{where} is not allowed"
        self._steps += len(schema.get("enum", ())) + len(schema.get("required", ()))
        if self._steps > MOST_STEPS:
            raise TooLarge
        return next((broken for broken in self._violations(value, schema, where) if broken), None)

    def _violations(
        self, value: Any, schema: Mapping[str, Any], where: str
    ) -> Iterator[str | None]:
        listed = schema.get("type", [])
        types = [listed] if isinstance(listed, str) else listed
        if types and not any(_has_type(value, each) for each in types):
            yield f"{where} must be of type {' or '.join(types)}"
            return
        yield from _of_value(value, schema, where)
        if isinstance(value, dict):
            yield from self._of_properties(value, schema, where)
        if isinstance(value, list) and "items" in schema:
            for number, each in enumerate(value):
                yield self.violation(each, schema["items"], f"{where}[{number}]")
        yield from self._of_choices(value, schema, where)

    def _of_properties(
        self, value: Mapping[str, Any], schema: Mapping[str, Any], where: str
    ) -> Iterator[str | None]:
        properties = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{where} needs {name!r}"
        others = schema.get("additionalProperties", True)
        for name, each in value.items():
            shown = f"{where}.{name[:SHOWN_CHARACTERS]}"
            yield self.violation(each, properties.get(name, others), shown)

    def _of_choices(
        self, value: Any, schema: Mapping[str, Any], where: str
    ) -> Iterator[str | None]:
        for each in schema.get("allOf", ()):
            yield self.violation(value, each, where)
        for name in ("anyOf", "oneOf"):
            if name not in schema:
                continue
            broken = [self.violation(value, each, where) for each in schema[name]]
            if None not in broken:
                reasons = "; ".join(filter(None, broken))[: 10 * SHOWN_CHARACTERS]
                yield f"{where} fits none of the alternatives: {reasons}"
            elif broken.count(None) > 1 and name == "oneOf":
                yield f"{where} fits several of the alternatives"


def _of_value(value: Any, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield the violations of the keywords without schemas within."""
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{where} must be {_shown(schema['const'])}"
    if "enum" in schema and not any(_same(value, each) for each in schema["enum"]):
        yield f"{where} must be one of {_shown(schema['enum'])}"
    if _is_number(value):
        for name, (holds, words) in _BOUNDS.items():
            if name in schema and not holds(value, schema[name]):
                yield f"{where} must be {words} {schema[name]}"
    for name, (kind, at_least, words) in _SIZES.items():
        if name not in schema or not isinstance(value, kind):
            continue
        size, bound = len(value), schema[name]  # type: ignore[arg-type]
        if size < bound if at_least else size > bound:
            yield f"{where} must have {'at least' if at_least else 'at most'} {bound} {words}"


def _has_type(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _shown(value: Any) -> str:
    if isinstance(value, str | list):
        value = value[: 2 * SHOWN_CHARACTERS]
    return repr(value)[: 2 * SHOWN_CHARACTERS]
