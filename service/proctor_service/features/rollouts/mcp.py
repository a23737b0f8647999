"""Tools of MCP servers: streamable HTTP, and only servers of the service's own list.

Each trajectory has a session of its own with each server. A server with an error, a late answer or
too long an answer is a Failure: the trajectory ends without a reward. Only a tool's own error
(`isError`) goes to the policy. Values of the configured headers are masked in everything from a
server.

Protocol: Model Context Protocol, revision 2025-06-18, transport "Streamable HTTP". The client
declares an empty set of capabilities, and so ignores requests and notifications of a server. A
server answers with one JSON object, or with server-sent events.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import httpx

from proctor_service.errors import JudgeFailed
from proctor_service.features.rollouts.json_schema import schema_problem
from proctor_service.features.rollouts.observation import Observation
from proctor_service.features.rollouts.reply import FUNCTION_NAME, MASK
from proctor_service.http.json import STRICT, without_surrogates
from proctor_service.outcomes import JsonObject
from proctor_service.settings.mcp_servers import McpServer

log = logging.getLogger(__name__)

PROTOCOLS = ("2025-06-18", "2025-11-25", "2025-03-26")
START_SECONDS = 30.0
CLOSE_SECONDS = 2.0
MOST_TOOLS = 128
MOST_PAGES = 16
MOST_LIST_CHARACTERS = 1 << 18
LEAST_SECRET = 8
"""Minimum length of a header value to mask."""


_INVALID_PARAMS = -32602
"""Code of JSON-RPC 2.0 for invalid arguments of a method."""


class _InvalidArguments(Exception):
    """Raised for a call with arguments refused by its server."""


def offered_name(server: str, tool: str) -> str:
    """Return the policy's name of a server's tool: `SERVER__TOOL`."""
    return f"{server}__{tool}"


@dataclass(frozen=True, slots=True)
class McpTool:
    """Tool of a session. `parameters`: its input schema if checkable by this service, or None."""

    session: McpSession
    name: str
    schema: JsonObject
    parameters: JsonObject | None


McpTools = Mapping[str, McpTool]
NO_TOOLS: McpTools = MappingProxyType({})


class McpServers:
    """Sessions with the servers of the list."""

    def __init__(self, servers: Mapping[str, McpServer]) -> None:
        self._servers = dict(servers)
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def open(self, names: Sequence[str]) -> AsyncIterator[McpTools]:
        """Return a context with the tools of these servers. Raises JudgeFailed."""
        tools: dict[str, McpTool] = {}
        async with AsyncExitStack() as stack:
            for name in dict.fromkeys(names):
                server = self._servers.get(name)
                if server is None:
                    raise JudgeFailed(f"mcp server {name[:100]}: not on this server's list")
                if self._tls is None:  # reads files for most of a second
                    self._tls = await asyncio.to_thread(httpx.create_ssl_context)
                session = McpSession(name, server, self._tls)
                stack.push_async_callback(session.close)
                tools |= await session.start()
            yield tools


class McpSession:
    """Session with a server."""

    def __init__(self, name: str, server: McpServer, tls: ssl.SSLContext) -> None:
        self._name = name
        self._server = server
        parts = (part for value in server.headers.values() for part in (value, *value.split()))
        self._secrets = sorted({each for each in parts if len(each) >= LEAST_SECRET}, key=len)[::-1]
        self._headers = {**server.headers, "accept": "application/json, text/event-stream"}
        self._headers |= {"accept-encoding": "identity", "user-agent": "proctor"}
        self._next_id = 0
        self._client: httpx.AsyncClient | None = httpx.AsyncClient(verify=tls, trust_env=False)

    async def start(self) -> dict[str, McpTool]:
        """Begin the session and return its tools by offered name. Raises JudgeFailed."""
        try:
            async with asyncio.timeout(START_SECONDS):
                client: JsonObject = {"name": "proctor", "version": "1"}
                wanted: JsonObject = {"protocolVersion": PROTOCOLS[0], "capabilities": {}}
                wanted["clientInfo"] = client
                answer = await self._ask("initialize", wanted)
                version = answer.get("protocolVersion")
                if version not in PROTOCOLS:
                    raise self._failed("it speaks another version of the protocol")
                self._headers["mcp-protocol-version"] = version
                await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}, None)
                return await self._list()
        except TimeoutError:
            raise self._failed(f"no list of tools within {START_SECONDS:g} s") from None

    async def call(self, tool: str, arguments: JsonObject, seconds: float) -> Observation:
        """Return the result of a tool. Raises JudgeFailed."""
        try:
            async with asyncio.timeout(seconds):
                answer = await self._ask("tools/call", {"name": tool, "arguments": arguments})
        except TimeoutError:
            raise self._failed(f"no result of {tool} within {seconds:g} s") from None
        except _InvalidArguments as error:  # else a policy could void its rollout
            return Observation("Error: the tool refused its arguments", str(error), failed=True)
        content, failed = answer.get("content"), answer.get("isError", False)
        if not isinstance(content, list) or not isinstance(failed, bool):
            raise self._failed(f"the result of {tool} has no content")
        text = self._masked(text_of_content(content, answer.get("structuredContent")))
        if failed:
            return Observation("Error: the tool failed", text, failed=True)
        return Observation("", text or "(no output)")

    async def close(self) -> None:
        """End the session at the server within moments, and close the connection."""
        client, self._client = self._client, None
        if client is not None:
            await asyncio.shield(asyncio.create_task(self._close(client)))

    async def _close(self, client: httpx.AsyncClient) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                if "mcp-session-id" in self._headers:
                    await client.delete(self._server.url, headers=self._headers)
        except (TimeoutError, httpx.HTTPError) as error:
            why = type(error).__name__
            log.info("a session was not closed", extra={"mcp_server": self._name, "why": why})
        finally:
            await client.aclose()

    async def _list(self) -> dict[str, McpTool]:
        """Return the tools of all pages. Raises JudgeFailed."""
        listed: list[Any] = []
        cursor: Any = None
        for _ in range(MOST_PAGES):
            page = await self._ask("tools/list", {} if cursor is None else {"cursor": cursor})
            tools, cursor = page.get("tools"), page.get("nextCursor")
            if not isinstance(tools, list):
                raise self._failed("its list of tools is none")
            listed += tools
            if len(listed) > MOST_TOOLS or len(json.dumps(listed)) > MOST_LIST_CHARACTERS:
                size = f"{MOST_TOOLS} tools or {MOST_LIST_CHARACTERS >> 10} KB"
                raise self._failed(f"it has more than {size}")
            if cursor is None:
                break
        else:
            raise self._failed(f"its list of tools has more than {MOST_PAGES} pages")
        found = dict(self._tool(each) for each in listed)
        if len(found) < len(listed):
            raise self._failed("two of its tools have one name")
        return found

    def _tool(self, listed_tool: Any) -> tuple[str, McpTool]:
        """Return a listed tool and its offered name. Raises JudgeFailed."""
        name = listed_tool.get("name") if isinstance(listed_tool, dict) else None
        parameters = listed_tool.get("inputSchema") if isinstance(listed_tool, dict) else None
        offered = offered_name(self._name, name) if isinstance(name, str) else ""
        if not isinstance(name, str) or not FUNCTION_NAME.fullmatch(offered):
            raise self._failed("a tool has a name that no policy can be offered")
        if not isinstance(parameters, dict):
            raise self._failed(f"the tool {name} has no schema")
        description = listed_tool.get("description")
        function: JsonObject = {
            "name": offered,
            "description": description if isinstance(description, str) else "",
            "parameters": parameters,
        }
        checked = None if schema_problem(parameters, "") else parameters
        schema: JsonObject = {"type": "function", "function": function}
        return offered, McpTool(self, name, schema, checked)

    async def _ask(self, method: str, params: JsonObject) -> JsonObject:
        """Return the result of a request. Raises JudgeFailed."""
        self._next_id += 1
        number = self._next_id
        body: JsonObject = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        message = await self._post(body, number)
        result = message.get("result")
        if not isinstance(result, dict):
            error = message.get("error")
            code = error.get("code") if isinstance(error, dict) else None
            code = code if type(code) is int else "unknown"
            if method == "tools/call" and code == _INVALID_PARAMS and isinstance(error, dict):
                raise _InvalidArguments(
                    self._masked(without_surrogates(str(error.get("message", ""))))
                )
            raise self._failed(f"{method}: error {code}")
        return result

    async def _post(self, body: JsonObject, number: int | None) -> JsonObject:
        """Send a message; return the answer to request `number`, empty for a notification."""
        if self._client is None:
            raise self._failed("the session is over")
        content = json.dumps(body).encode()
        headers = {**self._headers, "content-type": "application/json"}
        try:
            async with self._client.stream(
                "POST", self._server.url, content=content, headers=headers, timeout=None
            ) as response:
                if not response.is_success:
                    raise self._failed(f"{body['method']}: HTTP {response.status_code}")
                session = response.headers.get("mcp-session-id")
                if body["method"] == "initialize" and session:
                    self._headers["mcp-session-id"] = session
                if number is None:
                    return {}
                return await read_answer(response, number, self._masked)
        except httpx.HTTPError as error:
            raise self._failed(f"{body['method']}: {type(error).__name__}") from None
        except (ValueError, RecursionError):
            raise self._failed(f"{body['method']}: no answer of the protocol") from None

    def _failed(self, why: str) -> JudgeFailed:
        return JudgeFailed(self._masked(f"mcp server {self._name}: {why}"))

    def _masked(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text


MOST_ANSWER_BYTES = 4 << 20


async def read_answer(
    response: httpx.Response, number: int, masked: Callable[[str], str]
) -> JsonObject:
    """Return the JSON-RPC answer to request `number`, with secrets masked in its text.

    Raises ValueError if the body is too long, compressed or has no such answer, and RecursionError.
    """
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ValueError("compressed")
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        body = b"\n".join([line async for line in _lines(response)])
        message = STRICT.decode(masked(body.decode()))
        if _answers(message, number):
            return _object(message)
    elif kind == "text/event-stream":
        async for data in _events(response):
            message = STRICT.decode(masked(data))
            if _answers(message, number):
                return _object(message)
    raise ValueError("no answer")


def text_of_content(content: list[Any], structured: Any) -> str:
    """Return the text of a tool's result; a marker stands for content other than text."""
    parts = []
    for each in content:
        block = each if isinstance(each, dict) else {}
        resource = block.get("resource")
        text = block.get("text")
        if text is None and isinstance(resource, dict):
            text = resource.get("text")
        if text is None and block.get("type") == "resource_link":
            text = block.get("uri")
        parts.append(text if isinstance(text, str) else "(content that is no text)")
    if not parts and structured is not None:
        parts.append(json.dumps(structured, ensure_ascii=False))
    return without_surrogates("\n".join(parts))


async def _events(response: httpx.Response) -> AsyncIterator[str]:
    """Yield the data of each event."""
    data: list[str] = []
    async for raw in _lines(response):
        line = raw.decode().removesuffix("\r")
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            text, data = "\n".join(data), []
            if text.strip():  # the first event may hold only an id
                yield text


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the lines of the body. Raises ValueError if the body is too long."""
    size, rest = 0, bytearray()
    async for piece in response.aiter_raw():
        size += len(piece)
        if size > MOST_ANSWER_BYTES:
            raise ValueError("too long")
        rest += piece
        if b"\n" in piece:
            *whole, last = bytes(rest).split(b"\n")
            rest = bytearray(last)
            for line in whole:
                yield line
    yield bytes(rest)


def _answers(message: Any, number: int) -> bool:
    """Return whether a message is the answer to request `number`."""
    return (
        isinstance(message, dict)
        and type(message.get("id")) is int
        and message["id"] == number
        and ("result" in message or "error" in message)
    )


def _object(message: Any) -> JsonObject:
    found: JsonObject = message
    return found
