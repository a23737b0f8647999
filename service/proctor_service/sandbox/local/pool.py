"""The slots of an environment: a zygote, its fork servers, and the sandboxes waiting in them.

    starting ──▶ ready ──▶ leased ──▶ recycling ──▶ ready …        (any) ──▶ dead

In state `ready`, a fresh, locked-down and idle sandbox waits in the slot, so a lease is cheap. The fork
server forks the next sandbox as soon as the last is gone; if a waiting sandbox ends, for example because
the machine runs out of memory, after a pause. When a fork server dies, its sandbox dies too, and the pool
replaces the slot. The pool grows when all slots are in use, as far as the backend gives places, and
shrinks some time after a load peak.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import select
import signal
import socket
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Literal

from proctor_service.errors import NoSandboxInTime, SandboxUnavailable, StartError
from proctor_service.sandbox.environments import WatchedFolders
from proctor_service.sandbox.interface import Limits
from proctor_service.sandbox.linux.socket_memory import NetworkSockets
from proctor_service.sandbox.local.bundle import START_SECONDS, Launch, Spawner
from proctor_service.sandbox.local.cgroups import Group
from proctor_service.sandbox.local.fork_server import PROGRAM, SESSION
from proctor_service.sandbox.local.sandbox import BackendParts, Exit, LocalSandbox

_log = logging.getLogger(__name__)
_END_SECONDS = 5.0
_PAUSE_SECONDS = 0.1  # what ended a waiting sandbox may end the next one as well
_PER_SANDBOX = 4  # its channel, stdout, stderr and a pidfd
_SURPLUS_SECONDS = 2.0
_MOST_FAILED_STARTS = 5  # in a row; after them leases fail at once,
_TRY_AGAIN_SECONDS = 2.0  # for this time

State = Literal["starting", "ready", "leased", "recycling", "dead"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Properties of a sandbox from its fork on.

    `is_session`: its program outlives the commands started by the program, as process 1; otherwise an
    init is process 1.
    """

    disk_mb: int
    is_session: bool = False

    def __str__(self) -> str:
        kind = SESSION if self.is_session else PROGRAM
        return f"{self.disk_mb} {kind.decode()}"


@dataclass(frozen=True, slots=True)
class Place:
    """Place for another slot: a number unique among the slots of the service, and its cgroup.

    `free`: called after the end of all processes of the place's user.
    """

    number: int
    group: Group
    free: Callable[[], None]

    def close(self) -> None:
        """Remove the cgroup, and free the number; blocks."""
        self.group.close()
        self.free()


class Slot:
    """Owns a fork server, and sends its orders; calls `on_change` when ready and when dead.

    Raises OSError when the zygote cannot accept the order.
    """

    def __init__(
        self,
        spawner: Spawner,
        launch: Launch,
        place: Place,
        parts: BackendParts,
        on_change: Callable[[Slot], None],
    ) -> None:
        self.state: State = "starting"
        self.error = ""
        self.closed = False
        self.has_served = False  # a sandbox was ready here before
        self.sandbox: LocalSandbox | None = None
        self.shape = Shape(launch.disk_mb)
        self._sockets: NetworkSockets | None = None
        self.group = place.group
        self._place = place
        self._launch = launch
        self._parts = parts
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._descriptors: list[int] = []
        self._unsent = bytearray()
        self._pause: asyncio.TimerHandle | None = None
        self.pid = 0
        self._pidfd = -1
        entrances = place.group.entrances()
        try:
            self._control, theirs = socket.socketpair()
            with contextlib.ExitStack() as on_failure, theirs:
                on_failure.callback(self._control.close)
                spawner.spawn(place.number, theirs, entrances)
                on_failure.pop_all()
        finally:
            for entrance in entrances:
                os.close(entrance)
        self._control.setblocking(False)
        self._order()
        self._loop.add_reader(self._control.fileno(), self._on_control)

    # ------------------------------------------------------------ called by the pool

    def lease(self, limits: Limits) -> LocalSandbox:
        """Return the waiting sandbox; the caller must kill the sandbox and wait for its end.

        Raises OSError when the kernel refuses the limits.
        """
        self.group.set_limits(limits.memory_mb, limits.processes)
        if self.state != "ready" or self.sandbox is None:
            raise SandboxUnavailable(f"slot is {self.state}")
        self.state = "leased"
        self._order()
        return self.sandbox

    def refit(self, shape: Shape) -> None:
        """Replace the waiting sandbox by a sandbox of another shape."""
        self.shape = shape
        if self.sandbox is not None:
            self.state = "recycling"
            self._order()
            self.sandbox.kill()

    def close(self) -> None:
        """Kill the fork server; the kernel kills its descendants."""
        self.closed = True
        self._die("closed")

    def wait_closed(self) -> None:
        """Block until the killed processes are gone, then close the place."""
        if self._pidfd >= 0:
            if not _wait_gone(self._pidfd, _END_SECONDS):
                # Without namespaces, the fork server was not killed and cleans up first.
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
                _wait_gone(self._pidfd, _END_SECONDS)
            os.close(self._pidfd)
            self._pidfd = -1
        self._place.close()

    # ------------------------------------------------------------ messages with the fork server

    def _order(self) -> None:
        """Order the next sandbox."""
        self._send(f"fork {self.shape}\n".encode())

    def _send(self, line: bytes = b"") -> None:
        """Send an order and the unsent rest of earlier orders; the rest follows when possible."""
        self._unsent += line
        try:
            if self._unsent:
                del self._unsent[: self._control.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()  # the fork server is gone, as `_on_control` will find
        if self._unsent:
            self._loop.add_writer(self._control.fileno(), self._send)
        elif not line:
            self._loop.remove_writer(self._control.fileno())

    def _on_control(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, 16)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        self._descriptors += descriptors
        if not data:
            self._die(self.error or "the forkserver died")
            return
        self._received += data
        while b"\n" in self._received:
            line, _, self._received = self._received.partition(b"\n")
            kind, _, rest = line.decode("utf-8", "replace").partition(" ")
            self._on_message(kind, rest)

    def _on_message(self, kind: str, rest: str) -> None:
        if kind == "born" and not self._descriptors:
            self._die("no descriptor is left")
        elif kind == "born":
            self.pid, self._pidfd = int(rest), self._descriptors.pop(0)
        elif kind == "network" and not self._descriptors:
            self._die("no descriptor is left")
        elif kind == "network":
            self._forget_sockets()
            self._sockets = NetworkSockets(self._descriptors.pop(0))
        elif kind == "failed":
            self.error = rest
            self._die(rest)
        elif kind == "ready" and len(self._descriptors) < _PER_SANDBOX:
            self._die("no descriptor is left")
        elif kind == "ready":
            lent = self._descriptors[:_PER_SANDBOX]
            del self._descriptors[:_PER_SANDBOX]
            self.sandbox = LocalSandbox(
                f"sb_{secrets.token_hex(12)}",
                lent,
                self.group,
                self._launch,
                self.pid,
                self._sockets,
                self._parts,
            )
            if rest == str(self.shape):
                self.state, self.has_served = "ready", True
                self._on_change(self)
            else:
                self.refit(self.shape)
        elif self.sandbox is not None:
            sandbox, self.sandbox = self.sandbox, None
            self.group.wake()  # the next sandbox is being forked
            if self.state == "ready":  # no lease has ordered the next one
                self._pause = self._loop.call_later(_PAUSE_SECONDS, self._order)
            if self.state != "dead":
                self.state = "recycling"
            status, cpu_microseconds, peak_kb, is_foreign, at_microseconds = map(int, rest.split())
            sandbox.on_exit(
                Exit(
                    status, cpu_microseconds / 1e6, peak_kb, bool(is_foreign), at_microseconds / 1e6
                )
            )

    def _forget_sockets(self) -> None:
        if self._sockets is not None:
            self._sockets.close()
            self._sockets = None

    def _die(self, why: str) -> None:
        if self.state == "dead":
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._control.fileno())
        self._loop.remove_writer(self._control.fileno())
        self._control.close()
        if self._launch.contained and self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
        self._forget_sockets()
        sandbox, self.sandbox = self.sandbox, None
        if sandbox is not None:
            sandbox.on_lost(f"its forkserver is gone: {why}")
        self.error = self.error or why
        self.state = "dead"
        self._on_change(self)


class SlotPool:
    """Slots with the same launch.

    `warm_slots`: minimum of slots of the pool, beside the slots of stateful sandboxes. `new_place`:
    returns the place of another slot, or None while all are in use; raises OSError. `slots`: in all
    states but dead.
    """

    def __init__(
        self,
        launch: Launch,
        warm_slots: int,
        new_place: Callable[[], Place | None],
        parts: BackendParts,
    ) -> None:
        self.last_used_at = time.monotonic()
        self.watched: WatchedFolders | None = None
        self._users = 0
        self._launch = launch
        self._warm_slots = warm_slots
        self._new_place = new_place
        self._parts = parts
        self._spawner = Spawner(launch)
        self._starter: asyncio.Task[None] | None = None
        self.slots: list[Slot] = []
        self._ready: deque[Slot] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._refitting: dict[Slot, asyncio.Future[None]] = {}
        self._stateful: set[Slot] = set()
        self._closing = False
        self._failed_starts = 0
        self._failed_start_at = 0.0
        self._last_error = ""
        self._surplus_since = time.monotonic()
        self._last_ready_at = time.monotonic()
        self._ended: set[asyncio.Task[None]] = set()

    @property
    def zygote(self) -> int:
        """PID of the zygote. Raises LookupError without a zygote."""
        return self._spawner.pid

    @property
    def spawner(self) -> Spawner:
        """The zygote's owner."""
        return self._spawner

    async def open(self, least: int | None = None) -> None:
        """Start the pool, and wait for `least` slots, by default all warm ones.

        Raises StartError when no sandbox becomes ready.
        """
        least = self._warm_slots if least is None else least
        try:
            await self._spawner.open()
        except StartError as error:
            await self.close()
            raise StartError(f"no sandbox came up: {error}") from None
        deadline = time.monotonic() + START_SECONDS
        while len(self._ready) < least:
            if self._failed_starts or time.monotonic() > deadline:
                await self.close()
                raise StartError(f"no sandbox came up: {self._last_error or 'it took too long'}")
            for _ in range(self._warm_slots - len(self.slots)):
                self._add_slot()
            await self._change(0.5)

    async def close(self) -> None:
        """Close every slot and wait until its processes are gone."""
        self._closing = True
        for slot in list(self.slots):
            slot.close()
        while self._ended:
            await asyncio.wait(self._ended)
        if self._starter is not None:
            await asyncio.wait({self._starter})
        await self._spawner.close()

    def census(self) -> Counter[str]:
        """Return the number of slots by state."""
        return Counter(slot.state for slot in self.slots)

    def hold(self, slot: Slot) -> None:
        """Give this slot to a stateful sandbox; another slot takes its place."""
        self._stateful.add(slot)
        if len(self.slots) - len(self._stateful) < self._warm_slots:
            self._add_slot()  # keeps the number of slots for evaluations

    def release(self, slot: Slot) -> None:
        """Note the end of the stateful sandbox of this slot."""
        self._stateful.discard(slot)

    def give_up_one(self) -> bool:
        """Close a slot with a waiting sandbox, for another pool; False without a waiting sandbox."""
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

    @contextlib.asynccontextmanager
    async def borrow(
        self, limits: Limits, *, is_session: bool = False
    ) -> AsyncIterator[tuple[Slot, LocalSandbox]]:
        """Lend a fresh sandbox and its slot. Raises SandboxUnavailable, and NoSandboxInTime."""
        self._users += 1
        try:
            shortages = self._parts.shortages
            if shortages is not None:
                await shortages.over(bool(self._launch.config["drops_user"]))
            slot = await self._take(Shape(limits.disk_mb, is_session))
            try:
                sandbox = slot.lease(limits)
            except OSError as error:
                slot.close()
                raise SandboxUnavailable(f"limits cannot be set: {error}") from error
            try:
                yield slot, sandbox
            finally:
                if slot.sandbox is sandbox:  # it has not ended yet
                    slot.state = "recycling"
                    sandbox.kill()
        finally:
            self._users -= 1
            self.last_used_at = time.monotonic()

    def is_idle(self, seconds: float) -> bool:
        """Return True if the pool was unused for this time."""
        return not self._users and time.monotonic() - self.last_used_at >= seconds

    async def _take(self, shape: Shape) -> Slot:
        """Take a ready slot out of the pool, preferably with a sandbox of this shape.

        The slot ready last comes first: the processor's caches still hold its pages. Waits as long as
        slots become ready, since many callers on a slow machine take long. Raises NoSandboxInTime after
        60 s without a ready slot.
        """
        begun = time.monotonic()
        while True:
            ready = [slot for slot in self._ready if slot.state == "ready"]
            self._ready = deque(ready)
            if ready:
                slot = ([each for each in ready if each.shape == shape] or ready)[-1]
                self._ready.remove(slot)
                if slot.shape == shape or await self._fit(slot, shape):
                    return slot
            if self._closing:
                raise SandboxUnavailable("the service is stopping")
            if self._gives_up():
                raise SandboxUnavailable(f"forkservers die: {self._last_error}")
            if time.monotonic() > max(begun, self._last_ready_at) + START_SECONDS:
                raise NoSandboxInTime("no sandbox became ready in time")
            self._grow()
            await self._change(1.0)

    async def _fit(self, slot: Slot, shape: Shape) -> bool:
        """Give a slot's sandbox this shape; False if the slot died meanwhile.

        The caller keeps the slot during the change. Back in the pool, a caller with another shape
        could take the slot, and both callers would take the slot from each other forever.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._refitting[slot] = waiter
        slot.refit(shape)
        try:
            await waiter
        except asyncio.CancelledError:
            was_handed_out = self._refitting.pop(slot, None) is None
            if was_handed_out and slot.state == "ready" and slot not in self._ready:
                self._on_slot(slot)
            raise
        return slot.state == "ready"

    def _grow(self) -> None:
        """Add a slot unless enough are coming up for all waiting callers."""
        coming = sum(slot.state in ("starting", "recycling") for slot in self.slots)
        if coming <= len(self._waiters):
            self._add_slot()

    def _add_slot(self) -> None:
        """Order another fork server, or a new zygote in place of a dead zygote."""
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
            slot = Slot(self._spawner, self._launch, place, self._parts, self._on_slot)
        except OSError as error:
            self._last_error = str(error)
            place.close()
            return
        self.slots.append(slot)

    def _start_spawning(self) -> None:
        if self._starter is None or self._starter.done():
            self._starter = asyncio.get_running_loop().create_task(self._replace_zygote())

    async def _replace_zygote(self) -> None:
        _log.warning("the zygote died and is replaced")
        try:
            await self._spawner.open()
        except StartError as error:
            self._note_failed_spawn(str(error))
        self._wake(len(self._waiters))

    def _note_failed_spawn(self, why: str) -> None:
        self._failed_starts += 1
        self._failed_start_at = time.monotonic()
        self._last_error = why

    def _gives_up(self) -> bool:
        """Return True after repeated recent failures; after a pause, callers try again."""
        lately = time.monotonic() - self._failed_start_at < _TRY_AGAIN_SECONDS
        return self._failed_starts >= _MOST_FAILED_STARTS and lately

    def _on_slot(self, slot: Slot) -> None:
        """Hand out a newly ready slot, or replace a dead slot."""
        refitting = self._refitting.pop(slot, None)
        if refitting is not None and not refitting.done():
            refitting.set_result(None)
            if slot.state == "ready":
                return
        if slot.state == "ready":
            self._failed_starts = 0
            self._last_ready_at = time.monotonic()
            if slot not in self._ready:  # else its waiting sandbox had ended
                self._ready.append(slot)
            self._wake(1)
        else:
            self._remove_dead(slot)
            self._wake(len(self._waiters))

    def _wake(self, most: int) -> None:
        """Wake up to `most` waiting callers, the oldest first."""
        while self._waiters and most > 0:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                most -= 1

    def _remove_dead(self, slot: Slot) -> None:
        self.slots.remove(slot)
        if not (self._closing or slot.closed):
            if not slot.has_served:
                self._note_failed_spawn(slot.error)
            _log.warning("a forkserver died and is replaced", extra={"why": slot.error})
            unkept = len(self.slots) - len(self._stateful)
            if self._failed_starts < _MOST_FAILED_STARTS and unkept < self._warm_slots:
                self._add_slot()
        ending = asyncio.get_running_loop().create_task(asyncio.to_thread(slot.wait_closed))
        self._ended.add(ending)
        ending.add_done_callback(self._ended.discard)

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


def _wait_gone(pidfd: int, seconds: float) -> bool:
    """Block until a pidfd's process has ended; False on timeout."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
