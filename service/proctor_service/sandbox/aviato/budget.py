"""Budget of sandboxes and of money per hour, of this process or of all replicas together.

A sandbox counts from before its creation until after its end. With a store, the replicas share the
budget: each writes what it has once a second. What the store granted stays usable for a while when
the store is away, and not a sandbox more.

A run that has not written for `lease_seconds`, while this one could read all the time, is dead. Its
share returns only after its sandboxes were stopped, so the limits hold through the death of a replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

_log = logging.getLogger(__name__)
_BEAT_SECONDS = 1.0
_POLL_SECONDS = 0.25
_CLOSE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """Most sandboxes, and most micro-dollars per hour; 0 is without limit."""

    sandboxes: int = 0
    rate: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """State of a run: sandboxes, their micro-dollars per hour, and callers that wait for one."""

    run: str
    sequence: int
    sandboxes: int
    rate: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Answer:
    """`granted`: there is one sandbox more. `entries`: of all runs, after the write."""

    granted: bool
    entries: Mapping[str, Entry]


class StoreDown(Exception):
    """The store does not answer; a write may have happened or not."""


class BudgetStore(Protocol):
    """Entries of all replicas."""

    async def write(self, entry: Entry, price: int | None, limits: BudgetLimits) -> Answer:
        """Write the entry of a run, with one sandbox more at `price` if that is within the limits.

        Raises StoreDown.
        """

    async def forget(self, run: str, sequence: int) -> None:
        """Remove an entry, unless the run has written since. Raises StoreDown."""

    async def close(self) -> None:
        """Close the connections."""


class Budget:
    """The share of this process in the budget; `run` names the process."""

    def __init__(
        self,
        limits: BudgetLimits,
        run: str,
        lease_seconds: float,
        store: BudgetStore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.down = False
        self._limits = limits
        self._run = run
        self._lease_seconds = lease_seconds
        self._store = store
        self._clock = clock
        self._sequence = 0
        self._sandboxes = self._rate = self._waiting = 0
        self._granted = (0, 0)  # what the store surely counts for this run
        self._answered_at = 0.0
        self._others: dict[str, Entry] = {}
        self._seen: dict[str, tuple[int, float]] = {}  # sequence, and since when it is the same
        self._turn, self._writing = asyncio.Lock(), asyncio.Lock()
        self._changed = asyncio.Event()
        self._beats: asyncio.Task[None] | None = None
        self._ending: dict[str, asyncio.Task[None]] = {}

    # ------------------------------------------------------------ lifecycle

    def open(self, end_run: Callable[[str], Awaitable[None]]) -> None:
        """Begin to write, and to look for dead runs; `end_run` stops all sandboxes of one."""
        if self._store is not None:
            self._beats = asyncio.create_task(self._beat(end_run))

    async def close(self, stopped: bool) -> None:
        """End. Unless all sandboxes were `stopped`, the entry stays for another run to stop them."""
        tasks = [task for task in (self._beats, *self._ending.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._store is not None:
            if stopped:
                with contextlib.suppress(StoreDown, TimeoutError):
                    async with asyncio.timeout(_CLOSE_SECONDS), self._writing:
                        await self._store.forget(self._run, self._sequence)
            await self._store.close()

    # ------------------------------------------------------------ sandboxes

    @property
    def waits(self) -> bool:
        """True while a caller here waits for the budget."""
        return self._waiting > 0

    @property
    def free(self) -> int:
        """Sandboxes that could be had without a wait; below 0 while callers wait."""
        if self._waiting or self.owed:
            return -self._waiting
        if self._limits.sandboxes:
            mine = max(self._sandboxes, self._granted[0])
            used = mine + sum(each.sandboxes for each in self._others.values())
            return max(0, self._limits.sandboxes - used)
        rate = self._rate + sum(each.rate for each in self._others.values())
        return int(rate < self._limits.rate)

    @property
    def owed(self) -> int:
        """Sandboxes beyond an equal share that other runs wait for."""
        wanted = sum(each.waiting for each in self._others.values())
        if not wanted:
            return 0
        active = 1 + sum(each.sandboxes + each.waiting > 0 for each in self._others.values())
        share = self._sandboxes // 2
        if self._limits.sandboxes:
            share = max(1, self._limits.sandboxes // active)
        return max(0, min(wanted, self._sandboxes - share))

    async def acquire(self, price: int, when_short: Callable[[], None] = lambda: None) -> None:
        """Wait until the budget has a sandbox at `price` micro-dollars per hour, in turn."""
        self._waiting += 1
        try:
            async with self._turn:
                while not await self._take(price):
                    when_short()
                    self._changed.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), _POLL_SECONDS)
        finally:
            self._waiting -= 1

    def release(self, price: int) -> None:
        """Return the share of a sandbox that was stopped."""
        self._sandboxes -= 1
        self._rate -= price
        self._changed.set()

    async def _take(self, price: int) -> bool:
        sandboxes, rate = self._sandboxes + 1, self._rate + price
        if self._store is None:
            fits = not self._limits.sandboxes or sandboxes <= self._limits.sandboxes
            granted = fits and (not self._limits.rate or rate <= self._limits.rate)
        else:
            granted = self._has_spare(sandboxes, rate) or await self._write(price)
        if granted:
            self._sandboxes += 1
            self._rate += price
        return granted

    def _has_spare(self, sandboxes: int, rate: int) -> bool:
        """True if the store counts a sandbox that was stopped, and this run surely counts as alive."""
        lately = self._clock() - self._answered_at < self._lease_seconds / 2
        within = sandboxes <= self._granted[0] and rate <= self._granted[1]
        wanted = any(each.waiting for each in self._others.values())
        return lately and within and (self.down or not wanted)

    # ------------------------------------------------------------ the store

    async def _write(self, price: int | None = None) -> bool:
        """Write the own entry; True if there is a sandbox more. False if the store is away."""
        assert self._store is not None
        async with self._writing:
            self._sequence += 1
            if not self.down:  # else a write that may be lost would give up what is granted
                self._granted = self._sandboxes, self._rate
            mine = Entry(self._run, self._sequence, *self._granted, self._waiting)
            try:
                answer = await self._store.write(mine, price, self._limits)
            except StoreDown as error:
                if not self.down:
                    why = {"why": str(error)}
                    _log.warning(
                        "Redis does not answer; no sandbox beyond those granted", extra=why
                    )
                self.down = True
                return False
            self.down = False
            if answer.granted and price is not None:
                self._granted = self._granted[0] + 1, self._granted[1] + price
            self._note(answer.entries)
            return answer.granted and self._granted[0] > self._sandboxes

    def _note(self, entries: Mapping[str, Entry]) -> None:
        now = self._clock()
        if now - self._answered_at > self._lease_seconds / 2:
            self._seen.clear()  # others may have written meanwhile, or could not either
        self._answered_at = now
        self._others = {run: each for run, each in entries.items() if run != self._run}
        self._seen = {
            run: known
            if (known := self._seen.get(run)) and known[0] == each.sequence
            else (each.sequence, now)
            for run, each in self._others.items()
        }

    async def _beat(self, end_run: Callable[[str], Awaitable[None]]) -> None:
        while True:
            try:
                await self._write()
                for run, (sequence, since) in self._seen.items():
                    dead = self._clock() - since >= self._lease_seconds and not self.down
                    if dead and run not in self._ending:
                        task = asyncio.create_task(self._end(run, sequence, end_run))
                        self._ending[run] = task
            except Exception:
                _log.exception("the budget could not be written")
            await asyncio.sleep(min(_BEAT_SECONDS, self._lease_seconds / 5))

    async def _end(
        self, run: str, sequence: int, end_run: Callable[[str], Awaitable[None]]
    ) -> None:
        """Stop what a dead run has left, and then return its share."""
        assert self._store is not None
        try:
            _log.warning("a replica is gone; its sandboxes are stopped", extra={"run": run})
            await end_run(run)
            await self._store.forget(run, sequence)
        except Exception as error:  # the next beat tries again
            _log.warning("sandboxes of a replica that is gone are left", extra={"why": repr(error)})
        finally:
            del self._ending[run]
