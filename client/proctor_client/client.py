"""`Client` and `AsyncClient`: the same methods, for threads and for event loops.

Both are drivers. What is sent, when it is tried again and what an answer means is in the flows.
Every method raises a `ProctorError` (the tree is in `errors`), after its retries; an item that the
service could not judge is no exception but has `error` set in its result.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator, Iterable
from types import TracebackType
from typing import Self, TypeVar, Unpack

import httpx

from proctor_client import wire
from proctor_client._calls import AnySubmission, Calls, RewardOptions
from proctor_client._clock import Clock
from proctor_client._connection import Address, ClientOptions, limits, policy_of
from proctor_client._exchange import AsyncExchange, Exchange
from proctor_client._flow import Emit, Flow, Reply
from proctor_client.streams import AsyncRewardStream, RewardStream

T = TypeVar("T")


class Client:
    """A client for threads; one may be shared by many.

    `token` is sent as a bearer token. `timeout_seconds` bounds the wait for an answer; for rewards
    it is the batch's `deadline_seconds` and some grace, if that is longer. `max_attempts` and
    `retry_budget_seconds` (of waits between them) bound the retries of one call: the defaults
    outlive a restart of the service, and `max_attempts=1` never retries. `transport` and `clock`
    are for tests (`proctor_client.testing`). Raises ValueError for a URL or token that cannot be.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_seconds: float = 30.0,
        connect_timeout_seconds: float = 10.0,
        max_attempts: int = 8,
        retry_budget_seconds: float = 60.0,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._address = Address(url, token)
        policy = policy_of(
            self._address,
            timeout_seconds=timeout_seconds,
            connect_timeout_seconds=connect_timeout_seconds,
            max_attempts=max_attempts,
            retry_budget_seconds=retry_budget_seconds,
        )
        self._clock = clock or Clock()
        self._calls = Calls(policy, self._clock)
        self._http = httpx.Client(
            base_url=self._address.url,
            headers=self._address.headers(),
            limits=limits(),
            transport=transport,
        )

    @classmethod
    def from_env(cls, **options: Unpack[ClientOptions]) -> Self:
        """A client for PROCTOR_URL (default http://127.0.0.1:8080) with PROCTOR_TOKEN."""
        address = Address.from_env()
        return cls(str(address.url), token=address.token, **options)

    def reward(
        self, submissions: Iterable[AnySubmission], **options: Unpack[RewardOptions]
    ) -> wire.RewardResponse:
        """Judge a batch; the results are in the order of `submissions`.

        A submission is a wire.Submission, a dict of its fields, or a completion's text. `options`
        are the fields of wire.RewardRequest, with its defaults: see RewardOptions.
        """
        return self._finish(self._calls.reward(submissions, options))

    def reward_stream(
        self, submissions: Iterable[AnySubmission], **options: Unpack[RewardOptions]
    ) -> RewardStream:
        """Judge a batch; iterate over the results as they finish, in any order, each once.

        The arguments are those of `reward`. A connection that breaks is made anew, unseen. The
        request is sent at the first `next`; leaving early cancels the rest.
        """
        return RewardStream(self._drive(self._calls.reward_stream(submissions, options)))

    def capacity(self) -> wire.Capacity:
        """How much room the service has: what a trainer sizes its batch by."""
        return self._finish(self._calls.capacity())

    def health(self) -> wire.Health:
        """Whether the process lives. Waits out a restart; `max_attempts=1` makes it a probe."""
        return self._finish(self._calls.health())

    def close(self) -> None:
        """Close the connections. A closed client can't be used again."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._address!r})"

    def _finish(self, flow: Flow[T]) -> T:
        [item] = self._drive(flow)
        return item

    def _drive(self, flow: Flow[T]) -> Generator[T, None, None]:
        exchange = Exchange(self._http, self._clock)
        reply: Reply = None
        try:
            while True:
                step = flow.send(reply)
                if isinstance(step, Emit):
                    yield step.item
                    reply = None
                else:
                    reply = exchange.perform(step)
        except StopIteration:
            return
        finally:
            exchange.close()


class AsyncClient:
    """A client for event loops, with the arguments and methods of `Client`.

    One may be used from several loops, one after the other or at once: each loop gets connections
    of its own, made when it first needs them.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_seconds: float = 30.0,
        connect_timeout_seconds: float = 10.0,
        max_attempts: int = 8,
        retry_budget_seconds: float = 60.0,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._address = Address(url, token)
        policy = policy_of(
            self._address,
            timeout_seconds=timeout_seconds,
            connect_timeout_seconds=connect_timeout_seconds,
            max_attempts=max_attempts,
            retry_budget_seconds=retry_budget_seconds,
        )
        self._clock = clock or Clock()
        self._calls = Calls(policy, self._clock)
        self._transport = transport
        self._lock = threading.Lock()
        self._http_by_loop: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}
        self._is_closed = False

    @classmethod
    def from_env(cls, **options: Unpack[ClientOptions]) -> Self:
        """As Client.from_env."""
        address = Address.from_env()
        return cls(str(address.url), token=address.token, **options)

    async def reward(
        self, submissions: Iterable[AnySubmission], **options: Unpack[RewardOptions]
    ) -> wire.RewardResponse:
        """As Client.reward."""
        return await self._finish(self._calls.reward(submissions, options))

    def reward_stream(
        self, submissions: Iterable[AnySubmission], **options: Unpack[RewardOptions]
    ) -> AsyncRewardStream:
        """As Client.reward_stream, for `async for`."""
        return AsyncRewardStream(self._drive(self._calls.reward_stream(submissions, options)))

    async def capacity(self) -> wire.Capacity:
        """As Client.capacity."""
        return await self._finish(self._calls.capacity())

    async def health(self) -> wire.Health:
        """As Client.health."""
        return await self._finish(self._calls.health())

    async def aclose(self) -> None:
        """Close this loop's connections, and have other loops that still run close theirs."""
        with self._lock:
            self._is_closed = True
            clients, self._http_by_loop = self._http_by_loop, {}
        for loop, http in clients.items():
            if loop is asyncio.get_running_loop():
                await http.aclose()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(http.aclose(), loop)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"AsyncClient({self._address!r})"

    def _http_of_this_loop(self) -> httpx.AsyncClient:
        """Connections belong to the loop that made them; in another one they fail or hang."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("this AsyncClient is closed")
            for gone in [each for each in self._http_by_loop if each.is_closed()]:
                del self._http_by_loop[gone]
            if loop not in self._http_by_loop:
                self._http_by_loop[loop] = httpx.AsyncClient(
                    base_url=self._address.url,
                    headers=self._address.headers(),
                    limits=limits(),
                    transport=self._transport,
                )
            return self._http_by_loop[loop]

    async def _finish(self, flow: Flow[T]) -> T:
        [item] = [each async for each in self._drive(flow)]
        return item

    async def _drive(self, flow: Flow[T]) -> AsyncGenerator[T, None]:
        exchange = AsyncExchange(self._http_of_this_loop(), self._clock)
        reply: Reply = None
        try:
            while True:
                step = flow.send(reply)
                if isinstance(step, Emit):
                    yield step.item
                    reply = None
                else:
                    reply = await exchange.perform(step)
        except StopIteration:
            return
        finally:
            await exchange.aclose()
