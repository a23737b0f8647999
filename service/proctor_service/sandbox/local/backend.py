"""Local backend: fresh sandboxes on this machine, each a fork of a warm interpreter.

The backend has a pool of slots for each environment and hash seed in use. `lease` takes the sandbox of a
slot. After the lease the kernel removes the sandbox, and the slot forks the next. The pool of the default
environment with the first seed is always there; another pool starts with its first lease, and ends after
a long idle time. All pools share cgroups, user ids and the number of slots. A periodic sweep samples all
sandboxes except very young sandboxes: CPU time, idle time, sleeping sandboxes, and long runners, beside
which other programs may begin; the sweep also shares the cores by job.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from functools import partial

from proctor_service.errors import SandboxLost, SandboxUnavailable, StartError
from proctor_service.sandbox.environments import (
    DerivedEnvironment,
    Environments,
    MakeLayer,
    Starts,
    WatchedFolders,
    derived_from,
    watched,
    watched_folders,
)
from proctor_service.sandbox.interface import (
    CHARGE,
    HASH_SEEDS,
    PAYER,
    Asleep,
    Limits,
    Sandbox,
    StatefulSandbox,
)
from proctor_service.sandbox.linux.channel import SHORT_OF_OBJECTS, Poller
from proctor_service.sandbox.local.bundle import Launch, with_hash_seed
from proctor_service.sandbox.local.cgroups import Group, Groups
from proctor_service.sandbox.local.holdings import Candidate, holders, user_limits, watches_exceed
from proctor_service.sandbox.local.image import (
    COMPILING,
    Compiled,
    compiled_part,
    with_compiled_part,
    with_python,
)
from proctor_service.sandbox.local.launch import LocalPlan
from proctor_service.sandbox.local.monitor import Monitor, Pace
from proctor_service.sandbox.local.pool import Place, Slot, SlotPool
from proctor_service.sandbox.local.sandbox import BackendParts, LocalSandbox, descriptor_limit
from proctor_service.sandbox.local.shortages import Shortages, kinds_of
from proctor_service.sandbox.local.stateful import LocalStatefulSandbox
from proctor_service.sandbox.memory_room import available_memory_mb
from proctor_service.sandbox.open_files import raise_open_files
from proctor_service.settings.environments import DEFAULT

_log = logging.getLogger(__name__)
_SWEEP_SECONDS = 0.05
_SWEEPS_PER_SECOND = 20
_MOST_POOLS = 24  # beside the default one, while none of them is in use
_MOST_COMPILED = 32
_WARM_SLOTS = 2  # of an environment: one is forked again while the other serves

PoolName = tuple[str, int]
"""Environment and hash seed of a pool."""


class LocalBackend:
    """Implements `sandbox.interface.Backend`.

    `traits`: properties of this machine, and its missing protections.
    """

    def __init__(self, plan: LocalPlan) -> None:
        self.traits = plan.traits
        self._plan = plan
        self._groups: Groups | None = None
        self._monitor = Monitor(plan.tenant_weights)
        self._poller = Poller()
        shares_user = bool(plan.launch.config["user_namespace"])
        self._shortages = Shortages() if shares_user else None
        self._parts = BackendParts(self._poller, self._monitor.absence, self._shortages)
        self._short = 0
        self._search: asyncio.Task[None] | None = None
        self._default = self._pool_of(
            with_hash_seed(plan.launch, HASH_SEEDS[0]), self._warm_slots()
        )
        self._pools: dict[PoolName, SlotPool] = {(DEFAULT, HASH_SEEDS[0]): self._default}
        self._starts = Starts(self._start)
        self._ending: set[asyncio.Task[None]] = set()
        self._stateful_sandboxes: dict[Slot, LocalStatefulSandbox] = {}
        self._sweeper: asyncio.Task[None] | None = None
        self._watched: dict[str, WatchedFolders] = {}
        self._former = 0
        self._changes: Counter[str] = Counter()
        self._compiled: dict[str, Compiled] = {}
        self._closing = False
        self._made = 0
        self._numbers: set[int] = set()
        self._on_asleep: Asleep | None = None
        self._has_reported = False  # sandboxes that leave their cores, at the last sweep
        self._has_room = False  # there is memory for long runners beside the slots

    async def start(self) -> None:
        """Start the pool. Raises StartError when no sandbox becomes ready."""
        raise_open_files()
        self._poller.open()
        self._groups = self._plan.open_groups()
        try:
            if self._shortages is not None:
                open_files = descriptor_limit(self._plan.launch)
                self._user_limits = user_limits(open_files)
                self._shortages.on_short = self._on_short
                await self._shortages.open(open_files)
            self._watched = await asyncio.to_thread(watched, self._plan.environments)
            await self._default.open()
        except StartError:
            await self.close()
            raise
        self._sweeper = asyncio.create_task(self._sweep())

    @contextlib.asynccontextmanager
    async def lease(
        self, limits: Limits, environment: str = DEFAULT, hash_seed: int = HASH_SEEDS[0]
    ) -> AsyncIterator[Sandbox]:
        """Lease a fresh sandbox; see `Backend.lease`."""
        async with self._borrow((environment, hash_seed), limits) as (_, _, sandbox):
            sandbox.charge = CHARGE.get()
            self._monitor.add(sandbox)
            try:
                yield sandbox
            finally:
                self._monitor.remove(sandbox)

    @contextlib.asynccontextmanager
    async def open(
        self, limits: Limits, environment: str = DEFAULT, tags: Sequence[str] = ()
    ) -> AsyncIterator[StatefulSandbox]:
        """Lease a stateful sandbox; see `Backend.open`. Local sandboxes ignore tags."""
        async with self._borrow((environment, HASH_SEEDS[0]), limits, is_session=True) as (
            pool,
            slot,
            sandbox,
        ):
            stateful = self._stateful(pool, sandbox, limits)
            self._stateful_sandboxes[slot] = stateful
            pool.hold(slot)
            try:
                await stateful.open()
                yield stateful
            finally:
                pool.release(slot)
                del self._stateful_sandboxes[slot]
                await stateful.close()

    async def derive(self, environment: str, key: str, make: MakeLayer) -> DerivedEnvironment:
        """Add a layer to an image; see `LayeredEnvironments.derived`."""
        return await derived_from(self._plan.environments, environment, key, make)

    def _stateful(
        self, pool: SlotPool, sandbox: LocalSandbox, limits: Limits
    ) -> LocalStatefulSandbox:
        make_read_only = pool.spawner.make_read_only
        return LocalStatefulSandbox(sandbox, limits, self._monitor, make_read_only)

    @contextlib.asynccontextmanager
    async def _borrow(
        self, name: PoolName, limits: Limits, *, is_session: bool = False
    ) -> AsyncIterator[tuple[SlotPool, Slot, LocalSandbox]]:
        pool = self._pools.get(name) or await self._started(name)
        async with pool.borrow(limits, is_session=is_session) as (slot, sandbox):
            sandbox.owner = PAYER.get()
            yield pool, slot, sandbox
        if pool.watched is not None and not await asyncio.to_thread(pool.watched.are_whole):
            self._drop(name, pool)
            raise SandboxLost(f"environment {name[0]}: files are gone; build it again")

    async def close(self) -> None:
        """Close every slot and wait until its processes are gone."""
        self._closing = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeper
        await self._monitor.close()
        await self._starts.end()
        await asyncio.gather(*(pool.close() for pool in self._pools.values()), *self._ending)
        if self._shortages is not None:
            self._shortages.close()
        if self._search is not None:
            self._search.cancel()
        self._poller.close()
        if self._groups is not None:
            self._groups.close()
            self._groups = None

    def when_asleep(self, callback: Asleep) -> None:
        """Register a callback; see `Backend.when_asleep`. The monitor loop calls `tell`."""
        self._on_asleep = callback

    def census(self) -> dict[str, int]:
        """Return the number of slots by state."""
        return dict(sum((pool.census() for pool in self._pools.values()), Counter()))

    def environments(self) -> tuple[str, ...]:
        """Return the environments with a pool at the moment."""
        return tuple(dict.fromkeys(environment for environment, _ in self._pools))

    def forkserver_of(self, sandbox: Sandbox) -> int:
        """Return the PID of a leased sandbox's fork server, for fault injection.

        Raises LookupError for other sandboxes.
        """
        found = (slot.pid for slot in self._all_slots() if slot.sandbox is sandbox)
        pid = next(found, None)
        if pid is None:
            raise LookupError("no fork server has this sandbox")
        return pid

    def busy_slots(self) -> list[int]:
        """Return the PIDs of all fork servers with a leased sandbox, for fault injection."""
        return [slot.pid for slot in self._all_slots() if slot.state == "leased"]

    def waiting_slots(self) -> list[int]:
        """Return the PIDs of all fork servers with a waiting sandbox, for fault injection."""
        return [slot.pid for slot in self._all_slots() if slot.state == "ready"]

    def zygote(self, environment: str = DEFAULT) -> int:
        """Return the PID of an environment's zygote, for fault injection."""
        return self._pools[environment, HASH_SEEDS[0]].zygote

    # ------------------------------------------------------------ pools

    def _all_slots(self) -> list[Slot]:
        return [slot for pool in self._pools.values() for slot in pool.slots]

    def _pool_of(self, launch: Launch, warm_slots: int) -> SlotPool:
        return SlotPool(launch, warm_slots, self._new_place, self._parts)

    def _new_place(self) -> Place | None:
        """Return the place of another slot; at the maximum, another pool gives up a slot."""
        if len(self._all_slots()) >= self._plan.max_slots and not any(
            pool.give_up_one() for pool in self._idlest()
        ):
            return None
        # Slots that are ending still have their numbers, and so their users.
        number = next((n for n in range(self._plan.launch.users) if n not in self._numbers), None)
        if number is None:
            return None
        self._made += 1
        group = Group() if self._groups is None else self._groups.make(f"slot-{self._made}")
        self._numbers.add(number)
        return Place(number, group, partial(self._numbers.discard, number))

    def _idlest(self) -> list[SlotPool]:
        return sorted(self._pools.values(), key=lambda pool: pool.last_used_at)

    async def _started(self, name: PoolName) -> SlotPool:
        """Start a pool, once for all waiting callers. Raises SandboxUnavailable."""
        if self._closing:
            raise SandboxUnavailable("the service is stopping")
        try:
            return await self._starts.started((name, self._changes[name[0]]))
        except StartError as error:
            raise SandboxUnavailable(f"environment {name[0]}: {error}") from None

    async def _start(self, numbered: tuple[PoolName, int]) -> SlotPool:
        """Start the pool of an environment with a hash seed. Raises StartError.

        `numbered`: with the number of changes of the environment so far.
        """
        name, changes = numbered
        environment, hash_seed = name
        warm_slots = self._warm_slots() if environment == DEFAULT else _WARM_SLOTS
        launch = await asyncio.to_thread(self._launch_in, environment)
        launch = with_hash_seed(launch, hash_seed)
        if launch.image_python:
            launch = await self._with_python_of(environment, launch)
        pool = self._pool_of(launch, min(warm_slots, self._plan.warm_slots))
        pool.watched = self._watched.get(environment)
        await pool.open(1)
        if changes == self._changes[environment]:
            self._pools[name] = pool
        else:
            self._add_former(name, pool)
        self._drop_surplus()
        return pool

    def _warm_slots(self) -> int:
        """Return the number of slots of each pool of the default environment.

        The submissions of a task may take all slots at once, so each pool has as many, as far as room
        allows.
        """
        room = 3 * self._plan.max_slots // 4 // len(HASH_SEEDS)
        return min(self._plan.warm_slots, max(_WARM_SLOTS, room))

    def _launch_in(self, environment: str) -> Launch:
        """Return the launch of an environment with its files in place; blocks. Raises StartError."""
        if environment == DEFAULT:
            return self._plan.launch
        if environment in self._watched:
            self._watched[environment] = self._watched[environment].renewed()
        else:
            built = self._plan.environments.get(environment)
            folders = None if built is None else watched_folders(environment, built)
            if folders is not None:
                self._watched[environment] = folders
        return self._plan.launch_in(environment)

    async def _with_python_of(self, environment: str, launch: Launch) -> Launch:
        """Return the launch with code compiled by the image's interpreter, once for an image.

        Raises StartError.
        """
        built = self._plan.environments[environment]
        image = "" if built.image is None else built.image.digest
        found = self._compiled.pop(image, None)
        if found is None:
            made = await self._with_python(self._pool_of(launch, 1), launch)
            found = compiled_part(made)
        self._compiled[image] = found  # the last used is the last
        while len(self._compiled) > _MOST_COMPILED:
            del self._compiled[next(iter(self._compiled))]
        return with_compiled_part(launch, found)

    async def _with_python(self, pool: SlotPool, launch: Launch) -> Launch:
        """Have the image's interpreter compile the code, in a sandbox of a pool that then ends.

        Raises StartError.
        """
        await pool.open()
        try:
            async with pool.borrow(COMPILING, is_session=True) as (_, sandbox):
                stateful = self._stateful(pool, sandbox, COMPILING)
                try:
                    await stateful.open()
                    return await with_python(launch, stateful)
                finally:
                    await stateful.close()
        except (SandboxUnavailable, SandboxLost) as error:
            raise StartError(str(error)) from None
        finally:
            await pool.close()

    def _check_watches(self) -> None:
        """End sandboxes with more memory for watches of epoll than their limit, unless a cgroup counts."""
        for sandbox, pid in self._leased():
            if (limit := sandbox.memory_limit) is not None:
                look = partial(watches_exceed, pid, limit.megabytes)
                then = partial(_tell_memory, sandbox)
                self._monitor.reads.start(sandbox, "watches", look, then)

    def _leased(self) -> Iterator[tuple[LocalSandbox, int]]:
        """Yield the sandboxes in use, each with the PID of its first process."""
        for slot in self._all_slots():
            if slot.state == "leased" and slot.sandbox is not None:
                pid = slot.sandbox.host_pid()
                if pid is not None:
                    yield slot.sandbox, pid

    def _on_short(self, kinds: int) -> None:
        self._short |= kinds
        if self._search is None or self._search.done():
            self._search = asyncio.get_running_loop().create_task(self._end_holders())

    async def _end_holders(self) -> None:
        """Find the largest holders of the short resources, and end them, until the shortage is over."""
        while self._short:
            kinds = {own: self._short & kinds_of(own) for own in (True, False)}
            self._short = 0
            stateful = {slot.sandbox for slot in self._stateful_sandboxes}
            candidates = [
                Candidate(sandbox, pid, kinds[sandbox.has_own_user], sandbox not in stateful)
                for sandbox, pid in self._leased()
            ]
            begun = time.monotonic()
            look = partial(holders, candidates, self._user_limits)
            for holder in await self._monitor.reads.run(look):
                if holder.is_excess:
                    holder.sandbox.on_memory_exceeded()
                else:
                    holder.sandbox.on_lost(SHORT_OF_OBJECTS)
            await asyncio.sleep(time.monotonic() - begun)

    def environments_changed(self, names: Collection[str], environments: Environments) -> None:
        """End the pools of these environments at the end of their last use; see `TakesEnvironments`."""
        self._changes.update(names)
        for name, pool in list(self._pools.items()):
            if name[0] in names:
                self._watched.pop(name[0], None)
                if pool.is_idle(0):
                    self._drop(name, pool)
                    continue
                del self._pools[name]
                self._add_former(name, pool)

    def _add_former(self, name: PoolName, pool: SlotPool) -> None:
        """Add a pool of an environment that has changed, by a name that no environment has."""
        self._former += 1
        self._pools[f"{name[0]} {self._former}", name[1]] = pool

    def end_idle(self) -> None:
        """End the unused pools, beside the default; see `EndsIdle`."""
        for name, pool in list(self._pools.items()):
            if pool is not self._default and pool.is_idle(0):
                self._drop(name, pool)

    def _drop_idle(self) -> None:
        """End the long unused pools, beside the default."""
        for name, pool in list(self._pools.items()):
            if pool is not self._default and pool.is_idle(self._plan.idle_seconds):
                self._drop(name, pool)

    def _drop_surplus(self) -> None:
        """End the longest idle pools above the maximum: images may have many pools."""
        own = [pool for pool in self._idlest() if pool is not self._default]
        names = {id(pool): name for name, pool in self._pools.items()}
        for pool in own[: max(0, len(own) - _MOST_POOLS)]:
            if pool.is_idle(0):
                self._drop(names[id(pool)], pool)

    def _drop(self, name: PoolName, pool: SlotPool) -> None:
        """End a pool, unless already ended."""
        if self._pools.get(name) is pool:
            del self._pools[name]
            if name[0] not in self.environments() and name[0] not in set(self._plan.environments):
                self._watched.pop(name[0], None)
            task = asyncio.get_running_loop().create_task(pool.close())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _sweep(self) -> None:
        """Enforce the limits until `close`, also after a failure: limits have no other enforcement."""
        for sweep in itertools.count():
            await asyncio.sleep(_SWEEP_SECONDS)
            try:
                await self._sweep_once(is_whole_second=sweep % _SWEEPS_PER_SECOND == 0)
            except Exception:
                _log.exception("a sweep over the sandboxes failed")

    async def _sweep_once(self, *, is_whole_second: bool) -> None:
        await self._monitor.measure()
        pace = Pace()
        for stateful in list(self._stateful_sandboxes.values()):
            stateful.check_memory()
            if is_whole_second:
                stateful.check_background()
            await pace.rest()
        yielding, lent = self._monitor.rest()
        long_runners = self._monitor.share_cores()
        if long_runners and is_whole_second:
            self._has_room = available_memory_mb() > self._plan.memory_mb
        if self._has_room:
            yielding += long_runners.total()
        is_any = bool(yielding or long_runners)
        if (is_any or self._has_reported) and self._on_asleep is not None:
            self._on_asleep(yielding, lent, long_runners)
            self._has_reported = is_any
        for pool in self._pools.values():
            pool.shrink()
        if is_whole_second:
            self._check_watches()
            self._drop_idle()


def _tell_memory(sandbox: LocalSandbox, exceeded: bool) -> None:
    if exceeded:
        sandbox.on_memory_exceeded()
