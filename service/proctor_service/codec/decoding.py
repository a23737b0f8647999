"""Decoder from untrusted JSON to Python values.

Every defect of the input raises ``Malformed``. The input can only select types and functions from
fixed tables. The decoder checks sizes before building: the expanded size grows with each opened
container and each reference. So a set of tuples that share a deep tuple, or a graph of lists that
expands to millions, ends the decoding before any hashing. Colliding hashes raise ``Malformed``
after a bounded time (``tables``). The decoder uses loops instead of recursion over data.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any

from .builtin_decoders import CONTAINERS, LEAVES, PENDING
from .limits import (
    MAX_DECODED_BYTES,
    MAX_DEPTH,
    NO_BASE,
    PART_BYTES,
    Malformed,
    NotData,
    Opaque,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    ResolveHandle = Callable[[list[Any], Any], Any]

# Nested handles use recursion, so an encoding's depth stays close to ``MAX_DEPTH``.
_MAX_DEPTH = MAX_DEPTH + 100
_NAN = math.nan
_PLAIN_SECONDS = 2e-6
_HANDLE_SECONDS = 5e-4


class Decoder:
    """State of one decoding. ``containers`` holds the containers in the order of their numbers.

    ``resolve_handle`` takes the wire form of a reference, and a function that decodes the content
    of the object's built-in base (or returns ``NO_BASE``). ``resolve_handle`` must decode all other
    parts of the reference in the order of their encoding. ``find_shared`` returns the container
    of a reference to an earlier message.
    """

    def __init__(
        self,
        resolve_handle: ResolveHandle | None = None,
        find_shared: Callable[[Any], Any] | None = None,
    ) -> None:
        self.containers: list[Any] = []
        self.wants_numpy = resolve_handle is not None
        # True: narrow numbers and empty arrays of numpy take part in no narrow arithmetic.
        self.widens = False
        # True: an object, which would become an ``Opaque``, raises ``NotData``.
        self.takes_data_alone = False
        self.seconds_each = _PLAIN_SECONDS if resolve_handle is None else _HANDLE_SECONDS
        # By number: the expanded size, None while the container is open.
        self._sizes: list[int | None] = []
        self._resolve = resolve_handle
        self._find_shared = find_shared
        self._left = MAX_DECODED_BYTES
        self._depth = 0

    @property
    def expanded_bytes(self) -> int:
        """The expanded size of all values so far (``limits``)."""
        return MAX_DECODED_BYTES - self._left

    def decode(self, wire: Any) -> Any:
        """Return the value of a wire form; later calls continue numbering. Raises ``Malformed``."""
        try:
            return self.visit(wire)
        except Malformed:
            raise
        except Exception as error:
            raise Malformed(f"not an encoded value: {type(error).__name__}") from None

    def visit(self, wire: Any) -> Any:
        """Decode one value and all values inside."""
        if type(wire) is int or wire is None:
            return wire
        found: list[Any] = []
        self.visit_all(iter((wire,)), found)
        return found[0]

    def visit_all(self, wires: Any, found: list[Any]) -> None:
        """Append the decoded values of several wire forms to a list."""
        outer: list[Any] = []
        form: list[Any] = []
        finish: Any = None
        children, number, before = wires, -1, 0
        append = found.append
        while True:
            for child in children:
                kind = type(child)
                if kind is int or child is None or kind is bool:
                    append(child)
                elif kind is str:
                    self._left -= len(child)
                    append(child)
                elif kind is list:
                    self.spend(PART_BYTES * len(child))
                    tag = child[0] if child else None
                    container = CONTAINERS.get(tag) if type(tag) is str else None
                    if container is None:
                        append(self._leaf(tag, child))
                        continue
                    outer.append((children, found, form, finish, number, before))
                    form, number, before = child, len(self.containers), self._left
                    first, make, finish = container
                    found = []
                    self._open(PENDING if make is None else make(self, form), finish, found)
                    children, append = islice(form, first, None), found.append
                    break
                elif kind is float:
                    append(child if child == child else _NAN)
                else:
                    raise Malformed("an object where a value belongs")
            else:
                self.spend(0)
                if not outer:
                    return
                value: Any = found
                if finish is not None:
                    weight = (before - self._left) // PART_BYTES
                    value = finish(self, self.containers[number], found, form, weight)
                    self.containers[number] = value
                self._sizes[number] = before - self._left + PART_BYTES * len(form)
                self._depth -= 1
                children, found, form, finish, number, before = outer.pop()
                append = found.append
                append(value)

    def spend(self, size: int) -> None:
        """Subtract bytes of the expanded size from the budget. Raises ``Malformed`` below 0."""
        self._left -= size
        if self._left < 0:
            raise Malformed("a value that is too large")

    def remember(self, value: Any, size: int = PART_BYTES) -> int:
        """Give a finished container the next number."""
        self.containers.append(value)
        self._sizes.append(size)
        return len(self.containers) - 1

    def back(self, wire: list[Any]) -> Any:
        """Return the container that a back-reference points to."""
        (number,) = wire[1:]
        if type(number) is not int or not 0 <= number < len(self.containers):
            raise Malformed("a reference to nothing")
        value = self.containers[number]
        if value is PENDING:
            raise Malformed("a value that contains itself")
        self.spend(self._sizes[number] or 0)
        return value

    def shared(self, wire: list[Any]) -> Any:
        """Return a container from an earlier message."""
        if self._find_shared is None:
            raise Malformed("a reference to another message")
        return self._find_shared(wire)

    def keep_and_fill(self, value: Any, wires: list[Any], fill: Callable[[list[Any]], None]) -> Any:
        """Give a rare container the next number, and fill the container with its decoded parts."""
        number, before = len(self.containers), self._left
        found: list[Any] = []
        self._open(value, fill, found)
        self.visit_all(iter(wires), found)
        fill(found)
        self._sizes[number] = before - self._left + PART_BYTES
        self._depth -= 1
        return value

    def handle(self, wire: list[Any]) -> Any:
        """Resolve a reference to an object; without a resolver, decode its built-in base."""
        number, before = len(self.containers), self._left
        self._open(PENDING, self, ())
        if self._resolve is not None:
            value = self._resolve(wire, lambda: self.content(wire))
        else:
            value = self._plain_handle(wire)
        self.containers[number] = value
        self._sizes[number] = before - self._left + PART_BYTES
        self._depth -= 1
        return value

    def content(self, wire: list[Any]) -> Any:
        """Decode the content of a reference's built-in base, or return ``NO_BASE``."""
        info = wire[2] if len(wire) == 3 else None
        if type(info) is not dict or "base" not in info:
            return NO_BASE
        inner = len(self.containers)
        base = self.visit(info["base"])
        if len(self.containers) > inner:
            # The content is a temporary copy: back-references point to the object instead.
            self.containers[inner] = None
        return base

    def _leaf(self, tag: Any, wire: list[Any]) -> Any:
        leaf = LEAVES.get(tag) if type(tag) is str else None
        if leaf is None:
            raise Malformed("unknown tag")
        value = leaf(self, wire)
        if self.takes_data_alone and type(value) is Opaque:
            raise NotData(value.type_name)
        return value

    def _open(self, target: Any, finish: Any, items: Any) -> None:
        """Give a container the next number; without ``finish``, keep the list of items."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise Malformed("nested too deep")
        self.containers.append(items if finish is None else target)
        self._sizes.append(None)

    def _plain_handle(self, wire: list[Any]) -> Any:
        """Decode a reference without a resolver: to the base's content, or an ``Opaque``."""
        info = wire[2] if len(wire) == 3 else {}
        if wire[0] != "h" or len(wire) < 2 or type(info) is not dict:
            raise Malformed("not a reference")
        value = self.content(wire)
        if value is NO_BASE:
            name, truth = info.get("type"), info.get("truth")
            name = name[:200] if type(name) is str else "?"
            value = Opaque(name, truth if type(truth) is bool else None)
        return value


def decode(wire: Any, resolve_handle: ResolveHandle | None = None) -> Any:
    """Return the value of a wire form. Raises ``Malformed``.

    ``resolve_handle(reference, content)`` turns references into objects. Without this function, a
    reference to an instance of a built-in type's subclass becomes the content of the built-in type,
    and any other reference becomes an ``Opaque``.
    """
    return Decoder(resolve_handle).decode(wire)
