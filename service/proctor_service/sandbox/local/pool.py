"""The slots of one environment: a zygote, its fork servers, and the sandboxes that wait in them.

`take` hands out a slot with a ready sandbox. The pool grows when all slots are in use, as far as
the backend gives places, and shrinks some time after a load peak. A dead fork server and a dead
zygote are replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from proctor_service.errors import NoSandboxInTime, SandboxUnavailable, StartError
from proctor_service.sandbox.environments import Users, WatchedFolders
from proctor_service.sandbox.interface import Limits
from proctor_service.sandbox.linux.poller import Poller
from proctor_service.sandbox.local.cgroups import Group
from proctor_service.sandbox.local.slot import Slot
from proctor_service.sandbox.local.spawn import START_SECONDS, Launch, Spawner

_log = logging.getLogger(__name__)
_SURPLUS_SECONDS = 2.0
_STILLBORN = 5  # failed spawns in a row after which leases fail at once,
_TRY_AGAIN_SECONDS = 2.0  # for this time


@dataclass(frozen=True, slots=True)
class Place:
    """Place for another slot: a number that no other slot of the service has, and its cgroup."""

    number: int
    group: Group


class Pool(Users):
    """Slots with the same launch.

    `warm_slots`: slots beside those of stateful sandboxes that the pool keeps. `new_place`: returns
    the place of another slot, or None while all are in use; raises OSError.
    """

    def __init__(
        self,
        launch: Launch,
        warm_slots: int,
        new_place: Callable[[], Place | None],
        poller: Poller,
    ) -> None:
        super().__init__()
        self.watched: WatchedFolders | None = None
        self._launch = launch
        self._warm_slots = warm_slots
        self._new_place = new_place
        self._poller = poller
        self._spawner = Spawner(launch)
        self._midwife: asyncio.Task[None] | None = None
        self._slots: list[Slot] = []
        self._ready: deque[Slot] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._refitting: dict[Slot, asyncio.Future[None]] = {}
        self._stateful: set[Slot] = set()
        self._closing = False
        self._stillborn = 0
        self._stillborn_at = 0.0
        self._last_error = ""
        self._surplus_since = time.monotonic()
        self._last_ready_at = time.monotonic()
        self._graves: set[asyncio.Task[None]] = set()

    @property
    def slots(self) -> list[Slot]:
        """Slots in all states but dead."""
        return self._slots

    @property
    def zygote(self) -> int:
        """PID of the zygote. Raises LookupError without one."""
        return self._spawner.pid

    async def open(self) -> None:
        """Start the pool. Raises StartError when no sandbox becomes ready."""
        try:
            await self._spawner.open()
        except StartError as error:
            await self.close()
            raise StartError(f"no sandbox came up: {error}") from None
        deadline = time.monotonic() + START_SECONDS
        while len(self._ready) < self._warm_slots:
            if self._stillborn or time.monotonic() > deadline:
                await self.close()
                raise StartError(f"no sandbox came up: {self._last_error or 'it took too long'}")
            for _ in range(self._warm_slots - len(self._slots)):
                self._add_slot()
            await self._change(0.5)

    async def close(self) -> None:
        """Close every slot and wait until its processes are gone."""
        self._closing = True
        for slot in list(self._slots):
            slot.close()
        while self._graves:
            await asyncio.wait(self._graves)
        if self._midwife is not None:
            await asyncio.wait({self._midwife})
        await self._spawner.close()

    def census(self) -> Counter[str]:
        """Return the number of slots by state."""
        return Counter(slot.state for slot in self._slots)

    def hold(self, slot: Slot) -> None:
        """Note that a stateful sandbox has this slot; another takes its place."""
        self._stateful.add(slot)
        if len(self._slots) - len(self._stateful) < self._warm_slots:
            self._add_slot()  # keeps the number of slots for evaluations

    def release(self, slot: Slot) -> None:
        """Note that the stateful sandbox of this slot ends."""
        self._stateful.discard(slot)

    def give_up_one(self) -> bool:
        """Close a slot in which a sandbox waits, for another pool; False without one."""
        ready = [slot for slot in self._ready if slot.state == "ready"]
        if ready:
            self._ready.remove(ready[0])
            ready[0].close()
        return bool(ready)

    def shrink(self) -> None:
        """Close a surplus slot some time after a load peak."""
        if len(self._ready) <= self._warm_slots:
            self._surplus_since = time.monotonic()
        elif time.monotonic() - self._surplus_since > _SURPLUS_SECONDS:
            self._ready.popleft().close()

    async def take(self, limits: Limits) -> Slot:
        """Wait for a slot as long as slots become ready: many callers on a slow machine take long.

        Raises NoSandboxInTime if none became ready for 60 s.
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
            if time.monotonic() > max(begun, self._last_ready_at) + START_SECONDS:
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
        if coming <= len(self._waiters):
            self._add_slot()

    def _add_slot(self) -> None:
        """Order another fork server, or a new zygote if none runs."""
        if not self._spawner.ready:
            self._start_spawning()
            return
        try:
            place = self._new_place()
        except OSError as error:  # no cgroup can be made
            self._last_error = str(error)
            return  # waiting callers try again
        if place is None:
            return
        try:
            slot = Slot(
                self._spawner, self._launch, place.number, place.group, self._poller, self._on_slot
            )
        except OSError as error:
            self._last_error = str(error)
            place.group.close()
            return
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
            if slot not in self._ready:  # else its waiting sandbox had ended
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
            unkept = len(self._slots) - len(self._stateful)
            if self._stillborn < _STILLBORN and unkept < self._warm_slots:
                self._add_slot()
        grave = asyncio.get_running_loop().create_task(asyncio.to_thread(slot.wait_closed))
        self._graves.add(grave)
        grave.add_done_callback(self._graves.discard)

    async def _change(self, seconds: float) -> None:
        """Wait until a slot becomes ready or dies, at most `seconds`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):  # asyncio.wait_for may swallow a cancellation
                    await waiter
        finally:
            with contextlib.suppress(ValueError):  # was woken
                self._waiters.remove(waiter)  # else `_grow` adds a slot for a caller that is gone
