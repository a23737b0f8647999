"""Single calls of threads and of tasks share requests, and each caller gets its own answer."""

from __future__ import annotations

import asyncio
import copy
import logging
import multiprocessing
import os
import pickle
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from harness import Service, running_service
from waits import WAIT_SECONDS

from proctor_client import (
    ForbiddenError,
    ProctorConnectionError,
    ProctorTimeoutError,
    UnauthorizedError,
    wire,
)
from proctor_client.tasks.task import MissingColumns
from proctor_client.testing import FakeProctor
from proctor_service.settings import Settings
from proctor_trainers.addresses import client_for
from proctor_trainers.answers import Answer
from proctor_trainers.batching import RewardBatcher
from proctor_trainers.rewards import Settings as RewardSettings

ROW = {"tests": ["assert f(1) == 1"]}
LOST = wire.ItemError(reason="sandbox_lost", message="it is gone", retryable=True)


def by_text(submission: wire.Submission) -> Any:
    """A judge that is told by the completion what to say; a number is its own reward."""
    text = str(submission.completion)
    return {"lost": LOST, "none": "no_code"}.get(text) or float(text)


@pytest.fixture
def fake() -> FakeProctor:
    return FakeProctor(by_text)


def at_once(count: int, call: Callable[[int], Any]) -> list[Any]:
    """The results of calls that threads begin at the same time; an exception is a result, too."""
    begin = threading.Barrier(count)

    def one(number: int) -> Any:
        begin.wait()
        try:
            return call(number)
        except Exception as error:
            return error

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


def in_tasks(count: int, call: Callable[[int], Any]) -> list[Any]:
    async def all_of_them() -> list[Any]:
        results = await asyncio.gather(*map(call, range(count)), return_exceptions=True)
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(left)  # a cancelled request closes its connection
        return results

    return asyncio.run(all_of_them())


@pytest.fixture(params=["threads", "tasks"])
def ask(request: pytest.FixtureRequest, fake: FakeProctor) -> Callable[..., list[Any]]:
    """Calls with these completions at once, in both forms."""

    def call(*completions: str, row: Any = ROW, **arguments: Any) -> list[Any]:
        rows = row if isinstance(row, list) else [row] * len(completions)
        if request.param == "threads":
            with fake.client() as client:
                batcher = RewardBatcher(client=client, window_seconds=0.05, **arguments)
                return at_once(
                    len(completions), lambda n: batcher.judge(completions[n], rows[n], group="p")
                )
        batcher = RewardBatcher(async_client=fake.async_client(), **arguments)
        return in_tasks(
            len(completions), lambda n: batcher.judge_async(completions[n], rows[n], group="p")
        )

    return call


def sizes(fake: FakeProctor) -> list[int]:
    return [len(each.reward.submissions) for each in fake.requests if each.reward is not None]


def test_calls_at_once_share_requests(ask: Any, fake: FakeProctor) -> None:
    wanted = [number / 256 for number in range(256)]
    answers = ask(*map(str, wanted))
    assert [each.reward for each in answers] == wanted
    assert len(sizes(fake)) <= 32
    assert sum(sizes(fake)) == 256
    assert fake.requests[0].reward is not None
    assert fake.requests[0].reward.submissions[0].group == "p"


def test_a_request_has_no_more_than_the_most(ask: Any, fake: FakeProctor) -> None:
    answers = ask(*["1"] * 20, most_submissions=8)
    assert [each.reward for each in answers] == [1.0] * 20
    assert max(sizes(fake)) <= 8


def test_what_could_not_be_judged_has_a_reason_and_costs_no_other(
    ask: Any, fake: FakeProctor, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [ROW, ROW, {"grader": {"kind": "nonsense"}}, {"tests": []}, ROW, {"n": 1}]
    with caplog.at_level(logging.WARNING, "proctor_trainers"):
        good, lost, broken, untested, no_code, nothing = ask(
            *["1", "lost", "1", "1", "none", "1"], row=rows
        )
    assert (good.reward, no_code.reward) == (1.0, 0.0)
    assert lost == Answer(error="sandbox_lost: it is gone")
    assert broken.reward is None
    assert "grader" in broken.error
    assert untested == Answer(error="invalid_task: tests: no list of tests")
    assert isinstance(nothing, MissingColumns)
    assert "could not be judged: sandbox_lost: it is gone" in caplog.text


def test_a_service_that_is_down_gives_no_reward(ask: Any, fake: FakeProctor) -> None:
    fake.fail_next(999)
    answers = ask("1", "0", "1")
    assert [each.reward for each in answers] == [None] * 3
    assert {each.error for each in answers} == {"draining: as ordered"}


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [(401, "unauthorized", UnauthorizedError), (403, "forbidden", ForbiddenError)],
)
def test_a_fatal_error_is_raised_in_each_caller(
    ask: Any, fake: FakeProctor, status: int, reason: str, kind: type[Exception]
) -> None:
    fake.fail_next(999, status=status, reason=reason, retryable=False)
    assert [type(each) for each in ask("1", "0", "1")] == [kind] * 3


@pytest.mark.parametrize("form", ["threads", "tasks"])
def test_no_call_lasts_longer_than_its_limit_although_the_service_says_nothing(form: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and never answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        batcher = RewardBatcher(url, retry_seconds=0.0, call_seconds=0.1)
        if form == "threads":
            answers = at_once(3, lambda n: batcher.judge("1", ROW))
        else:
            answers = in_tasks(3, lambda n: batcher.judge_async("1", ROW))
    assert [str(each) for each in answers] == ["timeout: no answer within 0.1 s"] * 3
    assert {type(each) for each in answers} == {ProctorTimeoutError}


class Hanging(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """The fake service, which does not answer a request with the text "hang"."""

    def __init__(self, fake: FakeProctor) -> None:
        self._fake = fake
        self.released = threading.Event()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if b"hang" in request.read():
            self.released.wait(WAIT_SECONDS)
        return self._fake.handle_request(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if b"hang" in await request.aread():
            await asyncio.sleep(WAIT_SECONDS)
        return await self._fake.handle_async_request(request)


def test_a_call_at_its_limit_has_no_reward_where_the_service_has_answered_before() -> None:
    fake = FakeProctor()
    hanging = Hanging(fake)
    limits: Any = {"window_seconds": 0, "call_seconds": 0.5}

    async def in_loop() -> list[Answer]:
        async with fake.async_client(transport=hanging) as client:
            batcher = RewardBatcher(async_client=client, **limits)
            return [await batcher.judge_async(each, ROW) for each in ("good", "hang")]

    with fake.client(transport=hanging) as client:
        batcher = RewardBatcher(client=client, **limits)
        try:
            of_threads = [batcher.judge(each, ROW) for each in ("good", "hang")]
        finally:
            hanging.released.set()
    no_answer = Answer(error="timeout: no answer within 0.5 s")
    for good, hung in (of_threads, asyncio.run(in_loop())):
        assert good.reward == 1.0
        assert hung == no_answer


def test_a_limit_of_time_changes_no_answer(fake: FakeProctor) -> None:
    with fake.client() as client:
        batcher = RewardBatcher(client=client, call_seconds=WAIT_SECONDS, window_seconds=0.05)
        answers = at_once(4, lambda n: batcher.judge(str(n), ROW))
        assert [each.reward for each in answers] == [0.0, 1.0, 2.0, 3.0]
        fake.fail_next(999, status=401, reason="unauthorized", retryable=False)
        failed = at_once(2, lambda n: batcher.judge("1", ROW))
    assert [type(each) for each in failed] == [UnauthorizedError] * 2


@pytest.mark.parametrize("form", ["threads", "tasks"])
def test_an_option_that_the_service_refuses_is_raised_in_each_caller(
    form: str, fake: FakeProctor
) -> None:
    told = "limits.memory_mb: 64 is above this server's 32"
    fake.fail_next(999, status=422, reason="invalid_request", message=told, retryable=False)
    settings = RewardSettings(say=None, options={"limits": {"memory_mb": 64}})
    with fake.client() as client:
        batcher = RewardBatcher(
            client=client, async_client=fake.async_client(), settings=settings, window_seconds=0.05
        )
        if form == "threads":
            answers = at_once(3, lambda n: batcher.judge("1", ROW))
        else:
            answers = in_tasks(3, lambda n: batcher.judge_async("1", ROW))
    assert [str(each) for each in answers] == [f"invalid_request (HTTP 422): {told}"] * 3


def test_a_dropped_connection_costs_nothing(ask: Any, fake: FakeProctor) -> None:
    fake.drop_next(2, after_results=1)
    assert [each.reward for each in ask("1", "0", "0.5")] == [1.0, 0.0, 0.5]


def test_steps_have_requests_of_their_own(fake: FakeProctor) -> None:
    batcher = RewardBatcher(async_client=fake.async_client())
    in_tasks(6, lambda n: batcher.judge_async("1", ROW, step=n % 2))
    told = [each.reward for each in fake.requests if each.reward is not None]
    assert sorted((each.step, len(each.submissions)) for each in told) == [(0, 3), (1, 3)]


def test_a_whole_batch_is_one_request(fake: FakeProctor) -> None:
    completions = ["1", "x", "0"]
    rows: list[dict[str, Any]] = [ROW, {"tests": []}, ROW]
    batcher = RewardBatcher(client=fake.client(), async_client=fake.async_client())
    expected = [1.0, None, 0.0]
    assert [each.reward for each in batcher.judge_all(completions, rows)] == expected
    later = asyncio.run(batcher.judge_all_async(completions, rows, groups=["a", "a", "b"]))
    assert [each.reward for each in later] == expected
    assert sizes(fake) == [2, 2]
    assert batcher.judge_all([], []) == []


def test_each_event_loop_and_each_round_of_it_works(fake: FakeProctor) -> None:
    batcher = RewardBatcher(async_client=fake.async_client())
    for _ in range(3):
        answers = in_tasks(4, lambda n: batcher.judge_async(str(n), ROW))
        assert [each.reward for each in answers] == [0.0, 1.0, 2.0, 3.0]


def test_a_cancelled_call_costs_no_other(fake: FakeProctor) -> None:
    async def call() -> list[Any]:
        batcher = RewardBatcher(async_client=fake.async_client())
        calls = [asyncio.create_task(batcher.judge_async(str(n), ROW)) for n in range(3)]
        await asyncio.sleep(0)
        calls[0].cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    cancelled, *others = asyncio.run(call())
    assert isinstance(cancelled, asyncio.CancelledError)
    assert [each.reward for each in others] == [1.0, 2.0]


def test_calls_that_were_all_cancelled_send_nothing_and_the_next_call_is_judged(
    fake: FakeProctor,
) -> None:
    async def call() -> Answer:
        batcher = RewardBatcher(async_client=fake.async_client())
        calls = [asyncio.create_task(batcher.judge_async(str(n), ROW)) for n in range(3)]
        await asyncio.sleep(0)
        for each in calls:
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        return await batcher.judge_async("1", ROW)

    assert asyncio.run(call()).reward == 1.0
    assert sizes(fake) == [1]


def test_an_interrupted_caller_leaves_no_other_waiting(fake: FakeProctor) -> None:
    def interrupted(_: wire.Submission) -> Any:
        raise KeyboardInterrupt

    answers: list[Answer] = []
    with FakeProctor(interrupted).client() as client:
        batcher = RewardBatcher(client=client, window_seconds=0.2)
        begun = threading.Event()

        def lead() -> None:
            begun.set()
            with pytest.raises(KeyboardInterrupt):
                batcher.judge("1", ROW)

        def follow() -> None:
            begun.wait()
            try:
                answers.append(batcher.judge("1", ROW))
            except KeyboardInterrupt:
                answers.append(Answer(error="it led a request of its own"))

        threads = [threading.Thread(target=lead), threading.Thread(target=follow)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert [each.reward for each in answers] == [None]


def test_an_active_wandb_run_gets_the_metrics_of_each_request(
    fake: FakeProctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[dict[str, float]] = []

    class Run:
        step = 0

        def log(self, data: dict[str, float], *, step: int | None, commit: bool) -> None:
            assert (step, commit) == (None, False)
            rows.append(data)

    monkeypatch.setitem(sys.modules, "wandb", cast(Any, SimpleNamespace(run=Run())))
    batcher = RewardBatcher(async_client=fake.async_client())
    in_tasks(4, lambda n: batcher.judge_async(["0", "1", "lost", "none"][n], ROW))
    [row] = rows
    assert (row["aviato/no_code_rate"], row["aviato/unavailable_rate"]) == (1 / 3, 0.25)


def test_the_form_without_a_client_says_so(fake: FakeProctor) -> None:
    with pytest.raises(TypeError, match="only an async_client"):
        RewardBatcher(async_client=fake.async_client()).judge("1", ROW)
    with pytest.raises(TypeError, match="only a client for threads"):
        asyncio.run(RewardBatcher(client=fake.client()).judge_async("1", ROW))


# ---------------------------------------------------------------- the real service


GOOD = "```python\ndef f(n):\n    return n\n```"
BAD = "```python\ndef f(n):\n    return -n\n```"


def rewards_of(batcher: RewardBatcher) -> list[float | None]:
    """The rewards of threads and then of tasks; the batcher is closed afterwards."""
    answers = at_once(4, lambda n: batcher.judge(GOOD if n % 2 else BAD, ROW))

    async def call() -> None:
        calls = [batcher.judge_async(GOOD if n % 2 else BAD, ROW) for n in range(4)]
        answers.extend(await asyncio.gather(*calls))
        await batcher.aclose()

    asyncio.run(call())
    batcher.close()
    return [each.reward for each in answers]


def _in_a_fork(batcher: RewardBatcher, answers: Any) -> None:
    answers.put((os.getpid(), rewards_of(batcher)))


@pytest.mark.slow
def test_copies_forks_and_pickles_judge_as_well(service: Service) -> None:
    batcher = RewardBatcher(service.url)
    expected = [0.0, 1.0, 0.0, 1.0] * 2
    assert batcher.judge(GOOD, ROW).reward == 1.0  # the copies are made of a batcher in use
    assert rewards_of(copy.deepcopy(batcher)) == expected
    assert rewards_of(pickle.loads(pickle.dumps(batcher))) == expected
    for method in ("fork", "spawn"):
        context: Any = multiprocessing.get_context(method)
        answers = context.SimpleQueue()
        child = context.Process(target=_in_a_fork, args=(batcher, answers))
        child.start()
        pid, rewards = answers.get()
        child.join()
        assert (rewards, pid == os.getpid()) == (expected, False)
    assert rewards_of(batcher) == expected


@pytest.mark.slow
def test_an_address_without_a_service_raises(service: Service) -> None:
    client = client_for("http://127.0.0.1:9", retry_seconds=0.0)
    with client, pytest.raises(ProctorConnectionError):
        RewardBatcher(client=client).judge(GOOD, ROW)
    with pytest.raises(ProctorConnectionError):
        asyncio.run(RewardBatcher("http://127.0.0.1:9", retry_seconds=0.0).judge_async(GOOD, ROW))


@pytest.mark.slow
def test_a_request_larger_than_the_queue_goes_in_parts() -> None:
    settings = Settings(max_queued=8)
    with running_service(settings, judge=None) as small, client_for(small.url) as client:
        batcher = RewardBatcher(client=client)
        answers = at_once(32, lambda n: batcher.judge(GOOD if n % 2 else BAD, ROW))
    assert [each.reward for each in answers] == [0.0, 1.0] * 16


def test_a_thread_that_cannot_start_costs_its_own_call_alone(
    fake: FakeProctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with fake.client() as client:
        batcher = RewardBatcher(client=client, call_seconds=WAIT_SECONDS, window_seconds=0.01)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refused)
            with pytest.raises(RuntimeError, match="can't start"):
                batcher.judge("0.5", ROW)
        assert batcher.judge("0.25", ROW).reward == 0.25
