"""Which object of the other side is which here, and which objects of this side the other side holds.

A ``Reference`` names an object of the other side by its number. Whatever stands for that object here
(a handle, a generator, an exception) keeps the reference; when it is gone, the other side is told with
the next message and lets the object go.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

_id = id


class Reference:
    """Names one object of the other side: its number there, its class, and how it came here."""

    __slots__ = ("__weakref__", "class_number", "number", "origin", "view")

    def __init__(self, number: int, class_number: int | None) -> None:
        self.number = number
        self.class_number = class_number
        self.origin = ""
        # Weakly, what stands for the object here.
        self.view: Any = None


class References:
    """The references of one side, weakly, by number; and by what stands for them."""

    def __init__(self) -> None:
        self._references: dict[int, Any] = {}
        self._views: dict[int, Reference] = {}
        self._dropped: dict[int, None] = {}

    def get(self, number: int, class_number: int | None = None) -> Reference:
        """The reference of a number; a new one if there is none (any more)."""
        known = self._references.get(number)
        found: Reference | None = None if known is None else known()
        if found is not None:
            return found
        self._dropped.pop(number, None)
        reference = Reference(number, class_number)

        def forget(dead: Any) -> None:
            if self._references.get(number) is dead:
                del self._references[number]
                self._dropped[number] = None

        self._references[number] = weakref.ref(reference, forget)
        return reference

    def view(self, reference: Reference) -> Any:
        """What stands for the object here; None if nothing does (any more)."""
        return None if reference.view is None else reference.view()

    def stand(self, view: Any, reference: Reference) -> None:
        """Let something that can be referred to weakly stand for the object."""
        identity = _id(view)

        def forget(dead: Any) -> None:
            self._views.pop(identity, None)

        self._views[identity] = reference
        reference.view = weakref.ref(view, forget)

    def of(self, view: Any) -> Reference | None:
        """The reference for which a value stands."""
        return self._views.get(_id(view))

    def take_dropped(self) -> list[int]:
        """The numbers that are no longer in use, to be told once."""
        if not self._dropped:
            return []
        dropped, self._dropped = list(self._dropped), {}
        return dropped


class Exports:
    """The objects of this side that the other side holds references to."""

    def __init__(self) -> None:
        self._next = 1
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._kept: set[int] = set()

    def number(self, value: Any, keep: bool = False) -> int:
        """The number by which the other side knows an object; ``keep``: until the end."""
        number = self._numbers.get(_id(value))
        if number is None:
            number = self._next
            self._next += 1
            self._numbers[_id(value)] = number
            self._objects[number] = value
        if keep:
            self._kept.add(number)
        return number

    def object(self, number: Any) -> Any:
        """The object of a number. Raises ``KeyError`` if the other side doesn't hold it."""
        return self._objects[number]

    def holds(self, value: Any) -> bool:
        """Tell whether the other side may refer to an object."""
        return _id(value) in self._numbers

    def drop(self, numbers: Iterable[Any]) -> None:
        """Let go what the other side no longer holds."""
        for number in numbers:
            if number not in self._kept and number in self._objects:
                self._numbers.pop(_id(self._objects.pop(number)), None)
