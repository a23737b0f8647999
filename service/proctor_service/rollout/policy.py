"""The policy: an OpenAI-compatible chat endpoint, asked through the `openai` package.

The package retries and knows the errors; the way out is ours. `Door` is the only transport: it
connects to addresses that were looked at (`addresses.py`), follows no redirect, uses no proxy,
bounds each answer in time and size, and lets through the headers it knows and no others, since the
package adds what it finds in the environment. The key is put on there; the package never has it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import httpx

from proctor_client.wire import Policy
from proctor_service.errors import PolicyUnavailable
from proctor_service.rollout.addresses import (
    Resolve,
    allowed_addresses,
    host_of,
    resolve_by_system,
    wrong_host,
)
from proctor_service.rollout.reply import Reply, read_reply, scrubbed
from proctor_service.rollout.trajectory import JsonObject

if TYPE_CHECKING:
    import openai

LONGEST_CONNECT_SECONDS = 10.0
MOST_ANSWER_BYTES = 32 << 20
QUOTED_CHARACTERS = 300
REQUEST_HEADERS = ("host", "content-type", "content-length")
RESPONSE_HEADERS = ("content-type", "retry-after", "retry-after-ms")
CONTEXT_STATUSES = (400, 413, 422)
_CONTEXT_EXCEEDED = re.compile(
    r"context[ _-]?(length|window|size)|(prompt|input).{0,80}(too long|longer than)"
    r"|max_new_tokens.{0,10}must be <=",
    re.IGNORECASE | re.DOTALL,
)

Ask = Callable[[Sequence[JsonObject], Sequence[JsonObject]], Awaitable[Reply]]
"""Messages and tools to a reply. Raises ContextExceeded and PolicyUnavailable."""
Connect = Callable[[Policy], AbstractAsyncContextManager[Ask]]
"""What asks this policy, for as long as the context is open."""


class ContextExceeded(Exception):
    """The conversation is too long for the policy's context; the message is the endpoint's."""


class Policies:
    """How policies are reached: at which hosts, and how often one is tried for a reply."""

    def __init__(
        self, hosts: Sequence[str], attempts: int, resolve: Resolve = resolve_by_system
    ) -> None:
        self._hosts = tuple(hosts)
        self._attempts = attempts
        self._resolve = resolve
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def connect(self, policy: Policy) -> AsyncIterator[Ask]:
        """What asks this policy, over connections of its own."""
        # Both take the disk and the better part of a second, once, and only where somebody rolls out.
        package = await asyncio.to_thread(_load_package)
        if self._tls is None:
            self._tls = await asyncio.to_thread(httpx.create_ssl_context)
        key = "" if policy.api_key is None else policy.api_key.get_secret_value()
        door = Door(self._hosts, self._resolve, key, policy.timeout_seconds, self._tls)
        async with package.AsyncOpenAI(
            api_key="put on by the door",
            base_url=policy.base_url,
            max_retries=self._attempts - 1,
            timeout=_timeout(policy.timeout_seconds),
            http_client=httpx.AsyncClient(
                transport=door, trust_env=False, timeout=_timeout(policy.timeout_seconds)
            ),
        ) as client:
            yield _Endpoint(policy, key, package, client).ask


class _Endpoint:
    """One policy, for the trajectories of one request."""

    def __init__(
        self, policy: Policy, key: str, package: ModuleType, client: openai.AsyncOpenAI
    ) -> None:
        self._key = key
        self._package = package
        self._client = client
        self._options: dict[str, Any] = {"model": policy.model}
        if policy.temperature is not None:
            self._options["temperature"] = policy.temperature
        if policy.max_tokens is not None:
            self._options["max_tokens"] = policy.max_tokens
        if policy.logprobs:
            self._options["logprobs"] = True
        self._extra = dict(policy.extra_body)

    async def ask(self, messages: Sequence[JsonObject], tools: Sequence[JsonObject]) -> Reply:
        """One reply."""
        body = {**self._options, "messages": list(messages)}
        if tools:
            body["tools"] = list(tools)
        try:
            # Not `chat.completions.create`: going through each message's type takes it several
            # milliseconds a turn, and its types 17 MB. The request and its retries are the same.
            answer = await self._client.post(
                "/chat/completions", body={**body, **self._extra}, cast_to=httpx.Response
            )
        # Never `from error`: a traceback would show what the endpoint said, unscrubbed.
        except self._package.APIStatusError as error:
            self._refuse_status(error)
        except self._package.OpenAIError as error:
            raise self._unavailable(error) from None
        except ValueError:  # of extra_body, or the model's name
            raise PolicyUnavailable("policy: the request cannot be written as JSON") from None
        return read_reply(answer.content, self._key)

    def _refuse_status(self, error: openai.APIStatusError) -> NoReturn:
        said = scrubbed(error.response.text[: 10 * QUOTED_CHARACTERS], self._key)
        quoted = f"HTTP {error.status_code}: {said[:QUOTED_CHARACTERS]}"
        if error.status_code in CONTEXT_STATUSES and _CONTEXT_EXCEEDED.search(said):
            raise ContextExceeded(quoted) from None
        raise PolicyUnavailable(f"policy: {quoted}") from None

    def _unavailable(self, error: openai.OpenAIError) -> PolicyUnavailable:
        cause = error.__cause__
        if isinstance(cause, PolicyUnavailable):
            return cause
        why = str(cause) or type(cause).__name__ if cause is not None else str(error)
        return PolicyUnavailable(f"policy: {scrubbed(why, self._key)[:QUOTED_CHARACTERS]}")


class Door(httpx.AsyncBaseTransport):
    """The only way to a policy."""

    def __init__(
        self,
        hosts: Sequence[str],
        resolve: Resolve,
        key: str,
        answer_seconds: float,
        tls: ssl.SSLContext,
    ) -> None:
        self._hosts = hosts
        self._resolve = resolve
        self._headers = {"accept": "application/json", "accept-encoding": "identity"}
        self._headers |= {"user-agent": "proctor"}
        if key:
            self._headers["authorization"] = f"Bearer {key}"
        self._answer_seconds = answer_seconds
        self._tls = tls
        # A pool for each request under way, and not one for all: httpcore looks at every connection
        # of a pool for every other one, which takes milliseconds a request when there are hundreds.
        self._pools: list[httpx.AsyncHTTPTransport] = []
        self._free: list[httpx.AsyncHTTPTransport] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """One request and its whole answer. Raises httpx.TransportError and PolicyUnavailable."""
        pool = self._free.pop() if self._free else self._open_pool()
        try:
            async with asyncio.timeout(self._answer_seconds):
                response = await self._send(request, pool)
                try:
                    body = await _whole(response)
                finally:
                    await response.aclose()
        except TimeoutError:
            seconds = f"{self._answer_seconds:g} s"
            raise httpx.ReadTimeout(f"no whole answer within {seconds}", request=request) from None
        finally:
            self._free.append(pool)
        headers = {name: response.headers.get(name, "") for name in RESPONSE_HEADERS}
        headers = {name: text for name, text in headers.items() if text}
        return httpx.Response(response.status_code, headers=headers, content=body)

    async def aclose(self) -> None:
        """Closes the connections."""
        for pool in self._pools:
            await pool.aclose()

    def _open_pool(self) -> httpx.AsyncHTTPTransport:
        pool = httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False)
        self._pools.append(pool)
        return pool

    async def _send(self, request: httpx.Request, pool: httpx.AsyncHTTPTransport) -> httpx.Response:
        url = request.url
        host = host_of(url)
        wrong = wrong_host(host, self._hosts)
        if wrong:
            raise PolicyUnavailable(f"policy: {wrong}")
        try:
            port = url.port or (443 if url.scheme == "https" else 80)
            addresses = await allowed_addresses(host, port, self._resolve)
        except OSError as error:
            raise httpx.ConnectError(f"{host}: {error.strerror}", request=request) from None
        headers = {name: request.headers[name] for name in REQUEST_HEADERS}
        failed: httpx.TransportError = httpx.ConnectError(f"{host} has no address", request=request)
        for address in addresses:
            # The name is still what the endpoint is told, and what its certificate must hold.
            sent = httpx.Request(
                request.method,
                url.copy_with(host=address),
                headers={**headers, **self._headers},
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await pool.handle_async_request(sent)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failed = error
        raise failed


async def _whole(response: httpx.Response) -> bytes:
    """The body, as it was sent. Raises httpx.ReadError when it is too long, or packed."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx.ReadError("the answer is compressed, which was not asked for")
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > MOST_ANSWER_BYTES:
            raise httpx.ReadError(f"the answer is longer than {MOST_ANSWER_BYTES >> 20} MB")
    return bytes(body)


def _timeout(seconds: float) -> httpx.Timeout:
    return httpx.Timeout(seconds, connect=min(seconds, LONGEST_CONNECT_SECONDS))


def _load_package() -> ModuleType:
    import openai

    # They tell at debug what is asked and answered, and OPENAI_LOG in the environment turns it on.
    for name in ("openai", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    return openai
