"""Exclusive turns: when a queue gives no tickets, so that one that is out can be the only one.

One at a time is exclusive. To get there the queue drains, which holds up all others; so draining and
the exclusive turns themselves take at most a quarter of the time while anybody else waits, however many
want one. Draining that outlasts its patience is given up for a while: a ticket that is held for an
hour holds up nobody else for so long. Patience then doubles, so that a turn comes where all are slow.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

FIRST_PATIENCE_SECONDS = 10.0
_REST = 3.0  # times as long as others were held up, they are not held up again


class ExclusiveTurns:
    """Who waits for an exclusive turn, and whether others are held up for it.

    `resume`: called when others are no longer held up, because draining was given up.
    """

    def __init__(
        self, clock: Callable[[], float], resume: Callable[[], None], patience_seconds: float
    ) -> None:
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
        """A place among those who want a turn; done when it is theirs."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def leave(self, waiter: asyncio.Future[None]) -> None:
        """Gives up a place of somebody who was cancelled; the turn was not theirs yet."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        if not self._waiters:
            self._end_draining()

    def holds_up(self) -> bool:
        """Whether the next ticket is not to be given now. Asked only when somebody would get it."""
        if self._is_on or self._held_up_since is not None:
            return True
        now = self._clock()
        if not self._waiters or now < self._rests_until:
            return False
        self._held_up_since = now
        loop = asyncio.get_running_loop()
        self._giving_up = loop.call_later(self._patience_seconds, self._give_up)
        return True

    def begin(self) -> bool:
        """Gives the first who waits the turn, now that no ticket is out; False when nobody waits."""
        while self._waiters and self._waiters[0].done():  # cancelled, and not awake yet
            self._waiters.popleft()
        if self._is_on or not self._waiters:
            return False
        since = self._held_up_since
        self._end_draining()
        self._held_up_since = self._clock() if since is None else since
        self._is_on = True
        self._waiters.popleft().set_result(None)
        return True

    def end(self) -> None:
        """The turn is over."""
        self._is_on = False
        self._patience_seconds = self._first_patience_seconds
        self._rest()

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
