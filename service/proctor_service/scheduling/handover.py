"""Waiting items in the hands of peers: taken from the queue in fair order, settled or taken back.

The queue alone decides the order. A peer gets work only by `take`, and each item at most once: what
is taken back waits as the first of its job, for a slot of this replica. With a peer, an item keeps
its deadline, may be cancelled, and counts for the slots of its tenant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from proctor_service.scheduling.fair_share import Alike, FairOrder, Handed


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Result of work that a peer did in place of a ticket. `since`: when the work was taken."""

    result: Any
    since: float


class Handover:
    """Exchange of waiting items with peers. `away`: number of items in the hands of peers.

    `tell`: called when portable work begins to wait; set by the consumer.
    """

    def __init__(
        self, order: FairOrder, clock: Callable[[], float], changed: Callable[[], None]
    ) -> None:
        """`changed`: called after each change that may let another item go first."""
        self.away = 0
        self.tell: Callable[[], None] | None = None
        self._order = order
        self._clock = clock
        self._changed = changed
        self._given: dict[Handed, tuple[float, Callable[[Any], None]]] = {}

    @property
    def portable(self) -> int:
        """Number of waiting items that a peer may judge."""
        return self._order.portable

    def first(self) -> Any:
        """Return the portable work that `take` would return first, or None."""
        return self._order.first_portable()

    def take(self, most: int, alike: Alike, ended: Callable[[Handed], None]) -> list[Handed]:
        """Take up to `most` items for a peer, all of one job; none if nothing portable waits.

        `ended` is called for each item that is settled, or that is cancelled or late meanwhile.
        """
        taken = self._order.take(most, alike)
        for handed in taken:
            end = partial(self._end, handed, ended)
            self._given[handed] = (self._clock(), end)
            handed.waiter.add_done_callback(end)
        self.away += len(taken)
        return taken

    def finish(self, handed: Handed, result: Any) -> bool:
        """Give an item its result; return False if the item is no longer away.

        A Failure is raised where the item waits.
        """
        if handed not in self._given or handed.waiter.done():
            return False
        since, _ = self._given[handed]
        failed = isinstance(result, Exception)
        handed.waiter.set_result(result if failed else Elsewhere(result, since))
        return True

    def take_back(self, handed: Handed, tried: bool = True) -> bool:
        """Put an item back into the queue; return False if the item is no longer away.

        `tried`: a peer may have begun the item, so no other peer gets it.
        """
        if handed not in self._given or handed.waiter.done():
            return False
        _, end = self._given.pop(handed)
        handed.waiter.remove_done_callback(end)
        self.away -= 1
        self._order.put_back(handed, portable=not tried)
        self._changed()
        return True

    def _end(self, handed: Handed, ended: Callable[[Handed], None], _: object) -> None:
        del self._given[handed]
        self.away -= 1
        self._order.give_up(handed)
        self._changed()
        ended(handed)
