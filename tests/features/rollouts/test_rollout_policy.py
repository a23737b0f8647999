"""How a policy is asked: what is retried, what is refused, and what never gets out."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx
import pytest
from policy_server import (
    Act,
    Asked,
    PolicyServer,
    completion,
    drips,
    fails,
    hangs,
    hangs_up,
    policy_server,
    says,
    sends,
)
from waits import WAIT_SECONDS

from proctor_client.wire import Policy
from proctor_service.errors import PolicyUnavailable
from proctor_service.features.rollouts.policy import Ask, ContextExceeded, Policies
from proctor_service.features.rollouts.reply import Reply
from proctor_service.outcomes import JsonObject

KEY = "sk-5f0c6f2b8d2e4a0c9a5b1f3d7e6c8a90"
HELLO: list[JsonObject] = [{"role": "user", "content": "Hello"}]
HI = says("Hi")


def policy(url: str, **fields: Any) -> Policy:
    return Policy.model_validate({"base_url": url, "model": "policy", **fields})


def ask(
    server: PolicyServer,
    *,
    policies: Policies | None = None,
    tools: Sequence[JsonObject] = (),
    **fields: Any,
) -> Reply:
    """One reply of this server."""

    async def asked() -> Reply:
        reached = policies or Policies(["*"], 1)
        fields.setdefault("base_url", server.url)
        async with reached.connect(policy(fields.pop("base_url"), **fields)) as endpoint:
            async with asyncio.timeout(WAIT_SECONDS):
                return await endpoint(HELLO, tools)

    return asyncio.run(asked())


def refused(act: Act, error: type[Exception] = PolicyUnavailable, **fields: Any) -> str:
    """What is said when a server acts so."""
    with policy_server(lambda asked: act) as server, pytest.raises(error) as caught:
        ask(server, **fields)
    return str(caught.value)


def test_a_request_is_what_the_api_takes() -> None:
    tool: JsonObject = {"type": "function", "function": {"name": "bash"}}
    with policy_server(lambda asked: HI) as server:
        ask(
            server,
            tools=[tool],
            api_key=KEY,
            temperature=0.5,
            max_tokens=7,
            extra_body={"top_logprobs": 2, "chat_template_kwargs": {"enable_thinking": False}},
        )
        ask(server, logprobs=False)
    first, second = server.received
    assert first.path == "/v1/chat/completions"
    assert first.body == {
        "model": "policy",
        "messages": HELLO,
        "tools": [tool],
        "temperature": 0.5,
        "max_tokens": 7,
        "logprobs": True,
        "top_logprobs": 2,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    assert second.body == {"model": "policy", "messages": HELLO}
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert first.headers["host"] == server.url.removeprefix("http://").removesuffix("/v1")
    assert "authorization" not in second.headers


def test_the_environment_adds_nothing_to_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with policy_server(lambda asked: HI) as server, policy_server(lambda asked: HI) as other:
        for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
            monkeypatch.setenv(name, "operator-secret")
        monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Operator: operator-secret")
        monkeypatch.setenv("OPENAI_BASE_URL", other.url)
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, other.url)
        ask(server)
        [asked] = server.received
        assert other.received == []
    assert set(asked.headers) == {
        "host",
        "accept",
        "accept-encoding",
        "content-length",
        "content-type",
        "user-agent",
    }
    assert "operator-secret" not in json.dumps(dict(asked.headers))


@pytest.mark.parametrize("broken", [fails(500), fails(503), fails(429), hangs_up])
def test_what_may_pass_is_tried_again(broken: Act) -> None:
    acts = iter([broken, HI])
    with policy_server(lambda asked: next(acts)) as server:
        assert ask(server, policies=Policies(["*"], 2)).text == "Hi"
    assert len(server.received) == 2


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (fails(500, "out of memory"), "HTTP 500: .*out of memory"),
        (fails(429, "slow down"), "HTTP 429: .*slow down"),
        (fails(401, "who are you"), "HTTP 401: "),
        (fails(404, "no such model"), "HTTP 404: .*no such model"),
        (fails(400, "logprobs are not supported"), "HTTP 400: "),
        (fails(302, Location="http://169.254.169.254/"), "HTTP 302"),
        (hangs_up, "policy: .+"),
        (sends(b"<html>"), "not JSON"),
        (sends(b"{}"), "no chat completion"),
        (sends(b'{"choices": []}'), "no chat completion"),
        (sends(gzip.compress(json.dumps(completion({})).encode()), **{"Content-Encoding": "gzip"}),
         "compressed"),
    ],
)  # fmt: skip
def test_an_endpoint_that_fails_is_a_failure_that_says_how(act: Act, said: str) -> None:
    message = refused(act)
    assert message.startswith("policy: ")
    assert re.search(said, message), message


def test_nobody_at_home() -> None:
    with policy_server(lambda asked: HI) as server:
        url = server.url
    with pytest.raises(PolicyUnavailable, match="policy: "):
        ask(server, base_url=url)
    with pytest.raises(PolicyUnavailable, match=r"policy: no-such-host\.invalid: "):
        ask(server, base_url="http://no-such-host.invalid/v1")


@pytest.mark.parametrize("act", [hangs, drips])
def test_an_answer_has_its_time_and_no_more(act: Act) -> None:
    assert "within 0.2 s" in refused(act, timeout_seconds=0.2)


def test_an_answer_without_an_end_is_broken_off() -> None:
    def floods(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        piece = b" " * (1 << 20)
        while not handler.server.dead.is_set():
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    assert "longer than 32 MB" in refused(floods)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "This model's maximum context length is 4096 tokens. However, you requested 5000"),
        (400, "The decoder prompt (length 5000) is longer than the maximum model length of 4096"),
        (400, "the request exceeds the available context size, try increasing it"),
        (400, "Requested token count exceeds the model's maximum context length of 4096 tokens"),
        (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096"),
        (413, "prompt is too long: 210000 tokens > 200000 maximum"),
    ],
)
def test_a_conversation_that_is_too_long_is_told_apart(status: int, message: str) -> None:
    assert message[:40] in refused(fails(status, message), ContextExceeded)


def test_what_cannot_be_written_as_json_is_a_failure() -> None:
    assert "cannot be written" in refused(HI, extra_body={"bias": float("nan")})


# ---------------------------------------------------------------- where it leads


def resolving(*answers: Sequence[str]) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    """A resolver that gives these answers, one after the other."""
    left = list(answers)

    async def resolve(host: str, port: int) -> Sequence[str]:
        assert host == "policy.test"
        return left.pop(0)

    return resolve


def test_a_name_that_moves_to_a_metadata_address_is_not_followed() -> None:
    with policy_server(lambda asked: HI) as server:
        policies = Policies(["*"], 1, resolving(["127.0.0.1"], ["169.254.169.254"]))
        port = server.server_address[1]

        async def both() -> str:
            async with policies.connect(policy(f"http://policy.test:{port}/v1")) as endpoint:
                text = (await endpoint(HELLO, ())).text
                with pytest.raises(PolicyUnavailable, match="metadata"):
                    await endpoint(HELLO, ())
                return text

        assert asyncio.run(both()) == "Hi"
    [asked] = server.received
    assert asked.headers["host"] == f"policy.test:{port}"


def test_the_next_address_is_tried_when_one_does_not_listen() -> None:
    with policy_server(lambda asked: HI) as server:
        policies = Policies(["*"], 1, resolving(["::1", "127.0.0.1"]))
        port = server.server_address[1]
        assert ask(server, policies=policies, base_url=f"http://policy.test:{port}/v1").text == "Hi"


def test_a_certificate_must_hold_the_name_and_not_the_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[httpx.Request] = []

    async def note(self: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, stream=httpx.ByteStream(json.dumps(completion({})).encode()))

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", note)
    policies = Policies(["*"], 1, resolving(["10.0.0.1"]))
    asyncio.run(_ask_once(policies, "https://policy.test/v1"))
    [request] = sent
    assert str(request.url) == "https://10.0.0.1/v1/chat/completions"
    assert request.headers["host"] == "policy.test"
    assert request.extensions["sni_hostname"] == "policy.test"


async def _ask_once(policies: Policies, url: str) -> None:
    async with policies.connect(policy(url)) as endpoint:
        await endpoint(HELLO, ())


def test_a_host_that_the_setting_does_not_name_is_refused_at_the_door_too() -> None:
    assert "PROCTOR_POLICY_HOSTS" in refused(HI, policies=Policies(["vllm.internal"], 1))


def test_a_redirect_is_not_followed() -> None:
    with policy_server(lambda asked: HI) as other:
        act = fails(307, Location=other.url + "/chat/completions")
        assert "HTTP 307" in refused(act, api_key=KEY)
        assert other.received == []


# ---------------------------------------------------------------- the key


@pytest.mark.parametrize(
    "act",
    [
        fails(401, f"Incorrect API key provided: {KEY}"),
        fails(401, f"Incorrect API key provided: {KEY[:8]}***{KEY[-8:]}"),
        fails(500, f"Bearer {KEY} {KEY}"),
        fails(400, f"context length exceeded by {KEY}"),
        fails(403, KEY, **{"X-Echo": KEY}),
        sends(KEY.encode()),
        sends(json.dumps(completion({"content": KEY})).encode(), **{"X-Echo": KEY}),
        hangs_up,
    ],
)
def test_the_key_gets_neither_into_messages_nor_into_logs(
    act: Act, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_LOG", "debug")
    caplog.set_level(logging.DEBUG)
    said = ""
    with policy_server(lambda asked: act) as server:
        try:
            said = ask(server, api_key=KEY).choice_json.decode()
        except (PolicyUnavailable, ContextExceeded) as error:
            said = "".join(traceback.format_exception(error))
    assert server.received[0].headers["authorization"] == f"Bearer {KEY}"
    pieces = {KEY[at : at + 8] for at in range(len(KEY) - 7)}
    for text in (said, caplog.text):
        assert not any(piece in text for piece in pieces), text


def test_the_package_is_loaded_only_where_somebody_rolls_out() -> None:
    look = "import sys, proctor_service.app; print('openai' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", look]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert run.stdout == "False\n"


def test_connections_are_kept_for_the_next_turn_and_closed_at_the_end() -> None:
    seen: list[Any] = []

    def script(asked: Asked) -> Act:
        def act(handler: Any) -> None:
            seen.append(handler.client_address)
            handler.send_json(completion({"content": "Hi"}))

        return act

    async def several(endpoint: Ask) -> None:
        for _ in range(3):
            await endpoint(HELLO, ())

    async def run(url: str) -> None:
        async with Policies(["*"], 1).connect(policy(url)) as endpoint:
            await several(endpoint)

    with policy_server(script) as server:
        asyncio.run(run(server.url))
    assert len(set(seen)) == 1
