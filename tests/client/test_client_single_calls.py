"""Single calls at once: they wait in turn, travel together, and do each other no harm."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, cast

import pytest
from client_blocking import Kind
from constants import constants
from harness import Gate, Service, running_service
from waits import WAIT_SECONDS

from proctor_client import (
    AsyncClient,
    Client,
    ClientClosedError,
    InvalidRequestError,
    _connections,
    _merging,
    wire,
)
from proctor_client._calls import RewardOptions, reward_order
from proctor_client._fair_semaphore import FairSemaphore
from proctor_client._merging import MergedRequest, RewardCall, RewardOrder, RewardQueue
from proctor_client.errors import BusyError
from proctor_service.settings import Settings

GRADER = {"kind": "exec"}
NAMES = ["a", "b", "c", "d", "e"]


# ---------------------------------------------------------------- the queue by itself


def order(*completions: str, **options: Any) -> RewardOrder:
    merged = cast(RewardOptions, {"grader": GRADER, **options})
    return reward_order(completions or ["x = 1"], merged)


def joined(queue: RewardQueue, *orders: RewardOrder) -> list[RewardCall]:
    return [queue.join(None, each, threading.Event()) for each in orders]


def sent(queue: RewardQueue, call: RewardCall, now: float) -> list[RewardCall]:
    """The calls in the request that is due."""
    found = queue.due(call, now)
    assert isinstance(found, MergedRequest)
    return list(found.calls)


def test_the_first_call_goes_at_once_and_the_next_ones_together_in_their_order() -> None:
    queue = RewardQueue()
    first, *others = joined(queue, *(order(each) for each in NAMES))
    queue.leave(others.pop())
    [late] = joined(queue, order("late"))
    assert sent(queue, first, 0.0) == [first, *others, late]
    following = joined(queue, *(order(each) for each in NAMES))
    assert queue.due(following[0], 0.0) == _merging.DISTANCE_SECONDS
    assert queue.due(following[1], 1.0) is None
    assert sent(queue, following[0], 1.0) == following


def test_the_first_one_that_is_cancelled_wakes_the_next() -> None:
    queue = RewardQueue()
    open_call = joined(queue, order())[0]
    assert sent(queue, open_call, 0.0) == [open_call]
    first, second = joined(queue, order(), order())
    queue.leave(first)
    assert second.event.is_set()  # type: ignore[attr-defined]
    queue.leave(open_call)  # which is answered
    assert sent(queue, second, 0.0) == [second]


@pytest.mark.parametrize(
    ("options", "together"),
    [
        ({}, True),
        ({"grader": {"kind": "stdio", "cases": [{"stdin": "", "stdout": ""}]}}, True),
        ({"limits": {"cpu_seconds": 1}}, True),
        ({"scoring": "fraction"}, True),
        ({"environment": "default"}, True),
        ({"prelude": "import math", "prompt_code": "def f():\n", "suffix_code": "\n"}, True),
        ({"compiler": {"standard": "c11"}, "prompt": "p"}, True),
        ({"extract": "none"}, False),
        ({"tags": ["a"]}, False),
        ({"job": "another"}, False),
        ({"step": 1}, False),
        ({"priority": "evaluation"}, False),
        ({"deadline_seconds": 5}, False),
        ({"cache": False}, False),
    ],
)
def test_calls_with_other_options_go_by_themselves(options: dict[str, Any], together: bool) -> None:
    queue = RewardQueue()
    mine, other = joined(queue, order(), order(**options))
    assert sent(queue, mine, 0.0) == ([mine, other] if together else [mine])


def test_the_options_of_a_call_hold_for_its_own_submissions() -> None:
    own = {"completion": "y = 2", "scoring": "all", "limits": {"memory_mb": 9}}
    first = order("x = 1", "z = 3", scoring="fraction", limits={"cpu_seconds": 1}, step=4)
    second = reward_order([own], {"environment": "plain", "step": 4})
    request = wire.RewardRequest.model_validate_json(_merging.merged([first, second]).content)
    assert (request.grader, request.limits, request.environment, request.step) == (
        None,
        None,
        None,
        4,
    )
    assert [
        (each.completion, each.grader is None, each.scoring, each.limits, each.environment)
        for each in request.submissions
    ] == [
        ("x = 1", False, "fraction", wire.Limits(cpu_seconds=1), None),
        ("z = 3", False, "fraction", wire.Limits(cpu_seconds=1), None),
        ("y = 2", True, "all", wire.Limits(memory_mb=9), "plain"),
    ]


def test_what_stands_around_code_is_sent_only_if_it_is_set() -> None:
    around = {"prelude": "import math", "prompt": [{"role": "user", "content": "p", "id": 3}]}
    own = {"completion": "y = 2", "prelude": "", "extract": "none"}
    orders = [order(), order(**around), reward_order([own], cast(RewardOptions, around))]
    sent = json.loads(_merging.merged(orders).content)
    always = {"scoring": "all", "negative_control": "signal"}
    assert sent["submissions"] == [
        {"completion": "x = 1", "grader": GRADER, **always},
        {"completion": "x = 1", "grader": GRADER, **always, **around},
        {**own, **always, "prompt": around["prompt"]},
    ]
    assert "prelude" not in json.loads(order().content)


def test_a_request_is_bounded_in_number_and_in_bytes() -> None:
    queue = RewardQueue()
    many = joined(queue, *[order()] * (_merging.MOST_SUBMISSIONS + 1))
    assert sent(queue, many[0], 0.0) == many[:-1]
    queue = RewardQueue()
    large = joined(queue, *[order("x" * (_merging.MOST_BYTES // 2))] * 3)
    assert sent(queue, large[0], 0.0) == large[:1]


@pytest.mark.parametrize(
    ("large", "is_small"),
    [
        (order(*"x" * _merging.LARGEST_CALL), True),
        (order(*"x" * (_merging.LARGEST_CALL + 1)), False),
        (order(limits={"output_kb": 64}), True),
        (order(limits={"output_kb": 65}), False),
    ],
)
def test_batches_and_calls_with_much_output_are_not_put_together(
    large: RewardOrder, is_small: bool
) -> None:
    assert large.is_small == is_small


def test_an_error_of_the_request_is_raised_in_each_call() -> None:
    queue = RewardQueue()
    calls = joined(queue, order(), order())
    request = queue.due(calls[0], 0.0)
    assert isinstance(request, MergedRequest)
    request.fail(BusyError("full", retryable=True, status_code=429))
    raised = []
    for each in calls:
        with pytest.raises(BusyError, match="full") as caught:
            each.answer()
        raised.append(caught.value)
    assert raised[0] is not raised[1]


def test_permits_are_given_in_the_order_of_the_calls() -> None:
    semaphore = FairSemaphore(1)
    events = [threading.Event() for _ in range(4)]
    for each in events:
        semaphore.join(each)
    semaphore.leave(events[1])  # which gives up
    for holder, following in ((0, [False, True, False]), (2, [False, True, True])):
        semaphore.leave(events[holder])
        assert [each.is_set() for each in events[1:]] == following


# ---------------------------------------------------------------- with a service


class Caller:
    """Calls of one client at once, in threads or in tasks of a loop."""

    def __init__(self, begin: Callable[..., Future[Any]], close: Callable[[], None]) -> None:
        self.begin = begin
        self.close = close


@contextmanager
def a_caller(kind: Kind, url: str) -> Iterator[Caller]:
    """Its client is closed at the end."""
    with ExitStack() as stack:
        if kind == "threads":
            client = stack.enter_context(Client(url))
            pool = stack.enter_context(ThreadPoolExecutor(32))
            yield Caller(
                lambda name, **more: pool.submit(
                    client.reward,
                    [{"completion": name, "id": name, **more}],
                    grader=GRADER,
                    extract="none",
                ),
                client.close,
            )
            return
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        stack.callback(loop.close)
        stack.callback(thread.join)
        stack.callback(loop.call_soon_threadsafe, loop.stop)
        later = AsyncClient(url)

        def close() -> None:
            asyncio.run_coroutine_threadsafe(later.aclose(), loop).result(WAIT_SECONDS)

        stack.callback(close)
        yield Caller(
            lambda name, **more: asyncio.run_coroutine_threadsafe(
                later.reward(
                    [{"completion": name, "id": name, **more}], grader=GRADER, extract="none"
                ),
                loop,
            ),
            close,
        )


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def service(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service that holds each submission until it is let go."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with constants(orphan_seconds=0.0), running_service(Settings(slots=8), judge=gate) as running:
        yield running


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A call waits for the end of an open request, however long; waits until so many calls do."""
    monkeypatch.setattr(_merging, "DISTANCE_SECONDS", 10 * WAIT_SECONDS)
    looked = threading.Semaphore(0)
    due = RewardQueue.due

    def noted(queue: RewardQueue, call: RewardCall, now: float) -> Any:
        found = due(queue, call, now)
        if not isinstance(found, MergedRequest) and call not in seen:
            seen.append(call)
            looked.release()
        return found

    seen: list[RewardCall] = []
    monkeypatch.setattr(RewardQueue, "due", noted)

    def wait(count: int) -> None:
        for _ in range(count):
            assert looked.acquire(timeout=WAIT_SECONDS)

    return wait


@contextmanager
def merged_calls(
    kind: Kind, service: Service, gate: Gate, waiting: Callable[[int], None], **of_b: Any
) -> Iterator[tuple[Caller, dict[str, Future[Any]]]]:
    """Calls in one request, at work in the service. `of_b`: more fields of the submission `b`."""
    with a_caller(kind, service.url) as caller:
        first = caller.begin("first")
        service.until(lambda: gate.entered == ["first"])
        calls = {name: caller.begin(name, **(of_b if name == "b" else {})) for name in NAMES}
        waiting(len(NAMES))
        assert gate.entered == ["first"]
        service.call(lambda: gate.release("first"))
        assert first.result(WAIT_SECONDS).results[0].id == "first"
        try:
            yield caller, calls
        finally:
            service.call(gate.open)


def test_each_call_has_its_own_result_as_soon_as_it_is_there(
    kind: Kind, service: Service, gate: Gate, waiting: Callable[[int], None]
) -> None:
    with merged_calls(kind, service, gate, waiting) as (_, calls):
        service.until(lambda: len(gate.entered) == 6)  # all of them: a second request would wait
        for name in reversed(NAMES):
            assert not calls[name].done()
            service.call(partial(gate.release, name))
            answer = calls[name].result(WAIT_SECONDS)
            [result] = answer.results
            assert (result.index, result.id, result.message) == (0, name, name)
            assert answer.summary.count == answer.summary.passed == 1


def test_a_call_that_the_service_refuses_harms_no_other(
    kind: Kind, service: Service, gate: Gate, waiting: Callable[[int], None]
) -> None:
    with merged_calls(kind, service, gate, waiting, language="klingon") as (_, calls):
        service.call(gate.open)
        with pytest.raises(InvalidRequestError, match=r"submissions\.0\.language"):
            calls.pop("b").result(WAIT_SECONDS)
        for name, call in calls.items():
            assert call.result(WAIT_SECONDS).results[0].message == name


def test_a_cancelled_call_leaves_the_others_alone_and_the_last_one_ends_the_request(
    service: Service, gate: Gate, waiting: Callable[[int], None]
) -> None:
    with merged_calls("loops", service, gate, waiting) as (_, calls):
        service.until(lambda: len(gate.entered) == 6)
        calls["a"].cancel()
        service.call(lambda: gate.release("b"))
        assert calls["b"].result(WAIT_SECONDS).results[0].message == "b"
        assert gate.cancelled == []
        for name in "cde":
            calls[name].cancel()
        service.until(lambda: sorted(gate.cancelled) == ["a", "c", "d", "e"])


def test_a_call_that_is_cancelled_while_it_waits_is_not_sent(
    service: Service, gate: Gate, waiting: Callable[[int], None]
) -> None:
    with a_caller("loops", service.url) as caller:
        first = caller.begin("first")
        service.until(lambda: gate.entered == ["first"])
        calls = [caller.begin(name) for name in NAMES]
        waiting(len(NAMES))
        calls[0].cancel()
        service.call(gate.open)
        for each in (first, *calls[1:]):
            assert each.result(WAIT_SECONDS).results[0].reward == 1.0
        assert sorted(gate.entered) == ["b", "c", "d", "e", "first"]


def test_a_closed_client_ends_the_calls_that_wait(
    kind: Kind, service: Service, gate: Gate, waiting: Callable[[int], None]
) -> None:
    with a_caller(kind, service.url) as caller:
        calls = [caller.begin("first")]
        service.until(lambda: gate.entered == ["first"])
        calls += [caller.begin(name) for name in NAMES]
        waiting(len(NAMES))
        caller.close()
        for each in calls:
            with pytest.raises(ClientClosedError):
                each.result(WAIT_SECONDS)


def test_streams_that_are_held_open_stop_no_other_call(
    service: Service, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_connections, "MOST_REQUESTS", 2)
    service.call(lambda: gate.release("x = 1"))
    with Client(service.url) as client, ExitStack() as stack:
        submissions = ["x = 1", "never"]
        for _ in range(2):
            stream = client.reward_stream(submissions, grader=GRADER, extract="none")
            next(stack.enter_context(stream))
        assert client.reward(["x = 1"], grader=GRADER, extract="none").summary.passed == 1
        assert client.health().status == "ok"
