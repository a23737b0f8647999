"""Turns of submissions in a judge process.

The listening process sends short submissions ahead of their turns: a judge process has its next
work at once and answers in groups. Submissions that wait for long go back to the queue of the
listening process: another judge process may have a turn for them, or another job its share.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

from proctor_service.errors import HandedBack

MOST_WAITING_SECONDS = 0.5


class Turns:
    """`slots` turns at once, given in order; a context manager holds a turn.

    `running`: turns in use. `waiting`: number of waiters.
    """

    def __init__(self, slots: int) -> None:
        self.running = 0
        self._slots = slots
        self._lent = 0
        self._waiters: deque[tuple[float, asyncio.Future[bool]]] = deque()

    @property
    def waiting(self) -> int:
        """Number of waiters."""
        return len(self._waiters)

    async def __aenter__(self) -> None:
        """Wait for a turn. Raises HandedBack."""
        if self.running < self._slots + self._lent and not self._waiters:
            self.running += 1
            return
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.append((time.monotonic(), waiter))
        try:
            is_mine = await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                await self.__aexit__()
            raise
        if not is_mine:
            raise HandedBack("it waited at a judge process, which had no turn for it")

    async def __aexit__(self, *_: object) -> None:
        """Give the turn to the next waiter."""
        self.running -= 1
        self._give()

    def lend(self, turns: int) -> None:
        """Set the number of additional turns, for evaluations away from their cores."""
        self._lent = turns
        self._give()

    def hand_back(self) -> None:
        """Send all waiters away if the first has waited for too long."""
        if self._waiters and time.monotonic() - self._waiters[0][0] > MOST_WAITING_SECONDS:
            for _, waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(False)
            self._waiters.clear()

    def _give(self) -> None:
        while self._waiters and self.running < self._slots + self._lent:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                self.running += 1
                waiter.set_result(True)
