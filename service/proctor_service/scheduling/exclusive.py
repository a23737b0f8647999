"""Exclusive turns: times in which the queue gives no tickets, so a single ticket is in use alone.

Turns come in sequence. Before a turn the queue drains, which delays all other waiters. So draining
and turns together take at most a quarter of the time in which other waiters exist, for any number
of requested turns. The queue gives up draining after a patience time, and pauses before the next
try: a ticket in use for an hour delays no other ticket for an hour. After each failed try the
patience doubles, so a turn comes even if all tickets are in use for long. A turn that lasts long is
then shared: its ticket stays in use, and the queue gives tickets again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

FIRST_PATIENCE_SECONDS = 10.0
LONGEST_ALONE_SECONDS = 30.0
"""A program takes the memory that it needs sooner; a hostile one would hold up the others for long."""
_REST = 3.0  # minimum time between two delays of other waiters, as a multiple of the last delay


class ExclusiveTurns:
    """Waiters for an exclusive turn, and the state of draining.

    `wanted`: true while a waiter exists, and during a turn. `resume`: called when the queue gives
    tickets again: draining or a turn took too long.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        resume: Callable[[], None],
        patience_seconds: float,
        longest_alone_seconds: float = LONGEST_ALONE_SECONDS,
    ) -> None:
        self.wanted = False
        self._longest_alone_seconds = longest_alone_seconds
        self._clock = clock
        self._resume = resume
        self._first_patience_seconds = patience_seconds
        self._patience_seconds = patience_seconds
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._is_on = False
        self._held_up_since: float | None = None
        self._rests_until = clock()
        self._giving_up: asyncio.TimerHandle | None = None

    def join(self) -> asyncio.Future[None]:
        """Add a waiter for a turn; the returned future is done when the turn begins."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self.wanted = True
        return waiter

    def leave(self, waiter: asyncio.Future[None]) -> None:
        """Remove a waiter, cancelled before its turn."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        if not self._waiters and not self._is_on:
            self.wanted = False
            self._end_draining()

    def holds_up(self) -> bool:
        """Return True if the next ticket must wait for a turn; may start draining.

        Called only if a waiter for the ticket exists.
        """
        if self._held_up_since is not None:
            return True
        now = self._clock()
        if self._is_on or not self._waiters or now < self._rests_until:
            return False
        self._held_up_since = now
        loop = asyncio.get_running_loop()
        self._giving_up = loop.call_later(self._patience_seconds, self._give_up)
        return True

    def begin(self) -> bool:
        """Give the turn to the first waiter; the caller ensures that all tickets are returned.

        Return False without a waiter, or during a turn.
        """
        while self._waiters and self._waiters[0].done():  # cancelled, but `leave` follows later
            self._waiters.popleft()
        if self._is_on or not self._waiters:
            return False
        since = self._held_up_since
        self._end_draining()
        self._held_up_since = self._clock() if since is None else since
        loop = asyncio.get_running_loop()
        self._giving_up = loop.call_later(self._longest_alone_seconds, self._share)
        self._is_on = True
        self._waiters.popleft().set_result(None)
        return True

    def end(self) -> None:
        """End the turn."""
        self._is_on = False
        self.wanted = bool(self._waiters)
        self._patience_seconds = self._first_patience_seconds
        if self._held_up_since is not None:
            self._rest()

    def _share(self) -> None:
        self._rest()
        self._resume()

    def _give_up(self) -> None:
        self._patience_seconds *= 2
        self._rest()
        self._resume()

    def _rest(self) -> None:
        assert self._held_up_since is not None, "others were held up"
        now = self._clock()
        self._rests_until = now + _REST * (now - self._held_up_since)
        self._end_draining()

    def _end_draining(self) -> None:
        self._held_up_since = None
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
