"""Pairs of sandboxes never block each other, however few sandboxes there are."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from event_loop import until

from proctor_service.errors import SandboxUnavailable
from proctor_service.features.verifiers.pairs import Pairs, Wanted
from proctor_service.sandbox.interface import DEFAULT, Limits

LIMITS = Limits(cpu_seconds=1, wall_seconds=1, memory_mb=64, output_kb=64, processes=8, disk_mb=1)


class FewSandboxes:
    """Leases so many sandboxes at once; each lease after `fails_after` leases fails."""

    def __init__(self, count: int, fails_after: int = 1 << 30) -> None:
        self._free = asyncio.Semaphore(count)
        self._fails_after = fails_after
        self.leased = self.held = 0

    @contextlib.asynccontextmanager
    async def lease(
        self, limits: Limits, environment: str = DEFAULT, hash_seed: int = 1
    ) -> AsyncIterator[Any]:
        async with self._free:
            self.leased += 1
            if self.leased > self._fails_after:
                raise SandboxUnavailable("there is none")
            self.held += 1
            try:
                yield object()
            finally:
                self.held -= 1


async def _use(pairs: Pairs, backend: Any) -> int:
    async with pairs.pair(backend, Wanted(LIMITS), Wanted(LIMITS)) as (first, second):
        assert first is not second
        await asyncio.sleep(0)
        return int(backend.held)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_more_pairs_than_sandboxes_all_get_theirs(count: int) -> None:
    async def asked() -> None:
        backend, pairs = FewSandboxes(count), Pairs(patience_seconds=0.001)
        held = await asyncio.gather(*(_use(pairs, backend) for _ in range(20)))
        assert max(held) <= count
        assert backend.held == 0

    asyncio.run(asked())


def test_a_pair_that_is_cancelled_or_fails_holds_nothing() -> None:
    async def asked() -> None:
        backend, pairs = FewSandboxes(1), Pairs()
        waiting = asyncio.create_task(_use(pairs, backend))
        await until(lambda: backend.held == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert backend.held == 0

        backend = FewSandboxes(2, fails_after=1)
        with pytest.raises(SandboxUnavailable):
            await _use(pairs, backend)
        assert backend.held == 0
        assert await _use(pairs, FewSandboxes(2)) == 2

    asyncio.run(asked())
