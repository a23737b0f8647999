"""Python values to JSON, by exact built-in type.

Decisions are made by ``type(x)``, and content is taken with the built-in types' own methods: an
object may lie in ``__class__``, ``__eq__``, ``__iter__`` or ``__len__``, and none of these is
asked. ``None``, booleans, strings, floats and integers below 2**63 stand for themselves; everything
else is a list that begins with a tag. A container met again is ``["r", n]``, n being its place in
the order of first visits, so that shared parts stay shared. A dict is its keys and values in turn.

Nothing here recurses over data, so depth is bounded by ``MAX_DEPTH`` alone.
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

# References of our own: a submission may put its own functions under these names.
_type, _id, _len, _iter, _is_ascii = type, id, len, iter, str.isascii
_int, _str, _bool, _list, _dict, _none = int, str, bool, list, dict, type(None)

_TYPE_NAMES = {id(item): name for name, item in BUILTIN_TYPES.items()}


# Classes that wrap a built-in type: that type, and what reads the fields of an instance.
WRAPPERS: dict[int, tuple[type, Any]] = {
    _id(cls): (kind, vars(cls)["__dict__"].__get__)
    for cls, kind in ((UserList, list), (UserDict, dict), (UserString, str))
}


class Encoder:
    """One encoding: the back-references, and the budget that is left.

    ``kept`` holds the containers in the order of their numbers; a peer shares the mutable ones
    afterwards. ``known`` may answer a wire form for a container that the other side already has.
    """

    def __init__(
        self,
        make_handle: MakeHandle | None = None,
        known: Callable[[Any], Any] | None = None,
    ) -> None:
        self.kept: list[Any] = []
        # Whether numpy's arrays cross as lists, for a reader that has no numpy.
        self.plain_arrays = False
        # By number: the expanded size, None while the container is open.
        self._sizes: list[int | None] = []
        self._numbers: dict[int, int] = {}
        self._make_handle = make_handle
        self._known = known
        self._left = MAX_EXPANDED_BYTES
        self._depth = 0

    def encode(self, value: Any) -> Any:
        """The JSON form of a value; may be called again, and numbers then go on."""
        try:
            return self.visit(value)
        except RecursionError:
            raise ValueTooDeep("the value is nested too deep") from None

    def visit(self, value: Any) -> Any:
        """One value and what it holds."""
        if value is None:
            return None
        out: list[Any] = []
        self.visit_all((value,), out)
        return out[0]

    def visit_all(self, values: Iterable[Any], out: list[Any]) -> None:
        """Appends the forms of some values, and of what they hold, to a list."""
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
                known = self._enter(child)
                if known is not None:
                    append(known)
                    continue
                outer.append((children, out, number, before))
                number, before = _len(self.kept) - 1, self._left
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
                    close(self, self.kept[number], out)
                self._leave(number, before)
                children, out, number, before = outer.pop()
                append = out.append

    def spend(self, size: int) -> None:
        """Count bytes of the expanded size against the budget."""
        self._left -= size
        if self._left < 0:
            raise ValueTooLarge("the value is too large")

    def affords(self, size: int) -> bool:
        """Count bytes that can be done without, if the budget has them."""
        if self._left < 4 * size:
            return False
        self._left -= size
        return True

    def numbered(self, value: Any, head: list[Any], parts: Iterable[Any] = ()) -> Any:
        """A container that is rare: its form is a head, and the forms of its parts."""
        known = self._enter(value)
        if known is not None:
            return known
        number, before = _len(self.kept) - 1, self._left
        self.spend(PART_BYTES)
        self.visit_all(parts, head)
        self._leave(number, before)
        return head

    def handle(self, value: Any) -> Any:
        """Anything that is not plain: a reference, with the content of its built-in base."""
        known = self._enter(value)
        if known is not None:
            return known
        number, before = _len(self.kept) - 1, self._left
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
        """The content of what wraps a built-in type, as UserList does; None for all else."""
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
        """A reference if the container was met before; else it gets a number, and None."""
        number = self._numbers.get(_id(value))
        if number is not None:
            return self._again(value, number)
        if self._known is not None:
            wire = self._known(value)
            if wire is not None:
                return wire
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueTooDeep("the value is nested too deep")
        self._numbers[_id(value)] = _len(self.kept)
        self.kept.append(value)
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
        """The content of an instance of a subclass; it is numbered apart from the instance."""
        for cls in class_mro(_type(value)):
            leaf = BASES.get(_id(cls)) or library_encoder(cls)
            if leaf is not None:
                return leaf(self, Content(value))
        return None


def encode(value: Any, make_handle: MakeHandle | None = None) -> Any:
    """The JSON form of a value.

    ``make_handle`` is called with whatever is not plain and returns what stands for it. Without one
    that is ``["h", 0, {"type": name, "base": content of a built-in base, "truth": when it needs no
    call}]``. Raises ``ValueTooLarge`` and ``ValueTooDeep``, and whatever ``make_handle`` raises.
    """
    return Encoder(make_handle).encode(value)


def _describe(value: Any) -> Any:
    """The class's name, and that its instances are true where nothing can say otherwise."""
    info: dict[str, Any] = {"type": class_name(_type(value))}
    members = [class_members(base) for base in class_mro(_type(value))]
    if not any("__bool__" in each or "__len__" in each for each in members):
        info["truth"] = True
    return ["h", 0, info]
