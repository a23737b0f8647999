"""Whose answer it is, what a connection error says, and copies of clients."""

from __future__ import annotations

import asyncio
import copy
import pickle
import re
import socket
import ssl
import tomllib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from client_blocking import Kind
from client_kinds import SUBMISSIONS, in_either
from client_loopback import ALIVE, JUDGED, LAST_LINE, WHOLE, Act, Handler, Loopback, line, lines
from harness import free_ports, running_service
from pydantic import SecretStr

import proctor_client
from proctor_client import (
    AsyncClient,
    Client,
    ClientClosedError,
    ProctorConnectionError,
    ProctorError,
    ProctorTimeoutError,
    wire,
)
from proctor_client.errors import from_transport
from proctor_client.testing import FakeClock, FakeProctor

all_copies = pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))]
)
TOKEN = "correct-horse-battery-staple"


# ---------------------------------------------------------------- whose answer it is


def from_ports(ports: list[int], act: Act, name: str | None = "own") -> Act:
    """The act, on behalf of a request of this id; notes which connection it was asked on."""

    def noted(handler: Handler) -> None:
        ports.append(handler.client_address[1])
        named = handler.headers["Proctor-Request-Id"] if name == "own" else name
        whole = handler.end_headers

        def end_headers() -> None:
            if named is not None:
                handler.send_header("Proctor-Request-Id", named)
            whole()

        handler.end_headers = end_headers  # type: ignore[method-assign]
        act(handler)
        handler.end_headers = whole  # type: ignore[method-assign]

    return noted


STREAMED = lines(line(0), line(1), line(2), LAST_LINE, breaks=False)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # connections that are no more trusted
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_answer_to_another_request_is_asked_for_again_on_a_fresh_connection(
    kind: Kind, loopback: Loopback
) -> None:
    ports: list[int] = []
    loopback.start(
        from_ports(ports, JUDGED),
        from_ports(ports, JUDGED, "another"),
        from_ports(ports, JUDGED),
        from_ports(ports, STREAMED, "another"),
        from_ports(ports, STREAMED),
        from_ports(ports, JUDGED, None),
        from_ports(ports, JUDGED),
    )
    found = in_either(kind, loopback.url, loopback.clock, ["reward", "reward", "stream", "reward"])
    assert found == [WHOLE, WHOLE, [0, 1, 2], WHOLE]
    assert ports[0] == ports[1]
    assert ports[2] == ports[3]
    assert ports[4] == ports[5]  # the id that earlier answers repeated is missing
    assert len(set(ports)) == 4
    names = [each["proctor-request-id"] for each in loopback.received]
    assert len(set(names)) == len(names)
    assert len(loopback.keys()) == 4


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_service_whose_ids_a_proxy_drops_is_believed(kind: Kind, loopback: Loopback) -> None:
    loopback.start(from_ports([], JUDGED, None), from_ports([], JUDGED, None))
    assert in_either(kind, loopback.url, loopback.clock, ["reward", "reward"]) == [WHOLE, WHOLE]


def test_what_may_have_run_is_not_asked_for_again(kind: Kind, loopback: Loopback) -> None:
    loopback.start(from_ports([], ALIVE, "another"))
    [error] = in_either(kind, loopback.url, loopback.clock, ["exec"])
    assert isinstance(error, ProctorConnectionError)
    assert error.message == f"{loopback.url}: the answer is to another request"
    assert loopback.clock.sleeps == []


def test_the_service_repeats_the_id_also_of_refusals_and_streams() -> None:
    with running_service() as service, Client(service.url) as client:
        assert not client.has_answered
        assert client.reward(["x = 1"], grader={"kind": "exec"}).summary.passed == 1
        assert len(list(client.reward_stream(["x = 1"], grader={"kind": "exec"}))) == 1
        with pytest.raises(ProctorError, match="sandbox"):
            client.attach("sb_1").refresh()
        assert client.has_answered


# ---------------------------------------------------------------- errors


def test_a_connection_error_names_the_url_in_one_line(kind: Kind) -> None:
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    [error] = in_either(kind, url, FakeClock(), ["reward"])
    assert isinstance(error, ProctorConnectionError)
    assert re.fullmatch(rf"connection: {url}: ConnectError: .+", str(error))


@pytest.mark.parametrize(("fault", "attempts"), [(socket.EAI_NONAME, 1), (socket.EAI_AGAIN, 8)])
def test_a_name_that_is_none_raises_at_once_and_a_resolver_without_answers_after_the_retries(
    kind: Kind, fault: int, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(fault, "no address")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    clock = FakeClock()
    [error] = in_either(kind, "http://proctor.invalid:8080", clock, ["reward"])
    assert isinstance(error, ProctorConnectionError)
    assert error.message.startswith("http://proctor.invalid:8080: ConnectError: ")
    assert len(clock.sleeps) == attempts - 1


def test_a_resolver_that_fails_for_a_moment_is_asked_again(
    kind: Kind, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")]
    port = httpx.URL(loopback.url).port

    def resolve(*_: Any, **__: Any) -> Any:
        if failures:
            raise failures.pop()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setenv("NO_PROXY", "proctor.test")
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    loopback.start(JUDGED)
    assert in_either(kind, f"http://proctor.test:{port}", loopback.clock, ["reward"]) == [WHOLE]
    assert len(loopback.clock.sleeps) == 1


class SilentStream(httpx.AsyncByteStream):
    """The body of an answer of which nothing arrives."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""


def test_a_loop_does_not_read_beyond_the_end_of_a_call() -> None:
    clock = FakeClock()

    def late(request: httpx.Request) -> httpx.Response:
        clock.now += 690.0  # the answer time and the budget of the retries
        return httpx.Response(200, stream=SilentStream())

    async def call() -> None:
        transport = httpx.MockTransport(late)
        async with AsyncClient("http://proctor.test", transport=transport, clock=clock) as client:
            async for _ in client.reward_stream(SUBMISSIONS):
                pass

    with pytest.raises(
        ProctorTimeoutError, match=r"http://proctor\.test: no whole answer until the call"
    ):
        asyncio.run(call())
    assert clock.sleeps == []


def test_tls_at_a_port_without_raises_at_once(kind: Kind) -> None:
    with running_service() as service:
        clock = FakeClock()
        url = service.url.replace("http:", "https:")
        [error] = in_either(kind, url, clock, ["reward"])
    assert isinstance(error, ProctorConnectionError)
    assert error.message.startswith(f"{url}: ConnectError: ")
    assert not error.retryable
    assert clock.sleeps == []


@pytest.mark.parametrize(
    ("cause", "is_mistake"),
    [
        (socket.gaierror(socket.EAI_NONAME, "unknown"), True),
        (socket.gaierror(socket.EAI_AGAIN, "no answer"), False),
        (ssl.SSLCertVerificationError("expired"), True),
        (ssl.SSLEOFError("the other end is gone"), False),
        (ConnectionRefusedError(), False),
    ],
)
def test_after_an_answer_it_is_an_outage(cause: OSError, is_mistake: bool) -> None:
    raised = httpx.ConnectError("several\n  lines")
    raised.__cause__ = cause
    first = from_transport(raised, url="http://a")
    assert (first.retryable, first.message) == (
        not is_mistake,
        "http://a: ConnectError: several lines",
    )
    assert from_transport(raised, has_answered=True).retryable


def test_a_closed_client_raises_a_proctor_error() -> None:
    proctor = FakeProctor()
    client, later = proctor.client(), proctor.async_client()
    client.close()
    asyncio.run(later.aclose())
    with pytest.raises(ClientClosedError, match="this client is closed") as caught:
        client.reward(["a"])
    assert isinstance(caught.value, ProctorError)
    with pytest.raises(ClientClosedError):
        next(client.reward_stream(["a"]))
    with pytest.raises(ClientClosedError):
        asyncio.run(later.reward(["a"]))
    assert proctor.requests == []


def test_the_version_is_told() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "client" / "pyproject.toml").read_text())
    assert proctor_client.__version__ == project["project"]["version"]
    proctor = FakeProctor()
    with proctor.client() as client:
        client.health()
    [request] = proctor.requests
    assert request.headers["user-agent"] == f"proctor-client/{proctor_client.__version__}"


# ---------------------------------------------------------------- copies


@all_copies
def test_a_copied_client_has_the_address_and_the_token_and_connections_of_its_own(
    copied: Callable[[Any], Any], loopback: Loopback
) -> None:
    loopback.start(JUDGED, JUDGED, JUDGED)
    with Client(loopback.url, token=SecretStr(TOKEN), max_attempts=3) as client:
        assert client.reward(SUBMISSIONS) == WHOLE
        another = copied(client)
        client.close()
    assert TOKEN not in repr([client, another, vars(another)])
    with another:
        assert another.reward(SUBMISSIONS) == WHOLE

    async def later() -> wire.RewardResponse:
        async with copied(AsyncClient(loopback.url, token=TOKEN)) as third:
            answer: wire.RewardResponse = await third.reward(SUBMISSIONS)
            return answer

    assert asyncio.run(later()) == WHOLE
    assert {each["authorization"] for each in loopback.received} == {f"Bearer {TOKEN}"}


def test_a_copied_handle_uses_the_sandbox_and_leaves_its_end_to_the_first() -> None:
    proctor = FakeProctor()
    with proctor.client() as client:
        with client.sandbox() as sandbox:
            with copy.deepcopy(sandbox) as another:
                assert another.id == sandbox.id
                another.write_file("a", "1")
            assert sandbox.read_file("a") == b"1"
        with client.sandbox() as first, copy.deepcopy(client.sandbox()) as second:
            assert first.id != second.id
    assert {each.status for each in proctor.sandboxes} == {"stopped"}
    assert len(proctor.sandboxes) == 3


@pytest.mark.parametrize("kind", [ProctorConnectionError, ClientClosedError])
def test_an_error_can_be_pickled(kind: type[ProctorError]) -> None:
    error = kind("said", retryable=True, status_code=502)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert vars(again) == vars(error)
