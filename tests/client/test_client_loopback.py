"""Both clients over real connections, to a server that refuses, breaks off and answers as told."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import threading

import pytest
from client_blocking import Kind, a_client
from client_loopback import (
    ALIVE,
    COUNT,
    JUDGED,
    LAST_LINE,
    SUMMARY,
    TOKEN,
    WHOLE,
    Act,
    Handler,
    Loopback,
    drop,
    line,
    lines,
    refuse,
    send,
)
from waits import WAIT_SECONDS

from proctor_client import (
    AsyncClient,
    Client,
    ProctorConnectionError,
    ProtocolError,
    UnauthorizedError,
    wire,
)
from proctor_client.testing import FakeClock

SUBMISSIONS = ["a", "b", "c"]


def reward(kind: Kind, loopback: Loopback, clock: FakeClock | None = None) -> wire.RewardResponse:
    """One batch by a client of the kind."""
    with a_client(kind, loopback.url, token=TOKEN, clock=clock or loopback.clock) as client:
        judged: wire.RewardResponse = client.reward(SUBMISSIONS)
        return judged


def stream(kind: Kind, loopback: Loopback) -> tuple[list[wire.Result], wire.Summary]:
    """One streamed batch by a client of the kind."""
    with a_client(kind, loopback.url, clock=loopback.clock) as client:
        results = client.reward_stream(SUBMISSIONS)
        return list(results), results.summary


def test_retry_after_is_honoured_under_one_key(kind: Kind, loopback: Loopback) -> None:
    loopback.start(
        refuse(429, "busy", Retry_After="7"),
        drop,
        refuse(503, "draining", Retry_After="2"),
        JUDGED,
    )
    answer = reward(kind, loopback)
    assert answer == WHOLE
    # The second wait is what was left of the first's window of one second, the third is 2 s asked
    # for and what was left of the second's window of two.
    assert loopback.clock.sleeps == [7.0, 1.0, 4.0]
    assert len(loopback.received) == 4
    assert len(loopback.keys()) == 1
    assert {each["authorization"] for each in loopback.received} == {f"Bearer {TOKEN}"}


def test_a_service_that_is_away_for_a_while_is_waited_for(kind: Kind, loopback: Loopback) -> None:
    class Restart(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if len(self.sleeps) == 3:
                loopback.start(JUDGED)

    assert reward(kind, loopback, Restart(0.5)) == WHOLE
    assert len(loopback.received) == 1


def test_a_service_that_stays_away(kind: Kind, loopback: Loopback) -> None:
    with pytest.raises(ProctorConnectionError) as caught:
        reward(kind, loopback)
    assert len(loopback.clock.sleeps) == 7
    assert caught.value.retryable


def test_a_stream_dropped_in_the_middle_is_resumed_without_duplicates(
    kind: Kind, loopback: Loopback
) -> None:
    loopback.start(
        lines(line(1), line(0)[:30], breaks=True),
        drop,
        lines(line(1) + line(2)[:9], line(2)[9:], breaks=True),
        lines(line(0), line(1), line(2), LAST_LINE, breaks=False),
    )
    results, summary = stream(kind, loopback)
    assert [each.index for each in results] == [1, 2, 0]
    assert {each.stdout for each in results} == {"é\u2028é"}
    assert summary == SUMMARY
    assert len(loopback.received) == 4
    assert len(loopback.keys()) == 1
    assert {each["accept"] for each in loopback.received} == {"application/x-ndjson"}


def test_a_proxys_page_is_retried_by_its_status(kind: Kind, loopback: Loopback) -> None:
    page = b"<html><h1>Bad Gateway</h1></html>"
    loopback.start(send(502, page, "text/html"), send(504, page, "text/html"), JUDGED)
    assert reward(kind, loopback) == WHOLE
    loopback.script.append(send(403, page, "text/html"))
    with pytest.raises(ProtocolError, match="Bad Gateway") as caught:
        reward(kind, loopback)
    assert caught.value.status_code == 403


def test_a_refused_token_is_not_retried_and_not_shown(
    kind: Kind, loopback: Loopback, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    loopback.start(refuse(503, "draining"), refuse(401, "unauthorized"))
    with pytest.raises(UnauthorizedError) as caught:
        reward(kind, loopback)
    assert len(loopback.received) == 2
    assert str(caught.value) == "unauthorized (HTTP 401): no, [secret]"
    assert "attempt 1 of /reward failed" in caplog.text
    assert TOKEN not in caplog.text + repr(caught.value) + repr(vars(caught.value))


def test_a_stream_read_to_its_end_leaves_the_connection_for_the_next(loopback: Loopback) -> None:
    ports: set[int] = set()

    def noting(act: Act) -> Act:
        def noted(handler: Handler) -> None:
            ports.add(handler.client_address[1])
            act(handler)

        return noted

    whole = lines(line(0), line(1), line(2), LAST_LINE, breaks=False)
    loopback.start(noting(whole), noting(whole), noting(ALIVE))
    with Client(loopback.url, clock=loopback.clock) as client:
        for _ in range(2):
            assert len(list(client.reward_stream(SUBMISSIONS))) == COUNT
        client.health()
    assert len(ports) == 1


def test_leaving_a_stream_early_ends_its_connection(kind: Kind, loopback: Loopback) -> None:
    ended = threading.Event()

    def until_the_client_goes(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/x-ndjson")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(line(0))
        handler.wfile.flush()
        handler.connection.settimeout(30)
        if handler.connection.recv(1) == b"":
            ended.set()

    loopback.start(until_the_client_goes)
    with a_client(kind, loopback.url) as client:
        with client.reward_stream(SUBMISSIONS) as results:
            assert next(results).index == 0
        assert ended.wait(WAIT_SECONDS)


@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_loop_after_loop_each_with_connections_of_its_own(loopback: Loopback) -> None:
    # The first loop ends with an idle connection; reusing that one in the second loop would fail.
    loopback.start(ALIVE, ALIVE)
    client = AsyncClient(loopback.url, max_attempts=1)

    async def ask_and_close() -> wire.Health:
        async with client:
            return await client.health()

    assert asyncio.run(client.health()).status == "ok"
    assert asyncio.run(ask_and_close()).status == "ok"
    gc.collect()  # here, where the first loop's warning is expected


async def test_two_loops_at_once(loopback: Loopback) -> None:
    loopback.start(ALIVE, ALIVE, ALIVE)
    client = AsyncClient(loopback.url, max_attempts=1)

    async def ask() -> None:
        # A client that closes with the loop that it was used in, so that nothing is left open.
        await client.health()
        await client._driver._connections.http().aclose()

    await client.health()
    await asyncio.to_thread(asyncio.run, ask())
    await client.health()
    await client.aclose()
    assert len(loopback.received) == 3


def test_a_body_is_sent_as_the_contract_says(loopback: Loopback) -> None:
    loopback.start(JUDGED)
    reward("threads", loopback)
    [headers] = loopback.received
    assert headers["content-type"] == "application/json"
    assert headers["accept"] == "application/json"
    assert json.dumps(headers).count(TOKEN) == 1
