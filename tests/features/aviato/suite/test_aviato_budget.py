"""The budget of one process, and its share of a store that may be away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from proctor_service.errors import BudgetExceeded, SandboxUnavailable, StartError
from proctor_service.features.aviato.budget import (
    Answer,
    Budget,
    BudgetEntry,
    BudgetLimits,
    StoreDown,
)
from proctor_service.features.aviato.plan import make_plan
from proctor_service.features.aviato.quota import Quota
from proctor_service.settings import Settings


class Book:
    """A store in memory: grants all, and may be away."""

    def __init__(self) -> None:
        self.entries: dict[str, BudgetEntry] = {}
        self.away = False
        self.time = 100.0

    async def write(self, entry: BudgetEntry, price: int | None, group: str) -> Answer:
        if self.away:
            raise StoreDown("away")
        total = sum(each.sandboxes for each in self.entries.values() if each.run != entry.run)
        every = [each.limits.sandboxes for each in (*self.entries.values(), entry)]
        least = min(most for most in every if most)
        grown = price is not None and total + entry.sandboxes < least
        if grown:
            sandboxes, rate = entry.sandboxes + 1, entry.rate + (price or 0)
            entry = replace(entry, sandboxes=sandboxes, rate=rate, waiting=0)
        self.entries[entry.run] = entry
        return Answer(grown, dict(self.entries), "group", True)

    async def enter(self, entries: Sequence[BudgetEntry]) -> None:
        for each in entries:
            self.entries.setdefault(each.run, each)

    async def forget(self, run: str, sequence: int) -> None:
        if self.entries[run].sequence == sequence:
            del self.entries[run]

    async def close(self) -> None: ...


def budget_of(book: Book, run: str, sandboxes: int = 3) -> Budget:
    return Budget(BudgetLimits(sandboxes), run, 20, book, lambda: book.time)


class Left:
    """Sandboxes of these runs live, until they are stopped."""

    def __init__(self, *runs: str) -> None:
        self.runs = list(runs)
        self.ended: list[str] = []

    async def runs_of(self, group: str) -> dict[str, tuple[int, int]]:
        assert group == "group"
        return {run: (2, 8) for run in self.runs if run not in self.ended}

    async def end_run(self, run: str) -> None:
        self.ended.append(run)


async def ended_in(book: Book, left: Left, gap: float, beat: Callable[[int], None]) -> list[str]:
    """The runs that one ends in 300 turns, each of so many seconds and with a beat of others."""
    budget, sleep, turns = budget_of(book, "a"), asyncio.sleep, 0

    async def one_turn(seconds: float) -> None:
        nonlocal turns
        turns += 1
        book.time += gap
        beat(turns)
        await sleep(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("proctor_service.features.aviato.budget.asyncio.sleep", one_turn)
        budget.open(left)
        for _ in range(300):
            await sleep(0)
        await budget.close(True)
    return left.ended


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
        book, left = Book(), Left("b")
        book.entries["b"] = BudgetEntry("b", 1, 2, 0, 0)

        def beat(turns: int) -> None:
            if writes:
                book.entries["b"] = BudgetEntry("b", turns, 2, 0, 0)

        ended = await ended_in(book, left, gap, beat)
        assert ("b" in book.entries) is not bool(ended)
        return ended

    assert asyncio.run(asked(1, writes=False)) == ["b"]
    assert asyncio.run(asked(1, writes=True)) == []
    assert asyncio.run(asked(15, writes=False)) == []  # it could not listen either


def test_sandboxes_of_a_run_that_is_not_in_the_store_are_stopped_by_one_replica() -> None:
    async def asked(gap: float, first: bool = True, claims: bool = False) -> list[str]:
        book, left = Book(), Left("a", "lost")
        entered: list[BudgetEntry] = []

        def beat(turns: int) -> None:
            entered.extend(each for each in book.entries.values() if each.run == "lost")
            for run in (*(["A"] if not first else []), *(["lost"] if claims else [])):
                book.entries[run] = BudgetEntry(run, turns, 1, 0, 0)

        beat(0)
        ended = await ended_in(book, left, gap, beat)
        assert all(each == BudgetEntry("lost", 0, 2, 8, 0) for each in entered) or claims
        assert bool(entered) is first
        assert "lost" not in book.entries or not ended
        return ended

    assert asyncio.run(asked(1)) == ["lost"]
    assert asyncio.run(asked(1, claims=True)) == []
    assert asyncio.run(asked(1, first=False)) == []  # A, which comes before a, enters it
    assert asyncio.run(asked(15)) == []  # it could not hear whether `lost` lives


def test_the_smallest_budget_of_all_replicas_holds() -> None:
    async def asked() -> None:
        book = Book()
        budget = budget_of(book, "a", 8)
        for _ in range(6):
            await budget.acquire(0)
        assert budget.free == 2
        book.entries["b"] = BudgetEntry("b", 1, 1, 0, 0, BudgetLimits(5))
        assert await is_refused(budget)
        assert budget.free == 0
        for _ in range(2):
            budget.release(0)
            assert await is_refused(budget)  # what is returned stays so, until 4 are left here
        budget.release(0)
        assert not await is_refused(budget)
        del book.entries["b"]
        await budget._write()
        assert budget.free == 4

    asyncio.run(asked())


@pytest.mark.parametrize(
    "budget",
    [
        {"aviato_budget_sandboxes": 1},
        {"aviato_budget_per_hour": 1, "aviato_prices_per_hour": {"*": 0.6}},
        {"aviato_budget_per_hour": 1, "aviato_prices_per_hour": {"default": 0.6}},
    ],
)
def test_a_budget_that_no_evaluation_fits_into_ends_the_start(budget: dict[str, Any]) -> None:
    settings = Settings(backend="aviato", aviato_api_key="x", **budget)
    with pytest.raises(StartError, match="may hold two"):
        make_plan(settings)


def test_a_budget_of_money_needs_a_price_which_may_be_0() -> None:
    own: dict[str, Any] = {"backend": "aviato", "aviato_api_key": "x"}
    with pytest.raises(StartError, match="price of the environment default"):
        make_plan(Settings(**own, aviato_budget_per_hour=1))
    prices: list[dict[str, Any]] = [
        {"aviato_prices_per_hour": {"*": 0}},
        {"aviato_prices_per_hour": {"default": 0}},
    ]
    for price in prices:
        plan = make_plan(Settings(**own, aviato_budget_per_hour=1, **price))
        assert plan.price == 0
        assert plan.budget is not None
        assert plan.budget.limits == BudgetLimits(0, 1_000_000)
    budgets: list[dict[str, Any]] = [{}, {"aviato_budget_sandboxes": 4}]
    for budget in budgets:
        settings = Settings(**own, **budget, aviato_prices_per_hour={"sciense": 1})
        with pytest.raises(StartError, match="no environment 'sciense', only: default"):
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
