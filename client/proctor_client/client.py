"""`Client`, for threads. `AsyncClient`, for event loops, has the same methods.

What is sent, when it is tried again and what an answer means is in the flows, which both drive.
Every method raises a `ProctorError` (the tree is in `errors`), after its retries; an item that the
service could not judge is no exception but has `error` set in its result.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self, Unpack

import httpx

from proctor_client import wire
from proctor_client._calls import AnySubmission, Calls, RewardOptions
from proctor_client._clock import Clock
from proctor_client._connection import Address, ClientOptions, Token, policy_of
from proctor_client._connections import Connections, Connector
from proctor_client._driver import Driver
from proctor_client._handle import Observer
from proctor_client._rollout_calls import AnyPolicy, AnyTask, RolloutCalls, RolloutOptions
from proctor_client._sandbox_calls import SandboxCalls, SandboxOptions, sandbox_request
from proctor_client.sandbox import Sandbox
from proctor_client.stats import ActiveCount
from proctor_client.streams import RewardStream, RolloutStream


class Client:
    """A client for threads; one may be shared by many, and used in forked processes and copies.

    Each process makes connections of its own. Pickled, it holds the token.

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
        token: Token = None,
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
        clock = clock or Clock()
        self._calls = Calls(policy, clock)
        self._sandbox_calls = SandboxCalls(policy, clock)
        self._rollout_calls = RolloutCalls(policy, clock)
        self._driver = Driver(Connections(Connector(self._address, transport)), clock)

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
        return self._driver.finish(self._calls.reward(submissions, options))

    def reward_stream(
        self, submissions: Iterable[AnySubmission], **options: Unpack[RewardOptions]
    ) -> RewardStream:
        """Judge a batch; iterate over the results as they finish, in any order, each once.

        The arguments are those of `reward`. A connection that breaks is made anew, unseen. The
        request is sent at the first `next`; leaving early cancels the rest.
        """
        return RewardStream(self._driver.drive(self._calls.reward_stream(submissions, options)))

    def rollout(
        self, tasks: Iterable[AnyTask], *, policy: AnyPolicy, **options: Unpack[RolloutOptions]
    ) -> wire.RolloutResponse:
        """Have the service play the agent; the trajectories are in the order of `tasks`.

        A task is a wire.RolloutTask or a dict of its fields, `policy` a wire.Policy or such a dict.
        `options` are the other fields of wire.RolloutRequest, with its defaults: see
        RolloutOptions. Once it may have begun, it is not tried again: an exception then says nothing
        about the policy. A trajectory that failed is no exception but has `error` set.
        """
        return self._driver.finish(self._rollout_calls.rollout(tasks, policy, options))

    def rollout_stream(
        self, tasks: Iterable[AnyTask], *, policy: AnyPolicy, **options: Unpack[RolloutOptions]
    ) -> RolloutStream:
        """As rollout, but iterate over the trajectories as they finish, in any order, each once.

        The request is sent at the first `next`; leaving early ends the rest.
        """
        flow = self._rollout_calls.rollout_stream(tasks, policy, options)
        return RolloutStream(self._driver.drive(flow))

    def sandbox(
        self, *, observer: Observer | None = None, **options: Unpack[SandboxOptions]
    ) -> Sandbox:
        """A sandbox that keeps its state: a `with` block, or `start()`, makes it.

        `options` are the fields of wire.SandboxRequest, with its defaults: see SandboxOptions.
        """
        order = sandbox_request(options)
        return Sandbox(self._driver, self._sandbox_calls, order, observer=observer)

    def attach(self, sandbox_id: str) -> Sandbox:
        """A handle for a sandbox that was made elsewhere; nothing is asked. Only stop() ends it."""
        return Sandbox(self._driver, self._sandbox_calls, sandbox_id=sandbox_id)

    def sandboxes(
        self, *, tags: Iterable[str] = (), status: str | Iterable[str] = ()
    ) -> list[wire.Sandbox]:
        """The sandboxes that carry all of `tags` and are in `status`, one or several of them."""
        return self._driver.finish(self._sandbox_calls.find(tags, status))

    def count_active(self, *, tags: Iterable[str] = ()) -> ActiveCount:
        """How many sandboxes that carry all of `tags` run, or are about to."""
        return self._driver.finish(self._sandbox_calls.count(tags))

    def stop_sandboxes(self, tags: Iterable[str]) -> int:
        """Stop the sandboxes that carry all of `tags`, one at least; how many were stopped."""
        return self._driver.finish(self._sandbox_calls.stop_tagged(tags))

    def capacity(self) -> wire.Capacity:
        """How much room the service has: what a trainer sizes its batch by."""
        return self._driver.finish(self._calls.capacity())

    def health(self) -> wire.Health:
        """Whether the process lives. Waits out a restart; `max_attempts=1` makes it a probe."""
        return self._driver.finish(self._calls.health())

    @property
    def has_answered(self) -> bool:
        """Whether the service ever answered this client, or the one that a fork copied it from."""
        return self._driver.has_answered

    def close(self) -> None:
        """Close the connections. A closed client raises ClientClosedError for every call."""
        self._driver.close()

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
