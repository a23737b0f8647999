"""Local backend: fresh sandboxes on this machine, each a fork of a warm interpreter.

The backend has a pool of slots, each with a fork server and a waiting sandbox. `lease` takes a
slot's sandbox. After the lease the kernel removes the sandbox, and the slot forks the next sandbox.
The pool grows when all slots are in use, up to a bound. A periodic sweep samples all sandboxes
except very young sandboxes: CPU time, idle time, sleeping sandboxes, and long runners, which leave
their cores to programs that have just begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from proctor_service.errors import NoSandboxInTime, SandboxUnavailable, StartError
from proctor_service.sandbox.interface import Limits, Sandbox, StatefulSandbox, Traits
from proctor_service.sandbox.linux.poller import Poller
from proctor_service.sandbox.local.cgroups import Group, Groups
from proctor_service.sandbox.local.launch import Plan
from proctor_service.sandbox.local.monitor import Monitor, Pace
from proctor_service.sandbox.local.sandbox import LocalSandbox
from proctor_service.sandbox.local.slot import Slot
from proctor_service.sandbox.local.spawn import Spawner
from proctor_service.sandbox.local.stateful import LocalStatefulSandbox
from proctor_service.sandbox.memory_room import available_memory_mb
from proctor_service.sandbox.open_files import raise_open_files

_log = logging.getLogger(__name__)
_START_SECONDS = 20.0
_SWEEP_SECONDS = 0.05
_SURPLUS_SECONDS = 2.0
_SWEEPS_PER_SECOND = 20
_MOST_LONG_RUNNERS = 128  # maximum beside the slots, which run programs that have just begun
_SESSION_PROCESSES = 1  # the session process counts, too
_STILLBORN = 5  # failed spawns in a row after which leases fail at once,
_TRY_AGAIN_SECONDS = 2.0  # for this time


class LocalBackend:
    """Implements `sandbox.interface.Backend`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._spawner = Spawner(plan.launch)
        self._midwife: asyncio.Task[None] | None = None
        self._slots: list[Slot] = []
        self._ready: deque[Slot] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._refitting: dict[Slot, asyncio.Future[None]] = {}
        self._groups: Groups | None = None
        self._monitor = Monitor()
        self._poller = Poller()
        self._kept: dict[Slot, LocalStatefulSandbox] = {}
        self._sweeper: asyncio.Task[None] | None = None
        self._closing = False
        self._stillborn = 0
        self._stillborn_at = 0.0
        self._made = 0
        self._last_error = ""
        self._surplus_since = time.monotonic()
        self._last_ready_at = time.monotonic()
        self._tell_asleep: Callable[[int, int], None] | None = None
        self._graves: set[asyncio.Task[None]] = set()

    @property
    def traits(self) -> Traits:
        """Properties of this machine, and its missing protections."""
        return self._plan.traits

    async def open(self) -> None:
        """Start the pool. Raises StartError when no sandbox becomes ready."""
        raise_open_files()
        self._poller.open()
        self._groups = self._plan.open_groups()
        try:
            await self._spawner.open()
        except StartError as error:
            await self.close()
            raise StartError(f"no sandbox came up: {error}") from None
        for _ in range(self._plan.warm_slots):
            self._add_slot()
        deadline = time.monotonic() + _START_SECONDS
        while len(self._ready) < self._plan.warm_slots:
            if self._stillborn or time.monotonic() > deadline:
                await self.close()
                raise StartError(f"no sandbox came up: {self._last_error or 'it took too long'}")
            await self._change(0.5)
        self._sweeper = asyncio.create_task(self._sweep())

    @contextlib.asynccontextmanager
    async def lease(self, limits: Limits) -> AsyncIterator[Sandbox]:
        """Lease a fresh sandbox; see `Backend.lease`."""
        async with self._borrow(limits) as (_, sandbox):
            self._monitor.add(sandbox)
            try:
                yield sandbox
            finally:
                self._monitor.remove(sandbox)

    @contextlib.asynccontextmanager
    async def open_stateful(
        self, limits: Limits, tags: Sequence[str] = ()
    ) -> AsyncIterator[StatefulSandbox]:
        """Lease a stateful sandbox; see `Backend.open_stateful`. Local sandboxes ignore tags."""
        more = replace(limits, processes=limits.processes + _SESSION_PROCESSES)
        async with self._borrow(more) as (slot, sandbox):
            kept = LocalStatefulSandbox(sandbox, limits, self._monitor)
            self._kept[slot] = kept
            if len(self._slots) - len(self._kept) < self._plan.warm_slots:
                self._add_slot()  # keeps the number of slots for evaluations
            try:
                await kept.open()
                yield kept
            finally:
                del self._kept[slot]
                await kept.close()

    @contextlib.asynccontextmanager
    async def _borrow(self, limits: Limits) -> AsyncIterator[tuple[Slot, LocalSandbox]]:
        slot = await self._take(limits)
        try:
            sandbox = slot.lease(limits)
        except OSError as error:
            slot.close()
            raise SandboxUnavailable(f"limits cannot be set: {error}") from error
        try:
            yield slot, sandbox
        finally:
            slot.give_back(sandbox)

    async def close(self) -> None:
        """Close every slot and wait until its processes are gone."""
        self._closing = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeper
        await self._monitor.close()
        for slot in list(self._slots):
            slot.close()
        while self._graves:
            await asyncio.wait(self._graves)
        if self._midwife is not None:
            await asyncio.wait({self._midwife})
        await self._spawner.close()
        self._poller.close()
        if self._groups is not None:
            self._groups.close()
            self._groups = None

    def when_asleep(self, tell: Callable[[int, int], None]) -> None:
        """Register a callback; see `Backend.when_asleep`. The monitor loop calls `tell`."""
        self._tell_asleep = tell

    def census(self) -> dict[str, int]:
        """Return the number of slots by state."""
        return dict(Counter(slot.state for slot in self._slots))

    def forkserver_of(self, sandbox: Sandbox) -> int:
        """Return the PID of a leased sandbox's fork server, for fault injection.

        Raises LookupError for other sandboxes.
        """
        return next(slot.pid for slot in self._slots if slot.sandbox is sandbox)

    def busy_slots(self) -> list[int]:
        """Return the PIDs of all fork servers with a leased sandbox, for fault injection."""
        return [slot.pid for slot in self._slots if slot.state == "leased"]

    def zygote(self) -> int:
        """Return the PID of the zygote, for fault injection."""
        return self._spawner.pid

    # ------------------------------------------------------------ slots

    async def _take(self, limits: Limits) -> Slot:
        """Wait for a slot as long as slots become ready: many callers on a slow machine take long.

        Raises NoSandboxInTime if none became ready for 20 s.
        """
        begun = time.monotonic()
        while True:
            slot = self._pick(limits.disk_mb)
            if slot is not None and (
                slot.disk_mb == limits.disk_mb or await self._fit(slot, limits.disk_mb)
            ):
                return slot
            if self._closing:
                raise SandboxUnavailable("the service is stopping")
            if self._gives_up():
                raise SandboxUnavailable(f"forkservers die: {self._last_error}")
            if time.monotonic() > max(begun, self._last_ready_at) + _START_SECONDS:
                raise NoSandboxInTime("no sandbox became ready in time")
            self._grow()
            await self._change(1.0)

    def _pick(self, disk_mb: int) -> Slot | None:
        """Take a ready slot out of the pool, preferably with the right disk size.

        The slot that became ready last comes first: the processor's caches still hold its pages.
        """
        ready = [slot for slot in self._ready if slot.state == "ready"]
        fitting = [slot for slot in ready if slot.disk_mb == disk_mb]
        self._ready = deque(ready)
        if not ready:
            return None
        slot = (fitting or ready)[-1]
        self._ready.remove(slot)
        return slot

    async def _fit(self, slot: Slot, disk_mb: int) -> bool:
        """Give a slot's sandbox this disk size; False if the slot died meanwhile.

        The caller keeps the slot during the change. Back in the pool, a caller with another size
        could take the slot, and both callers would take the slot from each other forever.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._refitting[slot] = waiter
        slot.refit(disk_mb)
        try:
            await waiter
        except asyncio.CancelledError:
            given = self._refitting.pop(slot, None) is None
            if given and slot.state == "ready" and slot not in self._ready:
                self._on_slot(slot)
            raise
        return slot.state == "ready"

    def _grow(self) -> None:
        """Add a slot unless enough are coming up for all waiting callers."""
        coming = sum(slot.state in ("starting", "recycling") for slot in self._slots)
        if coming <= len(self._waiters) and len(self._slots) < self._plan.max_slots:
            self._add_slot()

    def _add_slot(self) -> None:
        """Order another fork server, or a new zygote if none runs."""
        if not self._spawner.ready:
            self._start_spawning()
            return
        self._made += 1
        group = Group() if self._groups is None else self._groups.make(f"slot-{self._made}")
        try:
            slot = Slot(
                self._spawner, self._plan.launch, self._made, group, self._poller, self._on_slot
            )
        except OSError as error:
            self._last_error = str(error)
            group.close()
            return  # waiting callers try again
        self._slots.append(slot)

    def _start_spawning(self) -> None:
        if self._midwife is None or self._midwife.done():
            self._midwife = asyncio.get_running_loop().create_task(self._replace_zygote())

    async def _replace_zygote(self) -> None:
        _log.warning("the zygote died and is replaced")
        try:
            await self._spawner.open()
        except StartError as error:
            self._note_failed_spawn(str(error))
        self._wake(len(self._waiters))

    def _note_failed_spawn(self, why: str) -> None:
        self._stillborn += 1
        self._stillborn_at = time.monotonic()
        self._last_error = why

    def _gives_up(self) -> bool:
        """Return True after repeated recent failures; after a pause, callers try again."""
        lately = time.monotonic() - self._stillborn_at < _TRY_AGAIN_SECONDS
        return self._stillborn >= _STILLBORN and lately

    def _on_slot(self, slot: Slot) -> None:
        """Hand out a slot that became ready, or replace a slot that died."""
        refitting = self._refitting.pop(slot, None)
        if refitting is not None and not refitting.done():
            refitting.set_result(None)
            if slot.state == "ready":
                return
        if slot.state == "ready":
            self._stillborn = 0
            self._last_ready_at = time.monotonic()
            self._ready.append(slot)
            self._wake(1)
        else:
            self._bury(slot)
            self._wake(len(self._waiters))

    def _wake(self, most: int) -> None:
        """Wake up to `most` waiting callers, the oldest first."""
        while self._waiters and most > 0:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                most -= 1

    def _bury(self, slot: Slot) -> None:
        self._slots.remove(slot)
        if not (self._closing or slot.closed):
            if not slot.has_served:
                self._note_failed_spawn(slot.error)
            _log.warning("a forkserver died and is replaced", extra={"why": slot.error})
            unkept = len(self._slots) - len(self._kept)
            if self._stillborn < _STILLBORN and unkept < self._plan.warm_slots:
                self._add_slot()
        grave = asyncio.get_running_loop().create_task(asyncio.to_thread(slot.wait_closed))
        self._graves.add(grave)
        grave.add_done_callback(self._graves.discard)

    async def _change(self, seconds: float) -> None:
        """Wait until a slot becomes ready or dies, at most `seconds`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # asyncio.wait_for may swallow a cancellation
                await waiter

    async def _sweep(self) -> None:
        told = 0
        has_room = False
        for sweep in itertools.count():
            await asyncio.sleep(_SWEEP_SECONDS)
            await self._monitor.measure()
            pace = Pace()
            for kept in list(self._kept.values()):
                kept.check_memory()
                if sweep % _SWEEPS_PER_SECOND == 0:
                    kept.check_background()
                await pace.rest()
            yielding, lent = self._monitor.rest()
            long_runners = self._monitor.set_long_runners_aside(self._plan.cores)
            if long_runners and sweep % _SWEEPS_PER_SECOND == 0:
                has_room = available_memory_mb() > self._plan.memory_mb
            if has_room:
                yielding += min(long_runners, _MOST_LONG_RUNNERS)
            if (yielding or told) and self._tell_asleep is not None:
                self._tell_asleep(yielding, lent)
                told = yielding
            self._shrink()

    def _shrink(self) -> None:
        """Close a surplus slot some time after a load peak."""
        if len(self._ready) <= self._plan.warm_slots:
            self._surplus_since = time.monotonic()
        elif time.monotonic() - self._surplus_since > _SURPLUS_SECONDS:
            self._ready.popleft().close()
