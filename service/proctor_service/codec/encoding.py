"""Encoder from Python values to JSON, by exact built-in type.

The encoder decides by ``type(x)``, and reads content with the methods of the built-in types: an
object may lie in ``__class__``, ``__eq__``, ``__iter__`` or ``__len__``, so the encoder calls
none of these. ``None``, booleans, strings, floats and integers below 2**63 are encoded as
themselves; all other values are lists that begin with a tag. A repeated container is ``["r", n]``,
where n is the container's index in the order of first visits, so shared parts stay shared. A dict
is a list of alternating keys and values.

The encoder uses loops instead of recursion over data, so only ``MAX_DEPTH`` bounds the depth.
"""

from __future__ import annotations

from collections import UserDict, UserList, UserString
from typing import TYPE_CHECKING, Any

from .builtin_encoders import BASES, BUILTIN_TYPES, CLOSING, CONTAINERS, FILLED_LATER, LEAVES
from .introspection import Content, class_members, class_mro, class_name, loaded
from .limits import MAX_DEPTH, MAX_EXPANDED_BYTES, PART_BYTES, ValueTooDeep, ValueTooLarge
from .standard_library import library_encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    MakeHandle = Callable[[Any], Any]

# Own references: a submission may replace the built-in functions with its own.
_type, _id, _len, _iter, _is_ascii = type, id, len, iter, str.isascii
_int, _str, _bool, _list, _dict, _none = int, str, bool, list, dict, type(None)

_TYPE_NAMES = {id(item): name for name, item in BUILTIN_TYPES.items()}


# Classes that wrap a built-in type: the wrapped type, and a getter of an instance's fields.
WRAPPERS: dict[int, tuple[type, Any]] = {
    _id(cls): (kind, vars(cls)["__dict__"].__get__)
    for cls, kind in ((UserList, list), (UserDict, dict), (UserString, str))
}


class Encoder:
    """State of one encoding: the back-references, and the remaining budget.

    ``containers`` holds the containers in the order of their numbers; an RPC connection later shares
    the mutable ones. ``find_shared`` may return a wire form for a container of the other endpoint.
    """

    def __init__(
        self, make_handle: MakeHandle | None = None, find_shared: Callable[[Any], Any] | None = None
    ) -> None:
        self.containers: list[Any] = []
        # True: encode numpy arrays as lists, for a reader without numpy.
        self.plain_arrays = False
        # False: encode sets without their order, for a reader that needs the items alone.
        self.ordered_sets = True
        # By number: the expanded size, None while the container is open.
        self._sizes: list[int | None] = []
        self._numbers: dict[int, int] = {}
        self._make_handle = make_handle
        self._find_shared = find_shared
        self._left = MAX_EXPANDED_BYTES
        self._depth = 0

    @property
    def expanded_bytes(self) -> int:
        """The expanded size of all values so far (``limits``)."""
        return MAX_EXPANDED_BYTES - self._left

    def encode(self, value: Any) -> Any:
        """Return the wire form of a value. Later calls continue the numbering."""
        try:
            return self.visit(value)
        except RecursionError:
            raise ValueTooDeep("the value is nested too deep") from None

    def visit(self, value: Any) -> Any:
        """Encode one value and all values inside."""
        if value is None:
            return None
        out: list[Any] = []
        self.visit_all((value,), out)
        return out[0]

    def visit_all(self, values: Iterable[Any], out: list[Any]) -> None:
        """Append the wire forms of several values to a list, with all values inside."""
        outer: list[Any] = []
        children, number, before = _iter(values), -1, 0
        append = out.append
        while True:
            for child in children:
                kind = _type(child)
                if kind is _int:
                    if -0x8000000000000000 < child < 0x8000000000000000:
                        append(child)
                        continue
                elif kind is _str:
                    if _is_ascii(child):
                        self._left -= _len(child)
                        append(child)
                        continue
                elif kind is _bool or kind is _none:
                    append(child)
                    continue
                key = _id(kind)
                opener = CONTAINERS.get(key)
                if opener is None:
                    leaf = LEAVES.get(key)
                    append(self._rare(child) if leaf is None else leaf(self, child))
                    continue
                reference = self._enter(child)
                if reference is not None:
                    append(reference)
                    continue
                outer.append((children, out, number, before))
                number, before = _len(self.containers) - 1, self._left
                out, parts = opener(self, child)
                append(out)
                self.spend(PART_BYTES * (_len(parts) + 1))
                append, children = out.append, _iter(parts)
                break
            else:
                if not outer:
                    self.spend(0)
                    return
                close = CLOSING.get(out[0])
                if close is not None:
                    close(self, self.containers[number], out)
                self._leave(number, before)
                children, out, number, before = outer.pop()
                append = out.append

    def spend(self, size: int) -> None:
        """Subtract bytes of the expanded size from the budget. Raises ``ValueTooLarge``."""
        self._left -= size
        if self._left < 0:
            raise ValueTooLarge("the value is too large")

    def affords(self, size: int) -> bool:
        """Spend bytes on an optional part; return False if they exceed a quarter of the budget."""
        if self._left < 4 * size:
            return False
        self._left -= size
        return True

    def numbered(self, value: Any, head: list[Any], parts: Iterable[Any] = ()) -> Any:
        """Encode a rare container: a head, followed by the wire forms of the parts."""
        reference = self._enter(value)
        if reference is not None:
            return reference
        number, before = _len(self.containers) - 1, self._left
        self.spend(PART_BYTES)
        self.visit_all(parts, head)
        self._leave(number, before)
        return head

    def handle(self, value: Any) -> Any:
        """Encode any other object as a reference, with the content of its built-in base."""
        reference = self._enter(value)
        if reference is not None:
            return reference
        number, before = _len(self.containers) - 1, self._left
        self.spend(PART_BYTES)
        make_handle = self._make_handle or _describe
        wire: Any = make_handle(value)
        if _type(wire) is _list and _len(wire) == 3 and _type(wire[2]) is _dict:
            base = self._base(value)
            if base is None and self._make_handle is None:
                base = self._wrapped(value)
            if base is not None:
                wire[2]["base"] = base
        self._leave(number, before)
        return wire

    def _wrapped(self, value: Any) -> Any:
        """Encode the content of a wrapper of a built-in type, such as UserList; None for others."""
        for cls in class_mro(_type(value)):
            if _id(cls) in WRAPPERS:
                kind, fields = WRAPPERS[_id(cls)]
                content = fields(value).get("data")
                return self.visit(content) if _type(content) is kind else None
        return None

    def is_open(self, value: Any) -> bool:
        """Tell whether the encoding of a value has begun and not ended."""
        number = self._numbers.get(_id(value))
        return number is not None and self._sizes[number] is None

    def _rare(self, value: Any) -> Any:
        self.spend(PART_BYTES)
        encode = library_encoder(_type(value))
        if encode is not None:
            return encode(self, value)
        if _type(value) is _type and _id(value) in _TYPE_NAMES:
            return ["T", _TYPE_NAMES[_id(value)]]
        return self.handle(value)

    def _enter(self, value: Any) -> Any:
        """Return a reference to a known container, or give a new container a number."""
        number = self._numbers.get(_id(value))
        if number is not None:
            return self._again(value, number)
        if self._find_shared is not None:
            wire = self._find_shared(value)
            if wire is not None:
                return wire
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueTooDeep("the value is nested too deep")
        self._numbers[_id(value)] = _len(self.containers)
        self.containers.append(value)
        self._sizes.append(None)
        return None

    def _again(self, value: Any, number: int) -> Any:
        size = self._sizes[number]
        if size is not None:
            self.spend(size)
            return ["r", number]
        self.spend(PART_BYTES)
        kind = _type(value)
        if _id(kind) not in FILLED_LATER and kind is not loaded("numpy", "ndarray"):
            raise ValueTooDeep("the value contains itself")
        return ["r", number]

    def _leave(self, number: int, before: int) -> None:
        self._depth -= 1
        self._sizes[number] = before - self._left

    def _base(self, value: Any) -> Any:
        """Encode the built-in content of an instance; instance and content have own numbers."""
        for cls in class_mro(_type(value)):
            leaf = BASES.get(_id(cls)) or library_encoder(cls)
            if leaf is not None:
                return leaf(self, Content(value))
        return None


def encode(value: Any, make_handle: MakeHandle | None = None) -> Any:
    """Return the wire form of a value.

    ``make_handle`` returns the wire form of an object that is not plain data. The default form is
    ``["h", 0, {"type": name, "base": content of a built-in base, "truth": if known without a
    call}]``. Raises ``ValueTooLarge``, ``ValueTooDeep``, and all exceptions of ``make_handle``.
    """
    return Encoder(make_handle).encode(value)


def _describe(value: Any) -> Any:
    """Describe an object by its class name, and as true if the class has no own truth value."""
    info: dict[str, Any] = {"type": class_name(_type(value))}
    members = [class_members(base) for base in class_mro(_type(value))]
    if not any("__bool__" in each or "__len__" in each for each in members):
        info["truth"] = True
    return ["h", 0, info]
