"""Answers that are cut short, that trickle, or that another program gives."""

from __future__ import annotations

import gzip
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from client_blocking import Kind
from client_kinds import in_either
from client_loopback import ALIVE, JUDGED, WHOLE, Act, Handler, Loopback, drop, send
from waits import WAIT_SECONDS

from proctor_client import (
    AsyncClient,
    BatchTooLargeError,
    Client,
    ClientClosedError,
    ProctorConnectionError,
    ProctorTimeoutError,
    ProtocolError,
)
from proctor_trainers.requests import ask

BODY = WHOLE.model_dump_json().encode()
PAGE = b"<html>Please log in</html>"


def without_length(body: bytes) -> Act:
    """As old proxies answer: the end of the connection is the end of the body."""

    def act(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + body)
        drop(handler)

    return act


CUT: dict[str, Act] = {
    "without a length": without_length(BODY[:-40]),
    "with a length": send(200, BODY[:-40]),
    "empty": send(200, b""),
    "compressed": send(200, gzip.compress(BODY)[:-30], Content_Encoding="gzip"),
    "damaged": send(200, b"\x1f\x8b" + b"x" * 50, Content_Encoding="gzip"),
}


@pytest.mark.parametrize("cut", CUT)
def test_a_call_with_a_cut_answer_is_sent_again(kind: Kind, cut: str, loopback: Loopback) -> None:
    loopback.start(JUDGED, CUT[cut], JUDGED)
    assert in_either(kind, loopback.url, loopback.clock, ["reward"] * 2) == [WHOLE] * 2
    assert len(loopback.keys()) == 2


def test_a_call_that_may_have_run_is_not(loopback: Loopback) -> None:
    loopback.start(send(200, b'{"exit'))
    [error] = in_either("threads", loopback.url, loopback.clock, ["exec"])
    assert isinstance(error, ProctorConnectionError)
    assert loopback.clock.sleeps == []


def test_an_answer_that_trickles_ends_with_the_call(kind: Kind, loopback: Loopback) -> None:
    def trickle(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        loopback.clock.now += 10_000.0
        handler.wfile.write(b"1\r\n \r\n%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))

    loopback.start(trickle)
    [error] = in_either(kind, loopback.url, loopback.clock, ["reward"])
    assert isinstance(error, ProctorTimeoutError)
    assert loopback.url in error.message


@pytest.mark.parametrize("call", ["reward", "stream"])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_page_of_another_program_is_named_with_its_address(
    kind: Kind, call: str, end: bytes, loopback: Loopback
) -> None:
    loopback.start(send(200, PAGE + end, "text/html; charset=utf-8"))
    [error] = in_either(kind, loopback.url, loopback.clock, [call])
    assert isinstance(error, ProtocolError)
    assert error.message.startswith(f"{loopback.url}: the answer is not Proctor's")
    assert "text/html" in error.message
    assert loopback.clock.sleeps == []


def test_a_redirect_names_its_target(loopback: Loopback) -> None:
    target = "https://elsewhere.example/reward"
    loopback.start(send(301, PAGE, "text/html", Location=target))
    [error] = in_either("threads", loopback.url, loopback.clock, ["reward"])
    assert isinstance(error, ProtocolError)
    assert f"a redirect to '{target}'" in error.message


def test_a_request_too_large_for_a_proxy_is_sent_in_parts(loopback: Loopback) -> None:
    too_large = send(413, b"<html>413 Request Entity Too Large</html>", "text/html")
    one = WHOLE.model_copy(update={"results": WHOLE.results[:1]})
    loopback.start(too_large, *[send(200, one.model_dump_json().encode())] * 2, too_large)
    with Client(loopback.url) as client:
        answers = ask(client, [{"completion": "x = 1"}, {"completion": "x = 2"}], {})
        assert [answer.reward for answer in answers] == [1.0, 1.0]
        with pytest.raises(BatchTooLargeError, match=loopback.url):
            client.reward(["x = 1"])


def test_a_refused_connection_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        host, port = bound.getsockname()
        monkeypatch.setenv("HTTP_PROXY", f"http://{host}:{port}")
        with (
            Client("http://proctor.example", max_attempts=1) as client,
            pytest.raises(ProctorConnectionError, match="proxy in HTTP_PROXY"),
        ):
            client.health()


WRONG = (
    "http://foo..bar",
    f"http://{'a' * 64}.example",
    "http://127.0.0.1:99999",
    "http://127.0.0.1:0",
    "http://127.0.0.1/?api_key=hunter2",
    "http://127.0.0.1/#top",
)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("url", WRONG)
def test_an_address_that_is_none_is_refused(url: str, kind: Callable[[str], Any]) -> None:
    with pytest.raises(ValueError, match=r"^url: ") as raised:
        kind(url)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("url", ["http://a.example.", "http://[::1]:8080/base", "http://b\u00fcro"])
def test_an_address_of_a_rarer_form_is_taken(url: str) -> None:
    Client(url).close()


def test_certificates_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    with pytest.raises(ValueError, match="SSL_CERT_FILE"):
        Client("https://proctor.example")


def test_a_proxy_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "gopher://127.0.0.1:1")
    with pytest.raises(ProctorConnectionError, match="the proxy of the environment"):
        Client("http://proctor.example")


def test_closing_a_client_ends_the_calls_of_other_threads(loopback: Loopback) -> None:
    asked, over = threading.Event(), threading.Event()

    def silent(handler: Handler) -> None:
        asked.set()
        over.wait(WAIT_SECONDS)
        drop(handler)

    errors: list[BaseException] = []

    def call() -> None:
        try:
            client.reward(["x = 1"])
        except BaseException as error:
            errors.append(error)

    loopback.start(ALIVE, silent)
    client = Client(loopback.url)
    client.health()
    thread = threading.Thread(target=call)
    thread.start()
    assert asked.wait(WAIT_SECONDS)
    client.close()
    thread.join(WAIT_SECONDS)
    over.set()
    assert [type(error) for error in errors] == [ClientClosedError]


LEAVES_EARLY = """
import os, sys, threading
from proctor_client import Client
client = Client(sys.argv[1])
stream = client.reward_stream(["a", "b"])
next(stream)
read, write = os.pipe()
if os.fork() == 0:
    os.close(write)
    os.read(read, 1)  # until the parent ends
    os._exit(0)
stream.close()
sys.stdin.read()
"""


def test_a_stream_that_is_left_early_ends_although_a_forked_child_lives(loopback: Loopback) -> None:
    ended = threading.Event()

    def begin(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/x-ndjson")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        line = WHOLE.results[0].model_dump_json().encode() + b"\n"
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        handler.wfile.flush()
        handler.connection.settimeout(WAIT_SECONDS)
        if handler.connection.recv(1) == b"":
            ended.set()
        handler.close_connection = True

    loopback.start(begin)
    command = [sys.executable, "-c", LEAVES_EARLY, loopback.url]
    environment = {**os.environ, "NO_PROXY": "127.0.0.1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment):
        assert ended.wait(WAIT_SECONDS)
