"""Objects of named tuples and plain dataclasses of the setup, which both sides define.

On the wire: ``["h", 0, {"k": "record", "name": name, "fields": [values]}]``; of a named tuple the codec
adds the content in place of the fields. Only the listed names count.
"""

from __future__ import annotations

from typing import Any

from ...codec.introspection import class_members, derives
from ...codec.limits import Malformed


class Records:
    """The record classes in a side's globals."""

    def __init__(self, namespace: dict[str, Any], names: list[str]) -> None:
        self._classes: dict[str, Any] = {
            name: namespace[name] for name in names if isinstance(namespace.get(name), type)
        }
        self._names = {id(cls): name for name, cls in self._classes.items()}

    def describe(self, value: Any, encoder: Any) -> Any:
        """Return the wire form of a record, or None."""
        name = self._names.get(id(type(value)))
        if name is None:
            return None
        is_tuple = derives(type(value), tuple)
        fields = [] if is_tuple else _fields(type(value))
        parts = [getattr(value, field, None) for field in fields]
        return [
            "h",
            0,
            {"k": "record", "name": name, "fields": [encoder.visit(part) for part in parts]},
        ]

    def resolve(self, wire: list[Any], content: Any, decoder: Any) -> Any:
        """Return the record for a wire form. Raises ``Malformed``."""
        facts = wire[2]
        name, fields = facts.get("name"), facts.get("fields")
        cls = self._classes.get(name) if type(name) is str else None
        if cls is None or type(fields) is not list:
            raise Malformed("not a record")
        parts = [decoder.visit(part) for part in fields]
        if issubclass(cls, tuple):
            return tuple.__new__(cls, content())
        value = object.__new__(cls)
        for field, part in zip(_fields(cls), parts):
            object.__setattr__(value, field, part)
        return value


def _fields(cls: Any) -> list[str]:
    return [*class_members(cls).get("__dataclass_fields__", {})]
