"""The budget's entries in a real Redis: clocks that jump, data that is lost, budgets that differ."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec

import pytest
from redis.asyncio import Redis

from fault_rig.programs import RedisServer, redis_server
from proctor_service.features.aviato.budget import Answer, BudgetEntry, BudgetLimits, StoreDown
from proctor_service.features.aviato.budget_store import KEY, SETTLE_SECONDS, RedisBudgetStore

GROUP = "some-group"
P = ParamSpec("P")


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


def asked(
    test: Callable[Concatenate[RedisBudgetStore, Redis, P], Coroutine[Any, Any, None]],
) -> Any:
    """Have the test ask a store that was empty and may grant at once."""

    async def ran(redis: RedisServer, *arguments: P.args, **fields: P.kwargs) -> None:
        client, store = Redis.from_url(redis.url), RedisBudgetStore(redis.url)
        try:
            await client.flushall()
            await client.hset(KEY, mapping={"since": "1", "swept": "1"})
            await test(store, client, *arguments, **fields)
        finally:
            await store.close()
            await client.aclose()

    functools.update_wrapper(ran, test)
    _, _, *others = inspect.signature(test).parameters.values()
    first = inspect.Parameter("redis", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    vars(ran)["__signature__"] = inspect.Signature([first, *others])
    return ran


async def write(
    store: RedisBudgetStore,
    run: str,
    sequence: int,
    held: tuple[int, int] = (0, 0),
    limits: BudgetLimits = BudgetLimits(20),  # noqa: B008
    price: int | None = 0,
    waiting: int = 0,
) -> Answer:
    return await store.write(BudgetEntry(run, sequence, *held, waiting, limits), price, GROUP)


@asked
async def test_a_new_store_grants_when_all_have_written_and_all_that_lives_is_entered(
    store: RedisBudgetStore, client: Redis
) -> None:
    await client.flushall()
    assert not (await write(store, "a", 1)).granted
    now, _ = await client.time()
    assert now - int(await client.hget(KEY, "since") or 0) < SETTLE_SECONDS
    await client.hset(KEY, "since", str(now - SETTLE_SECONDS))
    answer = await write(store, "a", 2)
    assert (answer.granted, answer.swept) == (False, False)  # what lives without an entry?
    await store.enter([])
    answer = await write(store, "a", 3)
    assert (answer.granted, answer.swept) == (True, True)
    assert answer.entries == {"a": BudgetEntry("a", 3, 1, 0, 0, BudgetLimits(20))}


@asked
async def test_a_clock_that_goes_back_does_not_stop_the_budget(
    store: RedisBudgetStore, client: Redis
) -> None:
    now, _ = await client.time()
    await client.hset(KEY, "since", str(now + 86_400))
    assert not (await write(store, "a", 1)).granted
    assert int(await client.hget(KEY, "since") or 0) < now + 3600


@asked
async def test_the_name_of_the_group_survives_the_loss_of_all_data(
    store: RedisBudgetStore, client: Redis
) -> None:
    assert (await write(store, "a", 1)).group == GROUP
    another = await store.write(BudgetEntry("b", 1, 0, 0, 0), None, "")
    assert another.group == GROUP
    await client.flushall()
    assert (await write(store, "a", 2)).group == GROUP
    await client.flushall()
    named = (await store.write(BudgetEntry("b", 2, 0, 0, 0), None, "")).group
    assert named
    assert (await write(store, "a", 3)).group == named


@pytest.mark.parametrize(
    ("other", "price", "granted"),
    [
        (BudgetLimits(20, 0), 5, True),
        (BudgetLimits(0, 0), 5, True),
        (BudgetLimits(10, 0), 5, False),  # 10 live
        (BudgetLimits(11, 0), 5, True),
        (BudgetLimits(0, 52), 5, False),  # 50 per hour
        (BudgetLimits(0, 55), 5, True),
        (BudgetLimits(0, 50), 0, True),  # a price of 0
    ],
)
@asked
async def test_the_smallest_budget_holds_for_all(
    store: RedisBudgetStore, client: Redis, other: BudgetLimits, price: int, granted: bool
) -> None:
    await write(store, "b", 1, (9, 45), other, price=None)
    answer = await write(store, "a", 1, (1, 5), BudgetLimits(20), price=price)
    assert answer.granted is granted
    assert answer.entries["b"].limits == other


@asked
async def test_two_replicas_never_take_the_last_one_together(
    store: RedisBudgetStore, client: Redis
) -> None:
    await write(store, "c", 1, (18, 0), price=None)
    both = await asyncio.gather(*(write(store, run, 1, waiting=1) for run in "ab"))
    assert sum(answer.granted for answer in both) == 2
    both = await asyncio.gather(
        *(write(store, run, 2, (1, 0), waiting=1) for run in "ab"),
    )
    assert not any(answer.granted for answer in both)


@asked
async def test_a_write_that_arrives_late_changes_nothing(
    store: RedisBudgetStore, client: Redis
) -> None:
    await write(store, "a", 5, (3, 0), price=None)
    late = await write(store, "a", 4, (19, 0))
    assert not late.granted
    assert late.entries["a"].sandboxes == 3
    await store.forget("a", 4)
    assert "a" in (await write(store, "b", 1)).entries
    await store.forget("a", 5)
    assert "a" not in (await write(store, "b", 2)).entries


@asked
async def test_a_run_is_entered_unless_it_has_written(
    store: RedisBudgetStore, client: Redis
) -> None:
    await store.enter([BudgetEntry(run, 0, 8, 40, 0) for run in ("lost", "lives")])
    await store.enter([BudgetEntry("lost", 0, 1, 1, 0)])
    await write(store, "lives", 1, (3, 0), price=None)
    await store.enter([BudgetEntry("lives", 0, 8, 40, 0)])
    answer = await write(store, "a", 1, (8, 0))
    assert answer.granted
    assert answer.entries["lost"] == BudgetEntry("lost", 0, 8, 40, 0)
    assert answer.entries["lives"].sandboxes == 3
    assert not (await write(store, "a", 2, (9, 0))).granted  # 8, 3 and 9
    await store.forget("lost", 0)
    assert (await write(store, "a", 3, (9, 0))).granted


def test_a_store_that_is_away_says_so(redis: RedisServer) -> None:
    async def asked() -> None:
        store = RedisBudgetStore(redis.url)
        with pytest.raises(StoreDown):
            await write(store, "a", 1)
        await store.close()

    redis.stop()
    try:
        asyncio.run(asked())
    finally:
        redis.start()
