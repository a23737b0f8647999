"""The Aviato backend: a sandbox at CoreWeave for each submission, from a warm pool.

The sandbox itself provides the isolation. In the sandbox, a supervisor runs a single program as a
separate user, limits the program, and reports its ending. The judge, the expected values and every
decision stay in the service. `Traits.degraded` lists the protections which no remote sandbox can
enforce, and every result shows them.

Each environment has an image and a pool. The default environment's pool is always there; another
starts with its first lease, and ends after a long idle time. All pools share the number of
sandboxes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from proctor_service.errors import (
    EnvironmentUnavailable,
    Failure,
    SandboxUnavailable,
    StartError,
)
from proctor_service.features.aviato.budget import Budget
from proctor_service.features.aviato.failures import failure_of, meaning_of
from proctor_service.features.aviato.gateway import Gateway
from proctor_service.features.aviato.image_sandboxes import ImageSandboxes, SandboxEvents
from proctor_service.features.aviato.options import credentials_of
from proctor_service.features.aviato.plan import AviatoPlan
from proctor_service.features.aviato.quota import Quota
from proctor_service.sandbox.environments import Starts
from proctor_service.sandbox.interface import (
    DEFAULT,
    HASH_SEEDS,
    Asleep,
    Limits,
    MachineCheck,
    Sandbox,
    Spent,
    StatefulSandbox,
    Traits,
)

_log = logging.getLogger(__name__)
_ROUNDS = 20
_ROUND_SECONDS = 0.25
_SWEEP_SECONDS = 0.5
_KEY = "the key (CWSANDBOX_API_KEY or AVIATO_API_KEY)"
_TRY_AGAIN_SECONDS = 5.0  # leases of an environment that did not start fail at once for this time


class AviatoBackend:
    """Implements `sandbox.interface.Backend`."""

    def __init__(self, plan: AviatoPlan) -> None:
        self._plan = plan
        self._gateway: Gateway | None = None
        self._budget = _budget(plan)
        self._quota = Quota(plan.most_sandboxes, plan.creations, self._give_up_one, self._budget)
        self._events = SandboxEvents()
        self._sources: dict[str, ImageSandboxes] = {}
        self._starts = Starts(self._start, self._note_failure)
        self._failed: dict[str, tuple[float, str]] = {}
        self._ending: dict[asyncio.Task[None], ImageSandboxes] = {}
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def traits(self) -> Traits:
        """Properties of the default image, the missing protections, and the gaps of other images.

        An environment has all protections of the default one. Before its first use an environment
        has all languages. An image without pytest lacks the folder `tools`, which a search path may
        name.
        """
        default = self._sources.get(DEFAULT)
        if default is None:
            return Traits("aviato", allows_network=True)
        if len(self._sources) == 1:
            return default.traits
        every = ("python", *self._plan.languages)
        missing_languages = {
            name: tuple(each for each in every if each not in source.traits.languages)
            for name, source in self._sources.items()
            if name != DEFAULT
        }
        return replace(default.traits, missing_languages=missing_languages)

    # ------------------------------------------------------------ lifecycle

    async def start(self) -> None:
        """Stop leftover sandboxes, inspect the image, and fill the pool. Raises StartError."""
        credentials = await asyncio.to_thread(credentials_of, self._plan)
        self._gateway = Gateway(self._plan, credentials, self._group_tags)
        if self._budget is not None:
            self._budget.open(self)
        try:
            # Other judge processes of this start may have theirs already. One that was replaced by
            # this process has left its own.
            await self._end_all(self._plan.instance_tag, but=self._plan.start_tag)
            await self._end_all(*self._plan.own_tags)
            default = ImageSandboxes(self._plan, self._gateway, self._quota, self._events)
            await default.probe()
            self._sources[DEFAULT] = default
            await default.fill()
            self._sweeper = asyncio.create_task(self._sweep())
        except Exception as error:
            await self.close()
            if isinstance(error, StartError):
                raise
            raise StartError(self._why_not(error)) from None

    async def close(self) -> None:
        """Stop every sandbox of this run, including sandboxes unknown to the pools."""
        gateway, self._gateway = self._gateway, None
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self._starts.cancel()
        await asyncio.gather(*(each.close() for each in self._sources.values()), *self._ending)
        stopped = False
        if gateway is not None:
            try:
                await self._end_all(self._plan.run_tag, gateway=gateway)
                stopped = True
            except Exception as error:
                why = meaning_of(error).reason
                _log.warning("sandboxes may be left until their lifetime ends", extra={"why": why})
            await gateway.close()
        if self._budget is not None:
            await self._budget.close(stopped)

    def census(self) -> dict[str, int]:
        """Return the number of sandboxes by state; `ready` is the level of all pools."""
        census = Counter[str]()
        for source in (*self._sources.values(), *self._ending.values()):
            census.update(source.census())
        return dict(census)

    def environments(self) -> tuple[str, ...]:
        """Return the environments with a pool at the moment."""
        return tuple(self._sources)

    def checks(self) -> tuple[MachineCheck, ...]:
        """Return the checks of the remote sandboxes; known after `open`."""
        return self._sources[DEFAULT].checks()

    def when_asleep(self, callback: Asleep) -> None:
        """Do nothing: remote sandboxes use no core of this machine."""

    def when_created(self, callback: Callable[[float], None]) -> None:
        """Register `callback(seconds)`, called for each sandbox created and prepared."""
        self._events.created = callback

    def when_failed(self, callback: Callable[[str], None]) -> None:
        """Register `callback(reason)`, called for each lost or unavailable sandbox or command."""
        self._events.failed = callback

    def when_spent(self, callback: Spent) -> None:
        """Register `callback(payer, seconds, dollars)`: called as sandboxes end."""
        self._events.spent = callback

    # ------------------------------------------------------------ leases

    @contextlib.asynccontextmanager
    async def lease(
        self, limits: Limits, environment: str = DEFAULT, hash_seed: int = HASH_SEEDS[0]
    ) -> AsyncIterator[Sandbox]:
        """Lease a fresh sandbox; see `Backend.lease`."""
        source = self._sources.get(environment) or await self._started(environment)
        async with source.lease(limits, hash_seed) as sandbox:
            yield sandbox

    @contextlib.asynccontextmanager
    async def open(
        self, limits: Limits, environment: str = DEFAULT, tags: Sequence[str] = ()
    ) -> AsyncIterator[StatefulSandbox]:
        """Lease a stateful sandbox; see `Backend.open`."""
        source = self._sources.get(environment) or await self._started(environment)
        async with source.open(limits, tags) as sandbox:
            yield sandbox

    # ------------------------------------------------------------ environments

    async def _started(self, environment: str) -> ImageSandboxes:
        """Start an environment, once for all callers. Raises SandboxUnavailable."""
        if self._gateway is None or environment == DEFAULT:
            raise SandboxUnavailable("the service is stopping")
        failed_at, why = self._failed.get(environment, (0.0, ""))
        if why and time.monotonic() - failed_at < _TRY_AGAIN_SECONDS:
            raise EnvironmentUnavailable(why)
        try:
            return await self._starts.started(environment)
        except StartError as error:
            raise EnvironmentUnavailable(str(error)) from None

    def _note_failure(self, environment: str, error: BaseException) -> None:
        self._failed[environment] = time.monotonic(), str(error)

    async def _start(self, environment: str) -> ImageSandboxes:
        """Inspect the image of an environment, and start its pool. Raises StartError."""
        gateway = self._gateway
        assert gateway is not None
        plan, default = self._plan.environments[environment], self._sources[DEFAULT]
        source = ImageSandboxes(plan, gateway, self._quota, self._events)
        try:
            await source.probe()
            lacking = set(source.traits.degraded) - set(default.traits.degraded)
            if lacking or source.image.root != default.image.root:
                raise StartError(
                    f"{plan.image} has not the protections of {self._plan.image}: "
                    + (", ".join(sorted(lacking)) or "the user of commands is another")
                )
        except Exception as error:
            why = (
                str(error) if isinstance(error, StartError) else failure_of(error, "start").message
            )
            slow = why.startswith("timeout:")
            self._events.failed("timeout" if slow else meaning_of(error.__cause__ or error).reason)
            raise StartError(f"environment {environment}, image {plan.image}: {why}") from None
        source.start_filling()
        self._sources[environment] = source
        return source

    def _give_up_one(self) -> None:
        """Have the pool with the longest idle time stop a ready sandbox."""
        idlest = sorted(self._sources.values(), key=lambda source: source.last_used_at)
        any(source.give_up_one() for source in idlest)

    async def _sweep(self) -> None:
        """End the pools, beside the default, after a long time without use.

        Where callers wait for a place, ready sandboxes of the meantime are stopped for them.
        """
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            wanted = max(-self._quota.free, self._quota.owed)
            for _ in range(wanted - self.census().get("stopping", 0)):
                self._give_up_one()
            for environment, source in list(self._sources.items()):
                if environment == DEFAULT or not source.is_idle(self._plan.idle_seconds):
                    continue
                del self._sources[environment]
                task = asyncio.get_running_loop().create_task(source.close())
                self._ending[task] = source
                task.add_done_callback(self._ending.pop)

    # ------------------------------------------------------------ leftover sandboxes

    async def _end_all(self, *tags: str, but: str = "", gateway: Gateway | None = None) -> None:
        """Stop all sandboxes with these tags and without the tags `but`, until all are gone.

        Raises the SDK's exceptions.
        """
        gateway = gateway or self._gateway
        assert gateway is not None
        for _ in range(_ROUNDS):
            count = await gateway.end_tagged(*tags, but=but)
            if not count:
                return
            _log.warning("stopped sandboxes that were left", extra={"tags": tags, "count": count})
            await asyncio.sleep(_ROUND_SECONDS)

    def _group_tags(self) -> list[str]:
        group = "" if self._budget is None else self._budget.group
        return [AviatoPlan.group_tag_of(group)] if group else []

    async def runs_of(self, group: str) -> dict[str, tuple[int, int]]:
        """See `budget.Leftovers`. Raises the SDK's exceptions, and RuntimeError."""
        found = await self._open_gateway().tags_of(AviatoPlan.group_tag_of(group))
        counts = Counter(run for run in map(AviatoPlan.run_of, found) if run is not None)
        dearest = max(p.price for p in (self._plan, *self._plan.environments.values()))
        return {run: (count, count * dearest) for run, count in counts.items()}

    async def end_run(self, run: str) -> None:
        """Stop all sandboxes of another run. Raises the SDK's exceptions, and RuntimeError."""
        gateway = self._open_gateway()
        tag = self._plan.run_tag_of(run)
        await self._end_all(tag, gateway=gateway)
        if await gateway.end_tagged(tag):
            raise RuntimeError("more sandboxes come up")

    def _open_gateway(self) -> Gateway:
        if self._gateway is None:
            raise RuntimeError("the service is stopping")
        return self._gateway

    def _why_not(self, error: Exception) -> str:
        where = f"Aviato at {self._plan.base_url}"
        why = failure_of(error, "start").message
        source = error.__cause__ if isinstance(error, Failure) else error
        if meaning_of(source or error).reason == "refused_credentials":
            credentials_name = "the credentials of W&B" if self._plan.wandb else _KEY
            return f"{where} refuses {credentials_name}: {why}"
        return f"no sandbox can be had of {where}: {why}"


def _budget(plan: AviatoPlan) -> Budget | None:
    if plan.budget is None:
        return None
    url, store = plan.budget.redis_url.get_secret_value(), None
    if url:
        from proctor_service.features.aviato.budget_store import (
            RedisBudgetStore,  # an optional extra
        )

        store = RedisBudgetStore(url)
    return Budget(plan.budget.limits, plan.run, plan.budget.lease_seconds, store)
