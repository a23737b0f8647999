"""Sessions of both kinds, against the fake service: many sandboxes, and one clean end."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest
from client_blocking import Kind, a_client, a_session
from waits import WAIT_SECONDS

from proctor_client import (
    AsyncSession,
    BusyError,
    InvalidRequestError,
    QuotaExceededError,
    SandboxTimeoutError,
    Session,
    wire,
)
from proctor_client.testing import Executed, FakeProctor, FakeSandbox


def running(proctor: FakeProctor) -> int:
    """How many sandboxes live."""
    return [each.status for each in proctor.sandboxes].count("running")


def tags(proctor: FakeProctor) -> list[list[str]]:
    """Of each sandbox that was made."""
    return [each.order.tags for each in proctor.sandboxes]


# ---------------------------------------------------------------- making and ending


def test_what_a_session_starts_has_its_defaults_and_ends_with_it(
    proctor: FakeProctor, client: Any
) -> None:
    defaults = {"ttl_seconds": 60, "limits": {"memory_mb": 64}, "job": "run-7"}
    with a_session(client, tags=("a", "b"), **defaults) as session:
        session.sandbox(tags=["c", "a"]).start()
        session.start(3, ttl_seconds=90)
        with session.sandbox():
            assert running(proctor) == 5
        assert running(proctor) == 4
    assert running(proctor) == 0
    assert tags(proctor) == [["a", "b", "c"], *[["a", "b"]] * 4]
    orders = [each.order for each in proctor.sandboxes]
    assert [each.ttl_seconds for each in orders] == [60, 90, 90, 90, 60]
    assert {(each.limits, each.job) for each in orders} == {(wire.Limits(memory_mb=64), "run-7")}


def test_a_session_without_defaults_leaves_them_to_the_service(
    proctor: FakeProctor, client: Any
) -> None:
    with a_session(client) as session:
        session.start()
    assert json.loads(proctor.requests[0].content) == {"tags": []}


def test_an_exception_ends_all(proctor: FakeProctor, client: Any) -> None:

    def work(client: Any) -> None:
        with a_session(client) as session:
            session.start(5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work(client)
    assert len(proctor.sandboxes) == 5
    assert running(proctor) == 0


def test_those_gone_already_are_no_error_and_not_asked_for(
    proctor: FakeProctor, client: Any
) -> None:
    with a_session(client) as session:
        mine, others, old = session.start(3)
        mine.stop()
        client.attach(others.id).stop()
        proctor.clock.now += 601
        assert old.refresh().status == "stopped"
        proctor.requests.clear()
    paths = {each.path.rpartition("/")[2] for each in proctor.requests}
    assert paths == {others.id, old.id}


def test_nothing_begins_after_the_end(proctor: FakeProctor, client: Any) -> None:
    with a_session(client) as session:
        [sandbox] = session.start()
        later = session.sandbox()
    for begin in (later.start, session.start, lambda: session.submit(sandbox, ["x"])):
        with pytest.raises(RuntimeError, match="session is closed"):
            begin()
    session.close()
    assert len(proctor.requests) == 2


class Full(FakeProctor):
    """Has room for so many sandboxes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST" and len(self.sandboxes) >= self.room:
            self.fail_next(reason="quota_exceeded", status=429)
        return super().handle_request(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST" and len(self.sandboxes) >= self.room:
            self.fail_next(reason="quota_exceeded", status=429)
        return await super().handle_async_request(request)


def test_starting_many_is_all_or_none(kind: Kind) -> None:
    proctor = Full(room=3)
    with a_client(kind, proctor, max_attempts=1) as client, a_session(client) as session:
        with pytest.raises(QuotaExceededError):
            session.start(4)
        assert running(proctor) == 0
        assert session.stats.executions == 0


def test_a_start_that_fails_may_be_tried_again(kind: Kind) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor, max_attempts=1) as client, a_session(client) as session:
        sandbox = session.sandbox()
        proctor.fail_next()
        with pytest.raises(Exception, match="draining"):
            sandbox.start()
        sandbox.start()
        assert running(proctor) == 1
    assert running(proctor) == 0


@pytest.mark.parametrize("options", [{"tags": "run"}, {"tags": ["a", 1]}])
def test_tags_that_are_none(kind: Kind, options: dict[str, Any]) -> None:
    with a_client(kind, FakeProctor()) as client, pytest.raises(InvalidRequestError, match="tags"):
        a_session(client, **options)


# ---------------------------------------------------------------- executions in the background


class Gates:
    """Commands that wait until their gate opens; the command's first word names it."""

    def __init__(self) -> None:
        self._gates: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def __call__(self, sandbox: FakeSandbox, request: wire.ExecRequest) -> Executed:
        [name] = request.command or []
        assert self.gate(name).wait(WAIT_SECONDS)
        return name

    def gate(self, name: str) -> threading.Event:
        """The gate of that name."""
        with self._lock:
            return self._gates.setdefault(name, threading.Event())


class AsyncGates(FakeProctor):
    """The same in a loop, where nothing may block."""

    def __init__(self) -> None:
        super().__init__(execute=lambda sandbox, request: (request.command or [""])[0])
        self._gates: dict[str, asyncio.Event] = {}
        self.entered = asyncio.Event()
        self.cancelled: list[str] = []

    def gate(self, name: str) -> asyncio.Event:
        """The gate of that name."""
        return self._gates.setdefault(name, asyncio.Event())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/exec"):
            [name] = json.loads(await request.aread())["command"]
            self.entered.set()
            try:
                await self.gate(name).wait()
            except asyncio.CancelledError:
                self.cancelled.append(name)
                raise
        return await super().handle_async_request(request)


def test_waiting_gives_them_in_the_order_of_completion_in_threads() -> None:
    gates = Gates()
    proctor = FakeProctor(execute=gates)
    with proctor.client() as client, Session(client) as session:
        pending = [
            session.submit(each, [name])
            for name, each in zip("abcd", session.start(4), strict=True)
        ]
        gates.gate("c").set()
        done, pending = session.wait(pending)
        assert [each.result().stdout for each in done] == ["c"]
        assert done[0].done
        assert not pending[0].done
        assert session.wait(pending, timeout_seconds=0) == ([], pending)
        for name in "da":
            gates.gate(name).set()
            session.wait([pending["abd".index(name)]])
        done, pending = session.wait(pending, num_returns=2)
        assert [each.result().stdout for each in done] == ["d", "a"]
        gates.gate("b").set()
        done, rest = session.wait(pending, num_returns=99)
        assert [each.result().stdout for each in done] == ["b"]
        assert rest == []
        assert session.wait([]) == ([], [])


async def test_waiting_gives_them_in_the_order_of_completion_in_a_loop() -> None:
    proctor = AsyncGates()

    async with proctor.async_client() as client, AsyncSession(client) as session:
        made = await session.start(4)
        pending = [session.submit(each, [name]) for name, each in zip("abcd", made, strict=True)]
        proctor.gate("c").set()
        done, pending = await session.wait(pending)
        assert [(await each.result()).stdout for each in done] == ["c"]
        assert await session.wait(pending, timeout_seconds=0) == ([], pending)
        for name in "da":
            proctor.gate(name).set()
            await session.wait([pending["abd".index(name)]])
        done, pending = await session.wait(pending, num_returns=2)
        assert [(await each.result()).stdout for each in done] == ["d", "a"]
        proctor.gate("b").set()
        done, rest = await session.wait(pending, num_returns=99)
        assert [(await each.result()).stdout for each in done] == ["b"]
        assert rest == []
        assert await session.wait([]) == ([], [])


def test_no_more_are_handed_out_than_asked_for(kind: Kind) -> None:
    with a_client(kind, FakeProctor()) as client, a_session(client) as session:
        pending = [session.submit(each, ["x"]) for each in session.start(5)]
        session.wait(pending, num_returns=5)
        done, rest = session.wait([*pending, *pending], num_returns=2)
        assert (len(done), len(rest)) == (2, 3)
        with pytest.raises(ValueError, match="num_returns"):
            session.wait(pending, num_returns=0)


def test_the_pending_of_another_session_would_never_be_heard_of(kind: Kind) -> None:
    with a_client(kind, FakeProctor()) as client, a_session(client) as one:
        [sandbox] = one.start()
        pending = one.submit(sandbox, ["x"])
        with a_session(client) as other, pytest.raises(ValueError, match="another session"):
            other.wait([pending])
        one.wait([pending])


def test_an_exception_is_raised_by_the_result_alone(kind: Kind) -> None:
    half = wire.ExecResult(ending="wall_limit", stdout="half")
    proctor = FakeProctor(execute=lambda sandbox, request: half)
    with a_client(kind, proctor) as client, a_session(client) as session:
        [sandbox] = session.start()
        done, _ = session.wait([session.submit(sandbox, ["x"], timeout_seconds=3)])
        with pytest.raises(SandboxTimeoutError, match="after 3 seconds") as caught:
            done[0].result()
        assert caught.value.result.stdout == "half"
        session.wait([session.submit(sandbox, ["x"])])  # nobody asks for this one's result
        for wrong in ({"command": "ls"}, {"code": "1", "timeout_seconds": -1}, {}):
            with pytest.raises(InvalidRequestError):
                session.submit(sandbox, **wrong)
    assert session.stats.exec_errors == 2


def test_closing_drops_what_has_not_begun_in_threads() -> None:
    gates = Gates()
    proctor = FakeProctor(execute=gates)
    with proctor.client() as client:
        with Session(client, max_parallel=1) as session:
            [sandbox] = session.start()
            first, second = (session.submit(sandbox, [name]) for name in "ab")
            gates.gate("a").set()
            session.wait([first])
            third = session.submit(sandbox, ["c"])

            def go_on() -> None:
                with suppress(CancelledError, TimeoutError):
                    third.result(WAIT_SECONDS)
                gates.gate("b").set()

            threading.Thread(target=go_on).start()  # the closing itself waits for the second
        assert first.result().stdout == "a"
        assert second.done
        with pytest.raises(CancelledError):
            third.result()
    assert running(proctor) == 0


async def test_closing_cancels_what_runs_in_a_loop() -> None:
    proctor = AsyncGates()
    async with proctor.async_client() as client:
        async with AsyncSession(client) as session:
            [sandbox] = await session.start()
            pending = session.submit(sandbox, ["a"])
            await proctor.entered.wait()
        assert pending.done
        with pytest.raises(asyncio.CancelledError):
            await pending.result()
        assert session.stats.exec_errors == 1
    assert proctor.cancelled == ["a"]
    assert running(proctor) == 0


def test_one_who_waits_for_a_result_may_be_cancelled_without_ending_it() -> None:
    proctor = AsyncGates()

    async def waited() -> str:
        async with proctor.async_client() as client, AsyncSession(client) as session:
            [sandbox] = await session.start()
            pending = session.submit(sandbox, ["a"])
            waiting = asyncio.create_task(pending.result())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            proctor.gate("a").set()
            return (await pending.result()).stdout

    assert asyncio.run(waited()) == "a"


# ---------------------------------------------------------------- broken off in the middle


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_while_many_are_made_leaves_none() -> None:
    class Interrupting(FakeProctor):
        """Ctrl-C comes while the fifth is made."""

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            response = super().handle_request(request)
            if request.method == "POST" and len(self.sandboxes) == 5 and not interrupted.is_set():
                interrupted.set()
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            return response

    interrupted = threading.Event()
    proctor = Interrupting()
    with proctor.client() as client, pytest.raises(KeyboardInterrupt), Session(client) as session:
        session.start(200)
    assert len(proctor.sandboxes) >= 5
    assert running(proctor) == 0


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_in_the_middle_of_waiting_leaves_none() -> None:
    class Interrupting(Gates):
        """Ctrl-C comes while commands run; stopping their sandboxes ends them."""

        def __call__(self, sandbox: FakeSandbox, request: wire.ExecRequest) -> Executed:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            return super().__call__(sandbox, request)

    class Stopping(FakeProctor):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            response = super().handle_request(request)
            if request.method == "DELETE":
                gates.gate("x").set()
            return response

    def work(session: Session) -> None:
        [sandbox] = session.start()
        session.wait([session.submit(sandbox, ["x"])])
        pytest.fail("Ctrl-C comes before")

    gates = Interrupting()
    proctor = Stopping(execute=gates)
    with proctor.client() as client, pytest.raises(KeyboardInterrupt), Session(client) as session:
        work(session)
    assert running(proctor) == 0


async def test_cancelling_while_many_are_made_leaves_none() -> None:
    class Slow(FakeProctor):
        """The answers to creations come late: the sandboxes are made, and nobody knows."""

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            response = await super().handle_async_request(request)
            if request.method == "POST" and not let_go.is_set():
                if len(self.sandboxes) == 20:
                    all_made.set()
                await let_go.wait()
            return response

    async def work() -> None:
        async with proctor.async_client() as client, AsyncSession(client) as session:
            await session.start(20)

    proctor = Slow()
    all_made, let_go = asyncio.Event(), asyncio.Event()

    task = asyncio.create_task(work())
    await all_made.wait()
    task.cancel()
    let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(proctor.sandboxes) == 20
    assert running(proctor) == 0


# ---------------------------------------------------------------- counts


def test_executions_are_counted_by_sandbox_and_reset_at_once(kind: Kind) -> None:
    ends: dict[str, Executed] = {
        "good": 0,
        "bad": 1,
        "slow": wire.ExecResult(ending="wall_limit"),
        "lost": wire.ItemError(reason="sandbox_lost", message="gone", retryable=False),
    }
    proctor = FakeProctor(execute=lambda sandbox, request: ends[(request.command or [""])[0]])
    with a_client(kind, proctor) as client, a_session(client) as session:
        one, other = session.start(2)
        idle = session.sandbox()
        idle.start()
        for name in ("good", "good", "bad"):
            one.exec([name])
        session.wait([session.submit(other, [name]) for name in ("slow", "lost")], num_returns=2)
        list(one.stream(["good"]))
        stats = session.stats
        assert stats.sandboxes_created == 3
        assert (stats.executions, stats.exec_successes) == (6, 3)
        assert (stats.exec_failures, stats.exec_errors) == (1, 2)
        assert (stats.success_rate, stats.error_rate) == (0.5, 2 / 6)
        assert session.execution_stats == {
            one.id: wire.ExecStats(total=4, successes=3, failures=1),
            other.id: wire.ExecStats(total=2, errors=2),
            idle.id: wire.ExecStats(),
        }
        assert session.reset_stats() == stats
        assert session.stats.success_rate is None
        one.exec(["good"])
        assert session.stats.sandboxes_created == 0
        assert session.execution_stats == {one.id: wire.ExecStats(total=1, successes=1)}
        assert one.exec_stats.total == 5
        client.attach(one.id).exec(["good"])  # not the session's
        assert session.stats.executions == 1


def test_what_was_refused_is_an_error_and_what_was_never_sent_is_nothing(kind: Kind) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor, max_attempts=1) as client, a_session(client) as session:
        [sandbox] = session.start()
        proctor.fail_next(status=429, reason="busy")
        with pytest.raises(BusyError):
            sandbox.exec(["x"])
        with pytest.raises(InvalidRequestError):
            sandbox.exec("x")
        assert session.stats.exec_errors == session.stats.executions == 1


def test_counts_from_many_threads_add_up() -> None:
    with FakeProctor().client() as client, Session(client) as session:
        [sandbox] = session.start()
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(lambda _: sandbox.exec(["x"]), range(400)))
        assert sandbox.exec_stats.total == session.stats.executions == 400
