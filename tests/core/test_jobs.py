"""Jobs and their store: cancelling, openings that fail, readers, and work that waits for its client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest
from waits import WAIT_SECONDS

from proctor_service.errors import Cancelled, JudgeFailed, SandboxLost
from proctor_service.http import responses
from proctor_service.http.body import name_request
from proctor_service.http.responses import RequestTask, Value, task_of, value_of
from proctor_service.http.task_store import TaskStore

NAMES = [name_request("t", str(number), b"body") for number in range(3)]


def as_value(item: Any, outcome: Any) -> Value[Any]:
    return Value(error=outcome) if isinstance(outcome, BaseException) else Value(outcome)


def job(
    items: list[Any], work: Callable[[Any], Coroutine[Any, Any, Any]], **options: Any
) -> RequestTask[Value[Any]]:
    return RequestTask(items, nullcontext(work), as_value, set(), **options)


async def forever(item: Any = None) -> None:
    await asyncio.get_running_loop().create_future()


def reasons(ended: RequestTask[Value[Any]]) -> list[str]:
    return [getattr(each.error, "reason", "") for each in ended.results()]


@pytest.mark.parametrize("turns", [0, 1, 2, 5])
@pytest.mark.parametrize("count", [1, 100])
async def test_a_cancelled_job_gives_every_item_a_result(turns: int, count: int) -> None:
    running: set[RequestTask[Value[Any]]] = set()
    ended = RequestTask(list(range(count)), nullcontext(forever), as_value, running)
    for _ in range(turns):
        await asyncio.sleep(0)
    assert running == {ended}
    ended.cancel("no longer wanted")
    ended.cancel("a second reason")
    assert await ended.wait(WAIT_SECONDS)
    assert reasons(ended) == ["cancelled"] * count
    assert str(ended.results()[0].error) == "no longer wanted"
    assert (running, ended.retryable, ended.final()) == (set(), True, {})


async def test_an_opening_that_fails_is_the_result_of_every_item() -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[Any]:
        raise JudgeFailed("no connection")
        yield

    ended: RequestTask[Value[Any]] = RequestTask([1, 2], broken(), as_value, set())
    assert await ended.wait(WAIT_SECONDS)
    assert reasons(ended) == ["judge_failed"] * 2


async def test_an_opening_is_cancelled_with_its_job() -> None:
    closed = []

    @asynccontextmanager
    async def slow() -> AsyncIterator[Any]:
        try:
            await forever()
            yield
        finally:
            closed.append(True)

    ended: RequestTask[Value[Any]] = RequestTask([1], slow(), as_value, set())
    await asyncio.sleep(0)
    ended.cancel("gone")
    assert await ended.wait(WAIT_SECONDS)
    assert (reasons(ended), closed) == (["cancelled"], [True])


async def test_the_last_reader_ends_a_job_at_once_or_after_a_while() -> None:
    for orphan_seconds in (0.0, 0.01):
        left = job([1], forever, orphan_seconds=orphan_seconds)
        with left.reading():
            with left.reading():
                pass
            assert not await left.wait(0.03)
        assert await left.wait(WAIT_SECONDS)
        assert str(left.results()[0].error) == responses.CLIENT_GONE
    joined = job([1], forever, orphan_seconds=0.01)
    with joined.reading():
        pass
    with joined.reading():
        assert not await joined.wait(0.03)
    joined.cancel("the end of the test")


async def test_shared_results_win_and_errors_that_may_pass_are_not_shared() -> None:
    asked: list[set[int]] = []

    async def share(found: Any) -> Any:
        asked.append(set(found))
        if 0 in found:
            raise OSError("the store is away")
        return {index: Value("another replica's") for index in found}

    async def work(item: int) -> str:
        if item == 2:
            raise SandboxLost("x")
        while item == 1 and not asked:  # noqa: ASYNC110  the first result is shared alone
            await asyncio.sleep(0)
        return "own"

    ended = job([0, 1, 2], work, share=share)
    assert await ended.wait(WAIT_SECONDS)
    assert [each.value for each in ended.results()] == ["own", "another replica's", None]
    assert asked == [{0}, {1}]
    assert set(ended.final()) == {0, 1}


async def test_a_taken_result_leaves_what_is_needed_later() -> None:
    async def work(item: int) -> str:
        return str(item)

    ended = job([0, 1], work, once_taken=lambda each: Value())
    assert await ended.wait(WAIT_SECONDS)
    assert [each.value for each in ended.finished(0, 1)] == ["0"]
    assert [each.value for each in ended.results()] == [None, "1"]


async def test_work_that_waits_for_its_client_is_given_out_once_and_the_oldest_ends_first() -> None:
    store: TaskStore[Value[None]] = TaskStore(60, 2500)
    works = [task_of(forever, set(), size_bytes=1000) for _ in range(4)]
    store.put(NAMES[0], works[0], least_bytes=0)
    store.put(NAMES[0], works[1], least_bytes=0)
    assert (store.pop(NAMES[1]), store.pop(NAMES[0])) == (None, works[0])
    store.put(NAMES[1], works[2], least_bytes=0)
    store.put(NAMES[2], works[3], least_bytes=0)
    assert await works[1].wait(WAIT_SECONDS)
    with pytest.raises(Cancelled):
        value_of(works[1])
    assert (store.pop(NAMES[0]), len(store)) == (None, 2)
    for work in works:
        work.cancel("the end of the test")
