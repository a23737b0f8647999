"""`AsyncClient`: the methods of `Client`, for event loops."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self, Unpack

import httpx

from proctor_client import wire
from proctor_client._calls import AnySubmission, Calls, RewardOptions
from proctor_client._clock import Clock
from proctor_client._connection import Address, ClientOptions, Token, policy_of
from proctor_client._connections import AsyncConnections, Connector
from proctor_client._driver import AsyncDriver
from proctor_client._handle import Observer
from proctor_client._rollout_calls import AnyPolicy, AnyTask, RolloutCalls, RolloutOptions
from proctor_client._sandbox_calls import SandboxCalls, SandboxOptions, sandbox_request
from proctor_client.sandbox import AsyncSandbox
from proctor_client.stats import ActiveCount
from proctor_client.streams import AsyncRewardStream, AsyncRolloutStream


class AsyncClient:
    """Client for event loops, with the arguments and methods of `Client`.

    Several loops may share a client, in turn or at once: each loop opens its own connections, on
    first use.
    """

    def __init__(
        self,
        url: str,
        *,
        token: Token = None,
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
        clock = clock or Clock()
        self._calls = Calls(policy, clock)
        self._sandbox_calls = SandboxCalls(policy, clock)
        self._rollout_calls = RolloutCalls(policy, clock)
        self._driver = AsyncDriver(AsyncConnections(Connector(self._address, transport)), clock)

    @classmethod
    def from_env(cls, **options: Unpack[ClientOptions]) -> Self:
        """Create a client for PROCTOR_URL (default http://127.0.0.1:8080) with PROCTOR_TOKEN."""
        address = Address.from_env()
        return cls(str(address.url), token=address.token, **options)

    async def reward(
        self, submissions: Iterable[AnySubmission], **options: Unpack[RewardOptions]
    ) -> wire.RewardResponse:
        """Async version of Client.reward."""
        return await self._driver.finish(self._calls.reward(submissions, options))

    def reward_stream(
        self, submissions: Iterable[AnySubmission], **options: Unpack[RewardOptions]
    ) -> AsyncRewardStream:
        """Async version of Client.reward_stream, for `async for`."""
        return AsyncRewardStream(
            self._driver.drive(self._calls.reward_stream(submissions, options))
        )

    async def rollout(
        self, tasks: Iterable[AnyTask], *, policy: AnyPolicy, **options: Unpack[RolloutOptions]
    ) -> wire.RolloutResponse:
        """Async version of Client.rollout. Cancelling the call ends the rollout."""
        return await self._driver.finish(self._rollout_calls.rollout(tasks, policy, options))

    def rollout_stream(
        self, tasks: Iterable[AnyTask], *, policy: AnyPolicy, **options: Unpack[RolloutOptions]
    ) -> AsyncRolloutStream:
        """Async version of Client.rollout_stream, for `async for`."""
        flow = self._rollout_calls.rollout_stream(tasks, policy, options)
        return AsyncRolloutStream(self._driver.drive(flow))

    def sandbox(
        self, *, observer: Observer | None = None, **options: Unpack[SandboxOptions]
    ) -> AsyncSandbox:
        """Async version of Client.sandbox, for `async with`."""
        order = sandbox_request(options)
        return AsyncSandbox(self._driver, self._sandbox_calls, order, observer=observer)

    def attach(self, sandbox_id: str) -> AsyncSandbox:
        """Async version of Client.attach."""
        return AsyncSandbox(self._driver, self._sandbox_calls, sandbox_id=sandbox_id)

    async def sandboxes(
        self, *, tags: Iterable[str] = (), status: str | Iterable[str] = ()
    ) -> list[wire.Sandbox]:
        """Async version of Client.sandboxes."""
        return await self._driver.finish(self._sandbox_calls.find(tags, status))

    async def count_active(self, *, tags: Iterable[str] = ()) -> ActiveCount:
        """Async version of Client.count_active."""
        return await self._driver.finish(self._sandbox_calls.count(tags))

    async def stop_sandboxes(self, tags: Iterable[str]) -> int:
        """Async version of Client.stop_sandboxes."""
        return await self._driver.finish(self._sandbox_calls.stop_tagged(tags))

    async def capacity(self) -> wire.Capacity:
        """Async version of Client.capacity."""
        return await self._driver.finish(self._calls.capacity())

    async def health(self) -> wire.Health:
        """Async version of Client.health."""
        return await self._driver.finish(self._calls.health())

    @property
    def has_answered(self) -> bool:
        """True if the service ever answered, as Client.has_answered."""
        return self._driver.has_answered

    async def aclose(self) -> None:
        """Close this loop's connections, and have other running loops close theirs."""
        await self._driver.aclose()

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
