"""Policy client: an OpenAI-compatible chat endpoint, called through the `openai` package.

The package does retries and error handling; the connections are this module's. `Door` is the only
transport. `Door` connects to checked addresses (`addresses.py`), ignores redirects and proxies, and
bounds each answer in time and size. `Door` passes on only known headers, since the package adds
headers from the environment. `Door` also adds the API key; the package never receives the key.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import httpx

from proctor_client.wire import Policy
from proctor_service.errors import PolicyRefused, PolicyUnavailable
from proctor_service.features.rollouts.addresses import (
    Resolve,
    allowed_addresses,
    host_of,
    resolve_by_system,
    wrong_host,
)
from proctor_service.features.rollouts.reply import Reply, read_reply, scrubbed
from proctor_service.observe.observer import NO_OBSERVERS, Observer, Observers
from proctor_service.outcomes import JsonObject

if TYPE_CHECKING:
    import openai

ATTEMPTS = 4
"""Requests for one reply; with the waits between them they outlast a restart of the endpoint."""
LONGEST_CONNECT_SECONDS = 10.0
MOST_ANSWER_BYTES = 32 << 20
QUOTED_CHARACTERS = 300
REQUEST_HEADERS = ("host", "content-type", "content-length")
RESPONSE_HEADERS = ("content-type", "retry-after", "retry-after-ms")
CONTEXT_STATUSES = (400, 413, 422)
LOGPROBS_STATUSES = (400, 403, 422)
LOGPROBS = ("logprobs", "top_logprobs")
LOGPROBS_ADVICE = 'set policy.logprobs to false, or to "optional", and no top_logprobs'
_BAD_FIELD = "change the fields of policy or the messages that the endpoint refuses"
ADVICE: Mapping[int, str] = MappingProxyType(
    {
        400: _BAD_FIELD,
        401: "set policy.api_key to a key of the endpoint",
        403: "set policy.api_key to a key that may use policy.model",
        404: "check policy.base_url, which ends in /v1, and policy.model",
        405: "check policy.base_url, which ends in /v1",
        422: _BAD_FIELD,
    }
)
"""HTTP status of a lasting refusal of a request, and the necessary change."""
_CONTEXT_EXCEEDED = re.compile(
    r"context[ _-]?(length|window|size)|(prompt|input).{0,80}(too long|longer than)"
    r"|max_new_tokens.{0,10}must be <=",
    re.IGNORECASE | re.DOTALL,
)
"""Matches `context_length_exceeded` and `Prompt (9000 tokens) too long`."""


class Ask(Protocol):
    """Function to ask a policy."""

    def __call__(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject], seed: int | None = None
    ) -> Awaitable[Reply]:
        """Map messages and tools to a reply. Raises ContextExceeded and PolicyUnavailable."""


Connect = Callable[[Policy], AbstractAsyncContextManager[Ask]]
"""Context with a function to ask this policy while the context is open."""


class _LogprobsRefused(Exception):
    """The endpoint refuses `logprobs`; the message is the endpoint's."""


class ContextExceeded(Exception):
    """Conversation longer than the policy's context; the message is the endpoint's."""


class Policies:
    """Connection settings for policies: allowed hosts, and attempts per reply."""

    def __init__(
        self,
        hosts: Sequence[str],
        attempts: int | None = None,
        resolve: Resolve = resolve_by_system,
        observers: Observers = NO_OBSERVERS,
    ) -> None:
        self._hosts = tuple(hosts)
        self._attempts = ATTEMPTS if attempts is None else attempts
        self._resolve = resolve
        self._observers = observers
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def connect(self, policy: Policy) -> AsyncIterator[Ask]:
        """Return a context with a function to ask this policy over its own connections."""
        # Both read files and take most of a second, only once, and only if rollouts are used.
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
            yield _Endpoint(policy, key, package, client, self._observers).ask


class _Endpoint:
    """Client of a policy for the trajectories of a request."""

    def __init__(
        self,
        policy: Policy,
        key: str,
        package: ModuleType,
        client: openai.AsyncOpenAI,
        observers: Observers,
    ) -> None:
        self._model = policy.model
        self._notify = observers.notify
        self._key = key
        self._package = package
        self._client = client
        sent = {"model", "temperature", "max_tokens"}
        self._options: dict[str, Any] = policy.model_dump(include=sent, exclude_none=True)
        self._logprobs: dict[str, Any] = {"logprobs": True} if policy.logprobs else {}
        self._logprobs_optional = policy.logprobs == "optional"
        self._send_reasoning = policy.send_reasoning
        self._extra = dict(policy.extra_body)

    async def ask(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject], seed: int | None = None
    ) -> Reply:
        """Return the policy's reply."""
        begun, model = time.perf_counter(), self._model
        self._notify(Observer.policy_asked, model)
        try:
            reply = await self._reply(messages, tools, seed)
        except BaseException as error:
            self._notify(Observer.policy_failed, model, error, time.perf_counter() - begun)
            raise
        self._notify(Observer.policy_answered, model, time.perf_counter() - begun)
        return reply

    async def _reply(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject], seed: int | None
    ) -> Reply:
        body: dict[str, Any] = {**self._options, "messages": list(messages)}
        if tools:
            body["tools"] = list(tools)
        if seed is not None:
            body["seed"] = seed
        try:
            content = await self._post({**body, **self._logprobs, **self._extra})
        except _LogprobsRefused as refused:
            if not self._logprobs_optional:
                raise PolicyRefused(f"policy: {refused}; {LOGPROBS_ADVICE}") from None
            self._logprobs = {}
            self._extra = {name: self._extra[name] for name in self._extra if name not in LOGPROBS}
            content = await self._post({**body, **self._extra})
        return await read_reply(content, self._key, self._send_reasoning)

    async def _post(self, body: dict[str, Any]) -> bytes:
        """Return the body of the endpoint's answer. Raises _LogprobsRefused, too."""
        try:
            # `chat.completions.create` sends the same request with the same retries, but checks the
            # type of each message: several milliseconds per turn, and 17 MB for the types.
            answer = await self._client.post("/chat/completions", body=body, cast_to=httpx.Response)
        # `from None`: a traceback would show the endpoint's text, which may contain the key.
        except self._package.APIStatusError as error:
            self._refuse_status(error, any(body.get(name) for name in LOGPROBS))
        except self._package.OpenAIError as error:
            raise self._unavailable(error) from None
        except ValueError:  # from extra_body or the model's name
            raise PolicyUnavailable("policy: the request cannot be written as JSON") from None
        return answer.content

    def _refuse_status(self, error: openai.APIStatusError, with_logprobs: bool) -> NoReturn:
        message = scrubbed(error.response.text[: 10 * QUOTED_CHARACTERS], self._key)
        status = error.status_code
        quoted = f"HTTP {status}: {message[:QUOTED_CHARACTERS]}"
        if status in CONTEXT_STATUSES and _CONTEXT_EXCEEDED.search(message):
            raise ContextExceeded(quoted) from None
        if with_logprobs and status in LOGPROBS_STATUSES and "logprob" in message.lower():
            raise _LogprobsRefused(quoted) from None
        if status in ADVICE:
            raise PolicyRefused(f"policy: {quoted}; {ADVICE[status]}") from None
        raise PolicyUnavailable(f"policy: {quoted}") from None

    def _unavailable(self, error: openai.OpenAIError) -> PolicyUnavailable:
        cause = error.__cause__
        if isinstance(cause, PolicyUnavailable):
            return cause
        why = str(cause) or type(cause).__name__ if cause is not None else str(error)
        return PolicyUnavailable(f"policy: {scrubbed(why, self._key)[:QUOTED_CHARACTERS]}")


class Door(httpx.AsyncBaseTransport):
    """HTTP transport to policies, the only way to a policy."""

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
        # A pool for each running request: in a shared pool, httpcore compares every connection with
        # every other one, which takes milliseconds per request with hundreds of connections.
        self._pools: list[httpx.AsyncHTTPTransport] = []
        self._free: list[httpx.AsyncHTTPTransport] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return the whole answer.

        Raises httpx.TransportError and PolicyUnavailable.
        """
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
        found = response.headers
        headers = {name: found[name] for name in RESPONSE_HEADERS if found.get(name)}
        return httpx.Response(response.status_code, headers=headers, content=body)

    async def aclose(self) -> None:
        """Close the connections."""
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
            # The Host header and the TLS server name still contain the host name.
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
    """Return the body. Raises httpx.ReadError if the body is too long or compressed."""
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

    # At debug level they log requests and answers, and the variable OPENAI_LOG sets that level.
    for name in ("openai", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    return openai
