"""Sets that iterate as they did where they come from, for a reader with another hash seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class OrderedSet(set):  # type: ignore[type-arg]
    """A set that iterates in the order of ``order``, as long as that has all of its items."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self.order = [*super().__iter__()]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.order) if len(self.order) == len(self) else super().__iter__()


class OrderedFrozenset(frozenset):  # type: ignore[type-arg]
    """A frozenset that iterates in the order of ``order``."""

    order: list[Any]

    @classmethod
    def of(cls, found: set[Any], order: list[Any]) -> OrderedFrozenset:
        """A frozenset of what was found; the order lists the same items."""
        value = cls(found)
        value.order = order
        return value

    def __iter__(self) -> Iterator[Any]:
        same = len(self.order) == len(self)
        return iter(self.order) if same else super().__iter__()
