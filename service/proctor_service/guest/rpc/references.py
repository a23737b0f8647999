"""References to remote objects, and exports of local objects to the other endpoint.

A ``Reference`` names a remote object by its number. The object's local proxy (a handle, a
generator, an exception) keeps the reference alive. After the proxy is collected, the next message
tells the other endpoint, which releases the object.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

_id = id


class Reference:
    """Number, class and origin of a remote object."""

    __slots__ = ("__weakref__", "class_number", "number", "origin", "view")

    def __init__(self, number: int, class_number: int | None) -> None:
        self.number = number
        self.class_number = class_number
        self.origin = ""
        # Weak reference to the local proxy.
        self.view: Any = None


class References:
    """Weak tables of an endpoint's references, by number and by proxy."""

    def __init__(self) -> None:
        self._references: dict[int, Any] = {}
        self._views: dict[int, Reference] = {}
        self._dropped: dict[int, None] = {}

    def get(self, number: int, class_number: int | None = None) -> Reference:
        """Return the reference for a number; make a new reference if necessary."""
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
        """Return the local proxy, or None if missing or collected."""
        return None if reference.view is None else reference.view()

    def stand(self, view: Any, reference: Reference) -> None:
        """Register a weakly referenceable object as the local proxy."""
        identity = _id(view)

        def forget(dead: Any) -> None:
            self._views.pop(identity, None)

        self._views[identity] = reference
        reference.view = weakref.ref(view, forget)

    def of(self, view: Any) -> Reference | None:
        """Return the reference behind a proxy, else None."""
        return self._views.get(_id(view))

    def take_dropped(self) -> list[int]:
        """Return the released numbers and clear the list."""
        if not self._dropped:
            return []
        dropped, self._dropped = list(self._dropped), {}
        return dropped


class Exports:
    """Local objects referenced by the other endpoint."""

    def __init__(self) -> None:
        self._next = 1
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._kept: set[int] = set()

    def number(self, value: Any, keep: bool = False) -> int:
        """Return the export number of an object; ``keep`` exports the object until the end."""
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
        """Return the object for a number. Raises ``KeyError`` if not exported."""
        return self._objects[number]

    def holds(self, value: Any) -> bool:
        """Tell whether an object is exported."""
        return _id(value) in self._numbers

    def drop(self, numbers: Iterable[Any]) -> None:
        """Release objects that the other endpoint dropped."""
        for number in numbers:
            if number not in self._kept and number in self._objects:
                self._numbers.pop(_id(self._objects.pop(number)), None)
