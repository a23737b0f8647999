"""Warm pool: waiting, prepared sandboxes, made ahead of need and limited in age.

A caller gets the sandbox with the longest wait. The pool refills in the background, with as many
concurrent creations as the plan allows. Without a ready sandbox in time, or if a retry cannot help,
the caller gets the failure. A program which may have run is never retried.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

from proctor_service.errors import BudgetExceeded, Failure, SandboxUnavailable
from proctor_service.features.aviato.failures import meaning_of
from proctor_service.features.aviato.gateway import Remote
from proctor_service.features.aviato.plan import AviatoPlan, Order, Shape
from proctor_service.features.aviato.quota import Quota
from proctor_service.sandbox.interface import PAYER, Spent

_log = logging.getLogger(__name__)
_UPKEEP_SECONDS = 1.0
_PAUSE_SECONDS = 0.2
_MOST_PAUSE_SECONDS = 5.0
_CLOSE_SECONDS = 20.0
_MICRO_DOLLAR_SECONDS = 3600 * 1_000_000  # of micro-dollars per hour in a dollar

Make = Callable[[Order], Awaitable[Remote]]


class RemotePool:
    """Sandboxes of one image by state: `starting`, `ready`, `leased`, `stopping`.

    `quota`: limits of this pool together with others; by default its own.
    """

    def __init__(
        self,
        plan: AviatoPlan,
        shape: Shape,
        make: Make,
        quota: Quota | None = None,
        spent: Spent = lambda payer, seconds, dollars: None,
    ) -> None:
        self._plan = plan
        self._shape = shape
        self._make = make
        self._ready: deque[Remote] = deque()
        self._leased: set[Remote] = set()
        self._quota = quota or Quota(plan.most_sandboxes, plan.creations)
        self._spent = spent
        self._paid_until: dict[Remote, float] = {}
        self._payers: dict[Remote, tuple[str, str]] = {}
        self._stopping = asyncio.Semaphore(plan.creations)
        self._making: set[asyncio.Task[None]] = set()
        self._ended: set[asyncio.Task[None]] = set()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._starting = 0
        self._pause = 0.0
        self._refused: Failure | None = None
        self._upkeep: asyncio.Task[None] | None = None
        self._closing = False

    # ------------------------------------------------------------ lifecycle

    def start(self) -> None:
        """Start filling the pool."""
        self._upkeep = asyncio.create_task(self._keep_up())
        self._fill()

    async def open(self) -> None:
        """Fill the pool. Raises SandboxUnavailable if not a single sandbox is ready in time."""
        self.start()
        deadline = time.monotonic() + self._plan.start_seconds
        while len(self._ready) < self._plan.pool_size:
            if self._ready and self._quota.free <= 0:  # other replicas have the rest
                break
            if self._refused is not None or not await self._change(deadline):
                break
        if not self._ready:
            raise self._refused or SandboxUnavailable("timeout: no sandbox came up")

    async def close(self) -> None:
        """Stop all sandboxes, and wait for completion or a timeout."""
        self._closing = True
        self._wake_waiting(len(self._waiters))
        tasks = [task for task in (self._upkeep, *self._making) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for remote in (*self._ready, *self._leased):
            self._bury(remote)
        self._ready.clear()
        self._leased.clear()
        if self._ended:
            await asyncio.wait(self._ended, timeout=_CLOSE_SECONDS)
            for ending in self._ended:
                ending.cancel()

    def census(self) -> dict[str, int]:
        """Return the number of sandboxes by state."""
        return {
            "ready": len(self._ready),
            "leased": len(self._leased),
            "starting": self._starting,
            "stopping": len(self._ended),
        }

    # ------------------------------------------------------------ for callers

    async def lease(self, shape: Shape) -> Remote:
        """Return a sandbox unused since its creation or last cleanup. Raises SandboxUnavailable."""
        deadline = time.monotonic() + self._plan.start_seconds
        if shape != self._shape:
            return self._lend(await self.make(self._plan.warm_order(shape)))
        while True:
            self._discard_old()
            if self._ready:
                return self._lend(self._ready.popleft())
            if self._closing:
                raise SandboxUnavailable("the service is stopping")
            if self._refused is not None:
                raise SandboxUnavailable(self._refused.message)
            if not await self._change(deadline):
                raise self._none_in_time()

    def _none_in_time(self) -> SandboxUnavailable:
        failure = self._quota.none_in_time()
        if isinstance(failure, BudgetExceeded) or self._quota.is_down:
            return failure
        return SandboxUnavailable("capacity: no sandbox became ready in time")

    def give_back(self, remote: Remote) -> None:
        """Return a cleaned sandbox to the pool, or stop the sandbox if unsuitable."""
        if self._closing or remote.shape != self._shape or self._is_old(remote):
            self.stop(remote)
        elif remote in self._leased:
            self._leased.remove(remote)
            self._charge(remote)
            self._ready.append(remote)
            self._wake_waiting(1)

    def stop(self, remote: Remote) -> None:
        """Stop a leased sandbox in the background."""
        if remote in self._leased:
            self._leased.remove(remote)
            self._bury(remote)

    async def make(self, order: Order) -> Remote:
        """Create a sandbox for this order. Raises SandboxUnavailable."""
        price = self._plan.price
        await self._quota.acquire(self._plan.start_seconds, price)
        try:
            async with self._quota.creating():
                self._starting += 1
                try:
                    began = time.monotonic()
                    remote = await self._make(order)
                    self._paid_until[remote] = began
                    return remote
                finally:
                    self._starting -= 1
        except BaseException:
            self._quota.release(price)
            raise

    def give_up_one(self) -> bool:
        """Stop a ready sandbox in the background; False if all are needed."""
        if not self._ready or self._waiters:
            return False
        self._bury(self._ready.popleft())
        return True

    @contextlib.asynccontextmanager
    async def open_stateful(self, order: Order) -> AsyncIterator[Remote]:
        """Create a sandbox for this order, and stop the sandbox at the end of the context."""
        remote = self._lend(await self.make(order))
        try:
            yield remote
        finally:
            self.stop(remote)

    # ------------------------------------------------------------ upkeep

    def _fill(self) -> None:
        """Start creating the missing sandboxes, within the limit on concurrent creations.

        A sandbox without a waiting caller leaves its place to another pool in need.
        """
        if self._closing:
            return
        here = len(self._ready) + len(self._making)
        awaited = max(0, len(self._waiters) - here)
        spare = self._plan.pool_size + len(self._waiters) - here - awaited
        missing = awaited + min(spare, max(0, self._quota.free - awaited))
        for _ in range(min(missing, self._plan.creations - len(self._making))):
            task = asyncio.get_running_loop().create_task(self._add())
            self._making.add(task)
            task.add_done_callback(self._making.discard)

    async def _add(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if self._pause:
                await asyncio.sleep(self._pause)
            others = len(self._ready) + len(self._making) - 1
            if self._quota.free <= 0 and others >= len(self._waiters):
                self._making.discard(task)  # without a waiting caller
                return
            remote = await self.make(self._plan.warm_order(self._shape))
        except Failure as failure:
            self._pause = min(max(self._pause * 2, _PAUSE_SECONDS), _MOST_PAUSE_SECONDS)
            self._refused = None if _is_passing(failure) else failure
            _log.warning("no sandbox could be made", extra={"why": failure.message})
        else:
            self._pause, self._refused = 0.0, None
            self._ready.append(remote)
        self._making.discard(task)
        self._wake_waiting(len(self._waiters) if self._refused is not None else 1)
        self._fill()

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(_UPKEEP_SECONDS)
            self._discard_old()
            self._fill()
            self._wake_waiting(
                len(self._ready)
            )  # a waiter woken and then cancelled wakes no other waiter

    def _discard_old(self) -> None:
        while self._ready and self._is_old(self._ready[0]):
            self._bury(self._ready.popleft())

    def _is_old(self, remote: Remote) -> bool:
        return time.monotonic() - remote.born > self._plan.max_age_seconds

    def _lend(self, remote: Remote) -> Remote:
        self._leased.add(remote)
        self._payers[remote] = PAYER.get()
        self._fill()
        return remote

    async def _stop(self, remote: Remote) -> None:
        try:
            async with self._stopping:
                await remote.stop()
        finally:
            self._charge(remote)
            del self._paid_until[remote]
            self._quota.release(self._plan.price)
            self._fill()

    def _charge(self, remote: Remote) -> None:
        """Count the time since the last call for the sandbox's users, if any."""
        now = time.monotonic()
        seconds, self._paid_until[remote] = now - self._paid_until[remote], now
        payer = self._payers.pop(remote, ("", ""))
        self._spent(payer, seconds, seconds * self._plan.price / _MICRO_DOLLAR_SECONDS)

    def _bury(self, remote: Remote) -> None:
        ending = asyncio.get_running_loop().create_task(self._stop(remote))
        self._ended.add(ending)
        ending.add_done_callback(self._ended.discard)

    def _wake_waiting(self, most: int) -> None:
        """Wake up to `most` waiting callers, the oldest first."""
        while self._waiters and most > 0:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                most -= 1

    async def _change(self, deadline: float) -> bool:
        """Wait for a possible change; False after the deadline."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._fill()
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await waiter
        except TimeoutError:
            return False
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        return True


def _is_passing(failure: Failure) -> bool:
    cause = failure.__cause__
    return cause is None or meaning_of(cause).passing
