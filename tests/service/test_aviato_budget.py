"""The budget of one process, and its share of a store that may be away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proctor_service.errors import BudgetExceeded, SandboxUnavailable, StartError
from proctor_service.sandbox.aviato.budget import Answer, Budget, BudgetLimits, Entry, StoreDown
from proctor_service.sandbox.aviato.plan import make_plan
from proctor_service.sandbox.aviato.quota import Quota
from proctor_service.settings import Settings


class Book:
    """A store in memory: grants all, and may be away."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.away = False
        self.time = 100.0

    async def write(self, entry: Entry, price: int | None, limits: BudgetLimits) -> Answer:
        if self.away:
            raise StoreDown("away")
        total = sum(each.sandboxes for each in self.entries.values() if each.run != entry.run)
        grown = price is not None and total + entry.sandboxes < limits.sandboxes
        if grown:
            entry = Entry(
                entry.run, entry.sequence, entry.sandboxes + 1, entry.rate + (price or 0), 0
            )
        self.entries[entry.run] = entry
        return Answer(grown, dict(self.entries))

    async def forget(self, run: str, sequence: int) -> None:
        if self.entries[run].sequence == sequence:
            del self.entries[run]

    async def close(self) -> None: ...


def budget_of(book: Book, run: str, sandboxes: int = 3) -> Budget:
    return Budget(BudgetLimits(sandboxes), run, 20, book, lambda: book.time)


async def is_refused(budget: Budget) -> bool:
    """Whether a caller waits in vain, with nothing left of the wait."""
    task = asyncio.create_task(budget.acquire(0))
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    return isinstance((await asyncio.gather(task, return_exceptions=True))[0], BaseException)


def test_money_and_sandboxes_are_limits_of_a_process_without_redis() -> None:
    async def asked() -> None:
        budget = Budget(BudgetLimits(3, 100), "a", 20)
        quota = Quota(8, 8, budget=budget)
        await quota.acquire(5, 60)
        with pytest.raises(BudgetExceeded):
            await quota.acquire(0.05, 60)
        assert await is_refused(Budget(BudgetLimits(0, 5), "a", 20)) is False
        waiting = asyncio.create_task(quota.acquire(5, 60))
        quota.release(60)
        await waiting
        await quota.acquire(5, 20)
        await quota.acquire(5, 20)
        assert quota.free == 0
        with pytest.raises(BudgetExceeded):
            await quota.acquire(0.05, 0)

    asyncio.run(asked())


def test_while_the_ledger_is_away_only_what_it_granted_is_used_and_not_for_long() -> None:
    async def asked() -> None:
        book = Book()
        budget = budget_of(book, "a", 5)
        for _ in range(2):
            await budget.acquire(0)
        book.away = True
        assert await is_refused(budget)
        budget.release(0)
        assert not await is_refused(budget)
        budget.release(0)
        book.time += 10
        assert await is_refused(budget)
        quota = Quota(8, 8, budget=budget)
        with pytest.raises(SandboxUnavailable, match="Redis") as caught:
            await quota.acquire(0.05)
        assert caught.value.reason == "sandbox_unavailable"
        book.away = False
        assert not await is_refused(budget)

    asyncio.run(asked())


def test_only_a_run_that_is_silent_while_one_listens_is_dead() -> None:
    async def asked(gap: float, writes: bool) -> list[str]:
        book, ended = Book(), list[str]()
        budget = budget_of(book, "a")
        book.entries["b"] = Entry("b", 1, 2, 0, 0)

        async def end(run: str) -> None:
            ended.append(run)

        sleep, turns = asyncio.sleep, 0

        async def one_turn(seconds: float) -> None:
            nonlocal turns
            turns += 1
            book.time += gap
            if writes:
                book.entries["b"] = Entry("b", turns, 2, 0, 0)
            await sleep(0)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("proctor_service.sandbox.aviato.budget.asyncio.sleep", one_turn)
            budget.open(end)
            for _ in range(300):
                await sleep(0)
            await budget.close(True)
        assert ("b" in book.entries) is not bool(ended)
        return ended

    assert asyncio.run(asked(1, writes=False)) == ["b"]
    assert asyncio.run(asked(1, writes=True)) == []
    assert asyncio.run(asked(15, writes=False)) == []  # it could not listen either


@pytest.mark.parametrize(
    "budget",
    [
        {"aviato_budget_sandboxes": 1},
        {"aviato_budget_per_hour": 1, "aviato_price_per_hour": 0.6},
    ],
)
def test_a_budget_that_no_evaluation_fits_into_ends_the_start(budget: dict[str, Any]) -> None:
    settings = Settings(backend="aviato", aviato_api_key="x", **budget)
    with pytest.raises(StartError, match="may hold two"):
        make_plan(settings)


def test_judge_processes_share_redis_or_have_parts() -> None:
    own: dict[str, Any] = {
        "backend": "aviato",
        "workers": "2",
        "slots": 8,
        "aviato_budget_sandboxes": 21,
    }
    [first, _] = Settings(**own).for_workers()
    assert first.aviato_budget_sandboxes == 10
    [first, _] = Settings(**own, redis_url="redis://h").for_workers()
    assert (first.aviato_budget_sandboxes, str(first.redis_url)) == (21, "**********")
    with pytest.raises(StartError, match="each of 2 judge processes needs 2"):
        Settings(**{**own, "aviato_budget_sandboxes": 3}).for_workers()
    assert len(Settings(**{**own, "aviato_budget_sandboxes": 4}).for_workers()) == 2
