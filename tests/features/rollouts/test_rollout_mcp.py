"""MCP servers that fail, lie, flood or hang: never a reward, and never a credential."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from harness import running_service
from policy_server import Act, Asked, PolicyServer, hangs, hangs_up, policy_server, sends
from pydantic import SecretStr
from rollout_requests import request
from rollout_world import World, calls, submits, tools

from proctor_service.errors import JudgeFailed, StartError
from proctor_service.features.rollouts.mcp import McpServers, McpTools
from proctor_service.settings import Settings
from proctor_service.settings.mcp_servers import McpServer, parse_mcp_servers

TOKEN = "mcp-5f0c6f2b8d2e4a0c9a5b1f3d7e6c8a90"
ECHO = {"name": "echo", "inputSchema": {"type": "object"}}
START = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}}
DONE = {"content": [{"type": "text", "text": "done"}]}


def result(asked: Asked, found: Any, **more: Any) -> Act:
    """The answer to a request, as JSON."""
    answer = {"jsonrpc": "2.0", "id": asked.body.get("id"), "result": found, **more}
    return sends(json.dumps(answer).encode())


def serving(**acts: Callable[[Asked], Act]) -> Callable[[Asked], Act]:
    """A script of a good server, except for these methods."""

    def script(asked: Asked) -> Act:
        method = asked.body["method"].replace("/", "_")
        if method in acts:
            return acts[method](asked)
        good = {"initialize": START, "tools_list": {"tools": [ECHO]}, "tools_call": DONE}
        return result(asked, good.get(method))

    return script


def listed(server: PolicyServer) -> dict[str, McpServer]:
    return {"it": McpServer(server.url, {"Authorization": f"Bearer {TOKEN}"})}


def open_and(
    servers: dict[str, McpServer], use: Callable[[McpTools], Any], name: str = "it"
) -> Any:
    """What `use` makes of the tools of a server."""

    async def opened() -> Any:
        async with McpServers(servers).open([name]) as found:
            return await use(found)

    return asyncio.run(opened())


def called(found: McpTools, seconds: float = 60) -> Any:
    tool = found["it__echo"]
    return tool.session.call(tool.name, {}, seconds)


def observed(answer: Any) -> str:
    """The observation of a call that a server answers so."""
    with policy_server(serving(tools_call=lambda asked: result(asked, answer))) as server:
        observation = open_and(listed(server), called)
    return str(observation.text(1000))


def tools_of(*listed: Any, **more: Any) -> Callable[[Asked], Act]:
    return lambda asked: result(asked, {"tools": list(listed), **more})


@pytest.mark.parametrize(
    ("acts", "said"),
    [
        ({"initialize": lambda asked: hangs_up}, "initialize: "),
        ({"initialize": lambda asked: sends(b"{}", "text/html")}, "no answer of the protocol"),
        ({"initialize": lambda asked: sends(b"[" * 100_000)}, "no answer of the protocol"),
        ({"initialize": lambda asked: sends(b'{"id": 1, "result": NaN}')}, "no answer"),
        ({"initialize": lambda asked: sends(b"[]")}, "no answer of the protocol"),
        ({"initialize": lambda asked: result(asked, START, id=7)}, "no answer of the protocol"),
        ({"initialize": lambda asked: result(asked, {"protocolVersion": "1"})}, "version"),
        ({"initialize": lambda asked: sends(b"x" * (5 << 20))}, "no answer of the protocol"),
        ({"tools_list": lambda asked: result(asked, None)}, "tools/list: error unknown"),
        ({"tools_list": tools_of(ECHO, ECHO)}, "two of its tools have one name"),
        ({"tools_list": tools_of(*[ECHO] * 129)}, "more than 128 tools"),
        ({"tools_list": tools_of({**ECHO, "description": "x" * (1 << 18)})}, "256 KB"),
        ({"tools_list": tools_of(nextCursor="more")}, "more than 16 pages"),
        ({"tools_list": tools_of({**ECHO, "name": "a b"})}, "a name that no policy"),
        ({"tools_list": tools_of({**ECHO, "name": "x" * 64})}, "a name that no policy"),
        ({"tools_list": tools_of({"name": "echo"})}, "the tool echo has no schema"),
        ({"tools_list": tools_of("echo")}, "a name that no policy"),
        ({"tools_call": lambda asked: hangs_up}, "tools/call: "),
        ({"tools_call": lambda asked: result(asked, {})}, "the result of echo has no content"),
        (
            {"tools_call": lambda asked: result(asked, {**DONE, "isError": "no"})},
            "the result of echo has no content",
        ),
        (
            {"tools_call": lambda asked: result(asked, None, error={"code": -32603})},
            "tools/call: error -32603",
        ),
        (
            {"tools_call": lambda asked: sends(b"data: {}\n\n" * 3, "text/event-stream")},
            "no answer of the protocol",
        ),
    ],
)
def test_a_server_that_fails_is_a_failure_that_names_it(acts: Any, said: str) -> None:
    with policy_server(serving(**acts)) as server, pytest.raises(JudgeFailed) as caught:
        open_and(listed(server), called)
    assert str(caught.value).startswith("mcp server it: ")
    assert said in str(caught.value)


def test_a_call_has_its_time_and_no_more() -> None:
    with (
        policy_server(serving(tools_call=lambda asked: hangs)) as server,
        pytest.raises(JudgeFailed, match=r"no result of echo within 0\.2 s"),
    ):
        open_and(listed(server), lambda found: called(found, 0.2))


def test_events_before_the_answer_are_passed_over() -> None:
    def script(asked: Asked) -> Act:
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}
        asks = {"jsonrpc": "2.0", "id": asked.body["id"], "method": "sampling/createMessage"}
        text = {"content": [{"type": "text", "text": "one \u2028 two"}]}
        answer = {"jsonrpc": "2.0", "id": asked.body["id"], "result": text}
        sent = [json.dumps(each, ensure_ascii=False) for each in (note, asks, answer)]
        events = "".join(f"event: message\r\ndata: {each}\r\n\r\n" for each in sent)
        return sends(f"id: 0\r\ndata:\r\n\r\n{events}".encode(), "text/event-stream")

    with policy_server(serving(tools_call=script)) as server:
        assert open_and(listed(server), called).output == "one \u2028 two"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (DONE, "done"),
        ({"content": []}, "(no output)"),
        ({"content": [], "structuredContent": {"a": 1}}, '{"a": 1}'),
        ({"content": [{"type": "image", "data": "AAAA"}]}, "(content that is no text)"),
        ({"content": [{"type": "resource", "resource": {"text": "r"}}, 7]},
         "r\n(content that is no text)"),
        ({"content": [{"type": "text", "text": "half \ud800"}]}, "half \ufffd"),
        ({**DONE, "isError": True}, "Error: the tool failed\ndone"),
        ({"content": [{"type": "text", "text": f"Bearer {TOKEN}"}]}, "***"),
        ({"content": [{"type": "text", "text": f"the token is {TOKEN}."}]}, "the token is ***."),
    ],
)  # fmt: skip
def test_a_result_is_told_as_text_without_credentials(answer: Any, text: str) -> None:
    assert observed(answer) == text


def test_requests_have_the_credentials_and_the_session_of_the_server() -> None:
    def begins(asked: Asked) -> Act:
        answer = json.dumps({"jsonrpc": "2.0", "id": asked.body["id"], "result": START})
        return sends(answer.encode(), **{"Mcp-Session-Id": "s1"})

    with policy_server(serving(initialize=begins)) as server:
        open_and(listed(server), called)
    methods = [each.body["method"] for each in server.received]
    assert methods == ["initialize", "notifications/initialized", "tools/list", "tools/call"]
    assert {each.headers["authorization"] for each in server.received} == {f"Bearer {TOKEN}"}
    sessions = [each.headers.get("mcp-session-id") for each in server.received]
    assert sessions == [None, "s1", "s1", "s1"]


def test_a_redirect_is_not_followed() -> None:
    with policy_server(serving()) as other:

        def moved(handler: Any) -> None:
            handler.send_bytes(b"", "text/plain", 307, {"Location": other.url})

        with policy_server(lambda asked: moved) as server, pytest.raises(JudgeFailed) as caught:
            open_and(listed(server), called)
        assert other.received == []
    assert str(caught.value) == "mcp server it: initialize: HTTP 307"


def test_nothing_outside_the_list_is_reached() -> None:
    with policy_server(serving()) as server, pytest.raises(JudgeFailed, match="list"):
        open_and(listed(server), called, server.url)
    assert server.received == []


def test_a_server_that_fails_in_the_middle_is_no_reward() -> None:
    world = World([calls(("it__echo", {})), submits()])
    with policy_server(serving(tools_call=lambda asked: hangs_up)) as server:
        world.mcp_servers = listed(server)
        found = world.play(tools("submit_solution", mcp_servers=["it"]))
    assert isinstance(found.failure, JudgeFailed)
    assert (found.reward, found.verdict) == (None, None)
    assert world.judged == []


def test_arguments_that_the_server_refuses_are_told_to_the_policy() -> None:
    """A policy cannot end its rollout without a reward by a call that is wrong."""
    error = {"code": -32602, "message": f"no such argument; {TOKEN}"}
    world = World([calls(("it__echo", {})), submits()])
    with policy_server(
        serving(tools_call=lambda asked: result(asked, None, error=error))
    ) as server:
        world.mcp_servers = listed(server)
        found = world.play(tools("submit_solution", mcp_servers=["it"]))
    assert world.told.startswith("Error: the tool refused its arguments\nno such argument")
    assert TOKEN not in world.told
    assert (found.reward, found.failure) == (1.0, None)


def test_an_error_of_a_tool_is_told_to_the_policy_and_cut() -> None:
    answer = {"content": [{"type": "text", "text": "x" * 9000 + "the end"}], "isError": True}
    world = World([calls(("it__echo", {})), submits()])
    with policy_server(serving(tools_call=lambda asked: result(asked, answer))) as server:
        world.mcp_servers = listed(server)
        agent = tools("submit_solution", mcp_servers=["it"], observation_characters=256)
        found = world.play(agent)
    assert world.told.startswith("Error: the tool failed\n")
    assert world.told.endswith("the end")
    assert len(world.told) <= 256
    assert (found.reward, found.metrics["exec_errors"]) == (1.0, 1)
    assert world.opened == 0


# ---------------------------------------------------------------- settings and requests


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'{{"a": {{"url": "{TOKEN}"', "not JSON"),
        ("[]", "not a JSON object"),
        ('{"a_b": {"url": "http://x"}}', "'a_b': a name has"),
        (f'{{"a": {{"url": "{TOKEN}"}}}}', "'a': url: "),
        (f'{{"a": {{"url": "http://u:{TOKEN}@x"}}}}', "'a': url: "),
        (f'{{"a": {{"url": "http://x", "header": "{TOKEN}"}}}}', "'a': not an object with"),
        (f'{{"a": {{"url": "http://x", "headers": {{"A": "{TOKEN}\\n"}}}}}}', "'a': headers: "),
        ('{"a": {"url": "http://x", "headers": {"A": 1}}}', "'a': headers: "),
    ],
)
def test_a_wrong_list_is_no_start_and_shows_no_secret(text: str, said: str) -> None:
    with pytest.raises(StartError) as caught:
        parse_mcp_servers(text)
    assert str(caught.value).startswith("PROCTOR_MCP_SERVERS: ")
    assert said in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_no_repr_shows_the_credentials() -> None:
    text = json.dumps({"a": {"url": "http://x/mcp", "headers": {"Authorization": TOKEN}}})
    settings = Settings(mcp_servers=SecretStr(text))
    assert settings.mcp_servers_by_name()["a"].headers == {"Authorization": TOKEN}
    assert TOKEN not in repr(settings) + repr(settings.mcp_servers_by_name())


def test_a_request_names_servers_of_the_list_only() -> None:
    tool = {"function": {"name": "calc__add"}, "command": ["true"]}
    wrong: dict[str, dict[str, Any]] = {
        "agent.mcp_servers.0: PROCTOR_MCP_SERVERS has no 'other', only: calc": {
            "mcp_servers": ["other"]
        },
        "agent.custom_tools.0.function.name: reserved for the MCP server calc": {
            "mcp_servers": ["calc"],
            "custom_tools": [tool],
        },
    }
    listed = SecretStr('{"calc": {"url": "http://127.0.0.1:9/mcp"}}')
    with running_service(Settings(mcp_servers=listed)) as service, service.client() as client:
        for message, fields in wrong.items():
            agent = {"kind": "tools", **fields}
            answer = client.post("/rollout", json=request("http://127.0.0.1:9/v1", agent=agent))
            assert answer.status_code == 422
            assert answer.json()["error"]["message"] == message
