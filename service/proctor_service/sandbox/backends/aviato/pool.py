"""The warm pool: furnished sandboxes that wait, made ahead of need and never older than they may be.

Whoever needs one takes the one that has waited longest. Others are made in the background, so many at
once as the plan allows, until the pool is full again. Where none is to be had in time, or asking again
cannot help, the caller gets the failure; nothing is ever retried that may have run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

from proctor_service.errors import Failure, SandboxUnavailable
from proctor_service.sandbox.backends.aviato.failures import meaning_of
from proctor_service.sandbox.backends.aviato.gateway import Remote
from proctor_service.sandbox.backends.aviato.plan import Order, Plan, Shape

_log = logging.getLogger(__name__)
_UPKEEP_SECONDS = 1.0
_PAUSE_SECONDS = 0.2
_MOST_PAUSE_SECONDS = 5.0
_CLOSE_SECONDS = 20.0

Make = Callable[[Order], Awaitable[Remote]]


class Pool:
    """Sandboxes by what they are doing: `starting`, `ready`, `leased`, `stopping`."""

    def __init__(self, plan: Plan, shape: Shape, make: Make) -> None:
        self._plan = plan
        self._shape = shape
        self._make = make
        self._ready: deque[Remote] = deque()
        self._leased: set[Remote] = set()
        self._creating = asyncio.Semaphore(plan.creations)
        self._stopping = asyncio.Semaphore(plan.creations)
        self._making: set[asyncio.Task[None]] = set()
        self._graves: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(plan.most_sandboxes)
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._starting = 0
        self._pause = 0.0
        self._refused: Failure | None = None
        self._upkeep: asyncio.Task[None] | None = None
        self._closing = False

    # ------------------------------------------------------------ life

    async def open(self) -> None:
        """Fills the pool. Raises SandboxUnavailable when not a single one can be had in time."""
        self._upkeep = asyncio.create_task(self._keep_up())
        deadline = time.monotonic() + self._plan.start_seconds
        while len(self._ready) < self._plan.pool_size:
            if self._refused is not None or not await self._change(deadline):
                break
        if not self._ready:
            raise self._refused or SandboxUnavailable("timeout: no sandbox came up")

    async def close(self) -> None:
        """Stops all of them, and waits until that is done or takes too long."""
        self._closing = True
        self._tell(len(self._waiters))
        tasks = [task for task in (self._upkeep, *self._making) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for remote in (*self._ready, *self._leased):
            self._bury(remote)
        self._ready.clear()
        self._leased.clear()
        if self._graves:
            await asyncio.wait(self._graves, timeout=_CLOSE_SECONDS)
            for grave in self._graves:
                grave.cancel()

    def census(self) -> dict[str, int]:
        """How many there are of each."""
        return {
            "ready": len(self._ready),
            "leased": len(self._leased),
            "starting": self._starting,
            "stopping": len(self._graves),
        }

    # ------------------------------------------------------------ for those who need one

    async def take(self, shape: Shape) -> Remote:
        """One that nobody has used since it was made or emptied. Raises SandboxUnavailable."""
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
                raise SandboxUnavailable("capacity: no sandbox became ready in time")

    def give_back(self, remote: Remote) -> None:
        """One that may be used again, after it was emptied."""
        if self._closing or remote.shape != self._shape or self._is_old(remote):
            self.stop(remote)
        elif remote in self._leased:
            self._leased.remove(remote)
            self._ready.append(remote)
            self._tell(1)

    def stop(self, remote: Remote) -> None:
        """Stops one that was lent, in the background."""
        if remote in self._leased:
            self._leased.remove(remote)
            self._bury(remote)

    async def make(self, order: Order) -> Remote:
        """One made for the purpose. Raises SandboxUnavailable."""
        try:
            async with asyncio.timeout(self._plan.start_seconds):
                await self._room.acquire()
        except TimeoutError:
            raise SandboxUnavailable("capacity: as many sandboxes as there may be") from None
        try:
            async with self._creating:
                self._starting += 1
                try:
                    return await self._make(order)
                finally:
                    self._starting -= 1
        except BaseException:
            self._room.release()
            raise

    @contextlib.asynccontextmanager
    async def kept(self, order: Order) -> AsyncIterator[Remote]:
        """One made for the purpose, for as long as the caller likes."""
        remote = self._lend(await self.make(order))
        try:
            yield remote
        finally:
            self.stop(remote)

    # ------------------------------------------------------------ upkeep

    def _fill(self) -> None:
        """Starts making as many as are missing, as far as there is room for them."""
        if self._closing:
            return
        wanted = self._plan.pool_size + len(self._waiters)
        missing = wanted - len(self._ready) - len(self._making)
        for _ in range(min(missing, self._plan.creations - len(self._making))):
            task = asyncio.get_running_loop().create_task(self._add())
            self._making.add(task)
            task.add_done_callback(self._making.discard)

    async def _add(self) -> None:
        try:
            if self._pause:
                await asyncio.sleep(self._pause)
            remote = await self.make(self._plan.warm_order(self._shape))
        except Failure as failure:
            self._pause = min(max(self._pause * 2, _PAUSE_SECONDS), _MOST_PAUSE_SECONDS)
            self._refused = None if _is_passing(failure) else failure
            _log.warning("no sandbox could be made", extra={"why": failure.message})
        else:
            self._pause, self._refused = 0.0, None
            self._ready.append(remote)
        task = asyncio.current_task()
        assert task is not None
        self._making.discard(task)
        self._tell(len(self._waiters) if self._refused is not None else 1)
        self._fill()

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(_UPKEEP_SECONDS)
            self._discard_old()
            self._fill()
            self._tell(len(self._ready))  # one that was told and then cancelled told nobody else

    def _discard_old(self) -> None:
        while self._ready and self._is_old(self._ready[0]):
            self._bury(self._ready.popleft())

    def _is_old(self, remote: Remote) -> bool:
        return time.monotonic() - remote.born > self._plan.max_age_seconds

    def _lend(self, remote: Remote) -> Remote:
        self._leased.add(remote)
        self._fill()
        return remote

    async def _stop(self, remote: Remote) -> None:
        try:
            async with self._stopping:
                await remote.stop()
        finally:
            self._room.release()

    def _bury(self, remote: Remote) -> None:
        grave = asyncio.get_running_loop().create_task(self._stop(remote))
        self._graves.add(grave)
        grave.add_done_callback(self._graves.discard)

    def _tell(self, most: int) -> None:
        """Has those who wait look again, the first ones first."""
        while self._waiters and most > 0:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                most -= 1

    async def _change(self, deadline: float) -> bool:
        """Waits until there may be one for us; False when that took too long."""
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
