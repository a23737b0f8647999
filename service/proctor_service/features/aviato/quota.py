"""Number of sandboxes of all pools of a backend together, and of those created at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from proctor_service.errors import BudgetExceeded, SandboxUnavailable
from proctor_service.features.aviato.budget import Budget


class Quota:
    """Limits shared by the pools. `most`: sandboxes at all; `creations`: created at once.

    `give_up_one`: has the pool with the least need stop a ready sandbox, if any. `budget`:
    limits of this backend, perhaps shared with other replicas.
    """

    def __init__(
        self,
        most: int,
        creations: int,
        give_up_one: Callable[[], None] = lambda: None,
        budget: Budget | None = None,
    ) -> None:
        self._free = most
        self._places = asyncio.Semaphore(most)
        self._creating = asyncio.Semaphore(creations)
        self._give_up_one = give_up_one
        self._budget = budget

    @property
    def free(self) -> int:
        """Number of sandboxes still allowed; below 0 while callers wait for a place."""
        return self._free if self._budget is None else min(self._free, self._budget.free)

    @property
    def owed(self) -> int:
        """Number of sandboxes for which other replicas wait, beyond an equal share."""
        return 0 if self._budget is None else self._budget.owed

    @property
    def is_down(self) -> bool:
        """True while the budget cannot be asked."""
        return self._budget is not None and self._budget.down

    async def acquire(self, seconds: float, price: int = 0) -> None:
        """Wait for the place of another sandbox; a ready sandbox elsewhere is stopped in exchange.

        `price`: micro-dollars per hour. Raises SandboxUnavailable without a place in time, and
        BudgetExceeded if the budget is used up.
        """
        self._free -= 1
        if self._free < 0:
            self._give_up_one()
        placed = False
        try:
            async with asyncio.timeout(seconds):
                await self._places.acquire()
                placed = True
                if self._budget is not None:
                    await self._budget.acquire(price, self._give_up_one)
        except BaseException as error:
            self._free += 1
            if placed:
                self._places.release()
            if not isinstance(error, TimeoutError):
                raise
            raise (self._over_budget() if placed else self.none_in_time()) from None

    def none_in_time(self) -> SandboxUnavailable:
        """Return the failure of a caller that waited in vain."""
        if self._budget is not None and (self._budget.waits or self._budget.down):
            return self._over_budget()
        return SandboxUnavailable("capacity: as many sandboxes as there may be")

    def _over_budget(self) -> SandboxUnavailable:
        if self._budget is not None and self._budget.down:
            return SandboxUnavailable("budget: Redis, which has the budget, does not answer")
        return BudgetExceeded("budget: the sandboxes or the money per hour are used up")

    def release(self, price: int = 0) -> None:
        """Return the place of a stopped sandbox."""
        self._free += 1
        self._places.release()
        if self._budget is not None:
            self._budget.release(price)

    @contextlib.asynccontextmanager
    async def creating(self) -> AsyncIterator[None]:
        """Wait until another sandbox may be created, which takes as long as the context."""
        async with self._creating:
            yield
