"""Budget of sandboxes and of money per hour, of this process or of all replicas together.

A sandbox counts from before its creation until after its end. With a store, the replicas share the
budget: each writes its numbers once a second. A grant of the store stays usable for a while when
the store is away, without further sandboxes.

A run is dead if it has not written for `lease_seconds`, while this run could read all the time. Its
share returns only after its sandboxes were stopped, so the limits hold through the death of a replica.
A run with sandboxes which the store lacks is entered by another run, and counts like any.

Replicas may have different limits, as during an update: the smallest of all hold for each.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

_log = logging.getLogger(__name__)
_BEAT_SECONDS = 1.0
_POLL_SECONDS = 0.25
_CLOSE_SECONDS = 3.0
_SWEEP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """Most sandboxes, and most micro-dollars per hour; 0 is without limit."""

    sandboxes: int = 0
    rate: int = 0

    def fit(self, sandboxes: int, rate: int) -> bool:
        """Return True if so many sandboxes, at this rate together, are within the limits."""
        within = not self.sandboxes or sandboxes <= self.sandboxes
        return within and (not self.rate or rate <= self.rate)


@dataclass(frozen=True, slots=True)
class BudgetEntry:
    """State of a run: sandboxes, their micro-dollars per hour, and waiting callers."""

    run: str
    sequence: int
    sandboxes: int
    rate: int
    waiting: int
    limits: BudgetLimits = BudgetLimits()


@dataclass(frozen=True, slots=True)
class Answer:
    """`granted`: the number grows by a sandbox. `entries`: of all runs, after the write.

    `group`: random name of all runs with this store. `swept`: False for a store found empty, until
    all live runs are entered; grants begin then.
    """

    granted: bool
    entries: Mapping[str, BudgetEntry]
    group: str
    swept: bool


class StoreDown(Exception):
    """The store is silent; a write may have happened."""


class BudgetStore(Protocol):
    """Entries of all replicas."""

    async def write(self, entry: BudgetEntry, price: int | None, group: str) -> Answer:
        """Write the entry of a run, with a further sandbox at `price` if within all limits.

        `group`: this run's name of the group, for a store after a loss of data.
        Raises StoreDown.
        """

    async def enter(self, entries: Sequence[BudgetEntry]) -> None:
        """Write entries of other runs if the store lacks them; the store is swept then.

        Raises StoreDown.
        """

    async def forget(self, run: str, sequence: int) -> None:
        """Remove an entry, unless the run has written since. Raises StoreDown."""

    async def close(self) -> None:
        """Close the connections."""


class Leftovers(Protocol):
    """Sandboxes of other runs."""

    async def runs_of(self, group: str) -> Mapping[str, tuple[int, int]]:
        """Return live sandboxes and their rate at most, by run. Raises exceptions of any kind."""

    async def end_run(self, run: str) -> None:
        """Stop all sandboxes of a run. Raises exceptions of any kind."""


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
        self.group = ""  # known before the store grants a sandbox
        self._limits = self._least = limits
        self._run = run
        self._lease_seconds = lease_seconds
        self._store = store
        self._clock = clock
        self._sequence = 0
        self._sandboxes = self._rate = self._waiting = 0
        self._granted = (0, 0)  # counted by the store for this run, surely
        self._answered_at = 0.0
        self._others: dict[str, BudgetEntry] = {}
        self._seen: dict[str, tuple[int, float]] = {}  # sequence, and the time of its last change
        self._swept = True
        self._sweep: asyncio.Task[None] | None = None
        self._sweeps_at = 0.0
        self._turn, self._writing = asyncio.Lock(), asyncio.Lock()
        self._changed = asyncio.Event()
        self._beats: asyncio.Task[None] | None = None
        self._ending: dict[str, asyncio.Task[None]] = {}

    # ------------------------------------------------------------ lifecycle

    def open(self, leftovers: Leftovers) -> None:
        """Begin to write, and to look for dead runs and their leftovers."""
        if self._store is not None:
            self._beats = asyncio.create_task(self._beat(leftovers))

    async def close(self, stopped: bool) -> None:
        """End. Unless all sandboxes were `stopped`, the entry stays for another run to stop them."""
        every = (self._beats, self._sweep, *self._ending.values())
        tasks = [task for task in every if task is not None]
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
        """Sandboxes available without a wait; below 0 while callers wait."""
        if self._waiting or self.owed:
            return -self._waiting
        used, rate = self._with_others(
            max(self._sandboxes, self._granted[0]), max(self._rate, self._granted[1])
        )
        if self._least.sandboxes:
            return max(0, self._least.sandboxes - used)
        return int(rate < self._least.rate)

    @property
    def owed(self) -> int:
        """Sandboxes beyond an equal share for which other runs wait."""
        wanted = sum(each.waiting for each in self._others.values())
        if not wanted:
            return 0
        active = 1 + sum(each.sandboxes + each.waiting > 0 for each in self._others.values())
        share = self._sandboxes // 2
        if self._least.sandboxes:
            share = max(1, self._least.sandboxes // active)
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
        """Return the share of a stopped sandbox."""
        self._sandboxes -= 1
        self._rate -= price
        self._changed.set()

    async def _take(self, price: int) -> bool:
        sandboxes, rate = self._sandboxes + 1, self._rate + price
        if self._store is None:
            granted = self._limits.fit(sandboxes, rate)
        else:
            granted = self._has_spare(sandboxes, rate) or await self._write(price)
        if granted:
            self._sandboxes += 1
            self._rate += price
        return granted

    def _has_spare(self, sandboxes: int, rate: int) -> bool:
        """True if the store counts a stopped sandbox, and this run surely counts as alive."""
        lately = self._clock() - self._answered_at < self._lease_seconds / 2
        within = sandboxes <= self._granted[0] and rate <= self._granted[1]
        if self.down:
            return lately and within
        wanted = any(each.waiting for each in self._others.values())
        fits = self._least.fit(*self._with_others(sandboxes, rate))  # not if a budget shrank
        return lately and within and fits and not wanted

    def _with_others(self, sandboxes: int, rate: int) -> tuple[int, int]:
        """Return sandboxes and rate of this run, from the arguments, and of all other runs."""
        others = self._others.values()
        return (
            sandboxes + sum(each.sandboxes for each in others),
            rate + sum(each.rate for each in others),
        )

    # ------------------------------------------------------------ the store

    async def _write(self, price: int | None = None) -> bool:
        """Write the own entry; True if there is a sandbox more. False if the store is away."""
        assert self._store is not None
        async with self._writing:
            self._sequence += 1
            if not self.down:  # else a lost write would give up granted sandboxes
                self._granted = self._sandboxes, self._rate
            mine = BudgetEntry(
                self._run, self._sequence, *self._granted, self._waiting, self._limits
            )
            try:
                answer = await self._store.write(mine, price, self.group)
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
            self.group = answer.group
            self._swept = answer.swept
            self._note(answer.entries)
            return answer.granted and self._granted[0] > self._sandboxes

    def _note(self, entries: Mapping[str, BudgetEntry]) -> None:
        now = self._clock()
        if now - self._answered_at > self._lease_seconds / 2:
            self._seen.clear()  # other runs may have written meanwhile, or could not write
        self._answered_at = now
        self._others = {run: each for run, each in entries.items() if run != self._run}
        least = _least([self._limits, *(each.limits for each in self._others.values())])
        if least != self._least and least != self._limits:
            _log.warning(
                "another replica has a smaller budget, which holds", extra={"least": str(least)}
            )
        self._least = least
        self._seen = {
            run: seen
            if (seen := self._seen.get(run)) and seen[0] == each.sequence
            else (each.sequence, now)
            for run, each in self._others.items()
        }

    async def _beat(self, leftovers: Leftovers) -> None:
        while True:
            try:
                await self._write()
                now = self._clock()
                for run, (sequence, since) in self._seen.items():
                    dead = now - since >= self._lease_seconds and not self.down
                    if dead and run not in self._ending:
                        task = asyncio.create_task(self._end(run, sequence, leftovers))
                        self._ending[run] = task
                is_due = now >= self._sweeps_at and self._is_first(now)
                is_idle = self._sweep is None or self._sweep.done()
                if is_idle and not self.down and (is_due or not self._swept):
                    self._sweeps_at = now + min(_SWEEP_SECONDS, self._lease_seconds / 5)
                    self._sweep = asyncio.create_task(self._enter_unclaimed(leftovers))
            except Exception:
                _log.exception("the budget could not be written")
            await asyncio.sleep(min(_BEAT_SECONDS, self._lease_seconds / 5))

    def _is_first(self, now: float) -> bool:
        """True if this run looks for sandboxes on behalf of all live runs."""
        awake = [run for run, (_, since) in self._seen.items() if now - since < _SWEEP_SECONDS]
        return self._run <= min(awake, default=self._run)

    async def _enter_unclaimed(self, leftovers: Leftovers) -> None:
        """Enter runs with sandboxes which the store lacks, for example after a loss of data.

        They count from now on. They are dead like any other if they do not write.
        """
        assert self._store is not None
        try:
            found = (await leftovers.runs_of(self.group)).items()
            own_runs = (self._run, *self._others)
            unclaimed = [
                BudgetEntry(run, 0, *held, 0) for run, held in found if run not in own_runs
            ]
            for each in unclaimed:
                _log.warning("sandboxes of an unknown replica", extra={"run": each.run})
            if unclaimed or not self._swept:
                await self._store.enter(unclaimed)
        except Exception as error:  # the next turn tries again
            _log.warning("sandboxes cannot be listed", extra={"why": repr(error)})

    async def _end(self, run: str, sequence: int, leftovers: Leftovers) -> None:
        """Stop the leftovers of a dead run, and then return its share."""
        assert self._store is not None
        try:
            _log.warning("a replica is gone; its sandboxes are stopped", extra={"run": run})
            await leftovers.end_run(run)
            await self._store.forget(run, sequence)
        except Exception as error:  # the next beat tries again
            _log.warning("sandboxes of a replica that is gone are left", extra={"why": repr(error)})
        finally:
            del self._ending[run]


def _least(limits: Sequence[BudgetLimits]) -> BudgetLimits:
    """Return the smallest of all limits; 0 is none."""
    return BudgetLimits(
        min((each.sandboxes for each in limits if each.sandboxes), default=0),
        min((each.rate for each in limits if each.rate), default=0),
    )
