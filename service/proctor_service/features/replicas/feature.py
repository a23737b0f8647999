"""The feature `replicas`: judge processes of this replica, and its peers."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from proctor_service.feature import Feature, needing

if TYPE_CHECKING:
    from fastapi import APIRouter

    from proctor_service.feature import Core, Sources
    from proctor_service.features.replicas.fingerprints import PeerFingerprints
    from proctor_service.features.replicas.fleet import PeerFleet
    from proctor_service.features.replicas.forwarding import Replicas
    from proctor_service.features.replicas.judge_processes.pool import JudgePool
    from proctor_service.features.replicas.redis_store import RedisStore
    from proctor_service.features.replicas.spreading import Spreader


class ReplicasFeature(Feature):
    """This replica: its peers, its judge processes, and the replicas' common store."""

    name = "replicas"

    def __init__(self) -> None:
        self.replicas: Replicas | None = None
        self.spreader: Spreader | None = None
        self.fingerprints: PeerFingerprints | None = None
        self._store: RedisStore | None = None
        self._task_store: RedisStore | None = None
        self._pool: JudgePool | None = None
        self._fleet: PeerFleet | None = None

    def backend(self, sources: Sources) -> Sources:
        """Return the sources with judge processes and peers, as the settings say. Raises StartError."""
        from proctor_service.features.replicas.fleet import PeerFleet
        from proctor_service.features.replicas.forwarding import Replicas
        from proctor_service.features.replicas.identity import Identity
        from proctor_service.features.replicas.peers import Peers, base_url
        from proctor_service.features.replicas.shared_answers import AnswerStore
        from proctor_service.features.replicas.shared_tasks import TASK_SECONDS, TasksOfReplicas

        settings, metrics = sources.settings, sources.metrics
        if sources.backend is None and sources.judge is None and settings.worker_count():
            sources = self._with_judge_processes(sources)
        own = settings.advertise_url
        own = own and base_url(own, "PROCTOR_ADVERTISE_URL")
        self._store = _store(sources)
        self._task_store = _store(sources, TASK_SECONDS)
        self.replicas = Replicas(Identity(own), Peers(settings.peers, own), metrics.forwarded)
        answers = None if self._store is None else AnswerStore(self._store)
        tasks = None if self._task_store is None else TasksOfReplicas(self._task_store)
        self._fleet = fleet = PeerFleet(self.replicas, answers, self._mismatched, tasks)
        return replace(sources, fleet=fleet)

    def _mismatched(self) -> Mapping[str, str]:
        return {} if self.fingerprints is None else self.fingerprints.mismatched()

    def _with_judge_processes(self, sources: Sources) -> Sources:
        from proctor_service.features.replicas.judge_processes.pool import JudgePool
        from proctor_service.sandbox.linux.delegation import enable_limits
        from proctor_service.sandbox.open_files import fitted
        from proctor_service.settings import worker_environment

        settings, metrics = sources.settings, sources.metrics
        each = settings.for_workers()
        if settings.backend == "local":
            each = [fitted(part) for part in each]
            enable_limits()
        totals = ("slots", "max_sandboxes", "max_stateful_sandboxes")
        settings = settings.model_copy(
            update={name: sum(getattr(part, name) for part in each) for name in totals}
        )
        pool = JudgePool(
            each,
            worker_environment(),
            metrics.worker_ended,
            _clear_cgroups,
            environments=sources.environments,
        )
        metrics.watch_workers(lambda: len(pool.working()))
        self._pool = pool
        return replace(sources, settings=settings, backend=pool.backend, judge=pool.judge)

    def routes(self, core: Core) -> Sequence[APIRouter]:
        """Connect the judge processes and the peers with the queue; there is no route."""
        from proctor_service.features.replicas.fingerprints import PeerFingerprints
        from proctor_service.features.replicas.image_owners import ImageOwners
        from proctor_service.features.replicas.reward_slices import RewardSlices
        from proctor_service.features.replicas.spreading import Spreader
        from proctor_service.sandbox.environments import ImagesByName

        if self._pool is not None:
            self._pool.send_ahead = core.queue.send_ahead
            self._pool.when_leased = core.observers.leased
        if self.replicas is not None:
            core.finishing.append(self.replicas.drain)
        settings, machine = core.settings, core.machine
        if settings.peers and self.replicas is not None:
            tokens = settings.tokens_by_tenant()
            token = next(iter(tokens.values()), None)
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            peers = PeerFingerprints(self.replicas, lambda: machine.fingerprint, headers)
            self.fingerprints = peers
            core.metrics.watch_fingerprints(peers.by_peer)
            slices = RewardSlices(tokens, lambda: machine.fingerprint.digest)
            environments = machine.environments
            if self._fleet is not None and isinstance(environments, ImagesByName):
                image_in, spread = environments.image_in, settings.image_spread
                self._fleet.owners = ImageOwners(self.replicas, slices, spread, image_in)
            if settings.spread:
                self.spreader = Spreader(
                    self.replicas, core.queue, slices, core.metrics, peers.is_own
                )
        return ()

    async def open(self) -> None:
        """Connect to the store, and begin to spread batches. Raises StartError."""
        if self._store is not None:
            await self._store.open()
        if self.fingerprints is not None:
            self.fingerprints.open()
        if self.spreader is not None:
            self.spreader.open()

    async def close(self) -> None:
        """End spreading, and close the connections."""
        async with contextlib.AsyncExitStack() as closing:  # it calls the last one first
            stores = (self._store, self._task_store)
            for part in (*stores, self.replicas, self.fingerprints, self.spreader):
                if part is not None:
                    closing.push_async_callback(part.close)


def _store(sources: Sources, keep_seconds: float | None = None) -> RedisStore | None:
    """Return the replicas' common store, or None without a Redis. Raises StartError.

    `keep_seconds`: of tasks; default: that of results, whose store the metrics show.
    """
    url = sources.settings.redis_url.get_secret_value()
    if not url:
        return None
    with needing(["redis"], "PROCTOR_REDIS_URL", "redis"):
        from proctor_service.features.replicas.redis_store import RedisStore
    from proctor_service.http.task_store import KEEP_SECONDS

    metrics = sources.metrics
    store = RedisStore(url, keep_seconds or KEEP_SECONDS, metrics.store_failed)
    if keep_seconds is None:
        metrics.watch_store(lambda: store.up)
    return store


async def _clear_cgroups(pid: int) -> None:
    """Remove the cgroups of a killed judge process."""
    import asyncio  # the command line does without

    from proctor_service.sandbox.local.cgroups import remove_left_by

    await asyncio.to_thread(remove_left_by, pid)
