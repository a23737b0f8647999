"""Client for event loops.

Flows decide about requests, retries and the meaning of answers; the client drives the flows. Every
method raises a `ProctorError` after its retries (see `errors`). If the service cannot judge an
item, the item's result has `error` set, and no exception is raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self, Unpack

import httpx

from proctor_client import wire
from proctor_client._async.driver import AsyncDriver
from proctor_client._async.rewards import AsyncRewards
from proctor_client._async.sandbox import AsyncSandbox
from proctor_client._async.streams import AsyncRewardStream, AsyncRolloutStream
from proctor_client._calls import AnySubmission, Calls, RewardOptions, reward_order
from proctor_client._connections import (
    Address,
    AsyncConnections,
    ClientOptions,
    Connector,
    Token,
    policy_of,
)
from proctor_client._handle import Observer
from proctor_client._journal_calls import EvaluationOptions, JournalCalls
from proctor_client._rollout_calls import AnyPolicy, AnyTask, RolloutCalls, RolloutOptions
from proctor_client._runtime import Clock
from proctor_client._sandbox_calls import SandboxCalls, SandboxOptions, sandbox_request
from proctor_client.stats import ActiveCount


class AsyncClient:
    """Client for event loops. Event loops, forked processes and copies may share a client.

    Each process and each event loop opens its own connections. A pickled client contains the token.

    `token` is sent as a bearer token. `timeout_seconds` bounds the wait for an answer; a reward
    call waits for the batch's `deadline_seconds` plus a grace time, if this is longer.
    `max_attempts` and `retry_budget_seconds` (the sum of the waits between attempts) bound the
    retries of one call. The defaults survive a restart of the service; `max_attempts=1` disables
    retries. `transport` and `clock` are for tests (`proctor_client.testing`). Raises ValueError for
    an invalid URL or token.
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
        self._journal_calls = JournalCalls(policy, clock)
        self._driver = AsyncDriver(AsyncConnections(Connector(self._address, transport)), clock)
        self._rewards = AsyncRewards(self._driver, self._calls)

    @classmethod
    def from_env(cls, **options: Unpack[ClientOptions]) -> Self:
        """Create a client for PROCTOR_URL (default http://127.0.0.1:8080) with PROCTOR_TOKEN."""
        address = Address.from_env()
        return cls(str(address.url), token=address.token, **options)

    async def reward(
        self, submissions: Iterable[AnySubmission], **options: Unpack[RewardOptions]
    ) -> wire.RewardResponse:
        """Judge a batch. The results are in the order of `submissions`.

        A submission is a wire.Submission, a dict of its fields, or the text of a completion.
        `options` are the fields of wire.RewardRequest, with its defaults: see RewardOptions.
        Small calls that wait at the same time, with the same options, travel in one request; each
        returns with its own results.
        """
        return await self._rewards.judge(reward_order(submissions, options))

    def reward_stream(
        self, submissions: Iterable[AnySubmission], **options: Unpack[RewardOptions]
    ) -> AsyncRewardStream:
        """Judge a batch; iterate over the results as they finish, in any order, each once.

        The arguments are those of `reward`. After a broken connection, the stream reconnects by
        itself. The request is sent at the first `next`; leaving early cancels the remaining work.
        """
        flow = self._calls.reward_stream(reward_order(submissions, options))
        return AsyncRewardStream(self._driver.drive(flow))

    async def rollout(
        self, tasks: Iterable[AnyTask], *, policy: AnyPolicy, **options: Unpack[RolloutOptions]
    ) -> wire.RolloutResponse:
        """Have the service run the agent. The trajectories are in the order of `tasks`.

        A task is a wire.RolloutTask or a dict of its fields; `policy` is a wire.Policy or a dict of
        its fields. `options` are the other fields of wire.RolloutRequest, with its defaults: see
        RolloutOptions. A rollout that may have begun is not retried. An exception says nothing
        about the policy. A failed trajectory has `error` set, and raises no exception.
        Cancelling the call ends the rollout.
        """
        return await self._driver.finish(self._rollout_calls.rollout(tasks, policy, options))

    def rollout_stream(
        self, tasks: Iterable[AnyTask], *, policy: AnyPolicy, **options: Unpack[RolloutOptions]
    ) -> AsyncRolloutStream:
        """Run a rollout; iterate over the trajectories as they finish, in any order, each once.

        The arguments are those of `rollout`. The request is sent at the first `next`; leaving early
        ends the remaining work.
        """
        flow = self._rollout_calls.rollout_stream(tasks, policy, options)
        return AsyncRolloutStream(self._driver.drive(flow))

    def sandbox(
        self, *, observer: Observer | None = None, **options: Unpack[SandboxOptions]
    ) -> AsyncSandbox:
        """Return a handle for a new stateful sandbox; `async with` or `start()` creates the sandbox.

        `options` are the fields of wire.SandboxRequest, with its defaults: see SandboxOptions.
        """
        order = sandbox_request(options)
        return AsyncSandbox(self._driver, self._sandbox_calls, order, observer=observer)

    def attach(self, sandbox_id: str) -> AsyncSandbox:
        """Return a handle for an existing sandbox, without a request. Only stop() ends it."""
        return AsyncSandbox(self._driver, self._sandbox_calls, sandbox_id=sandbox_id)

    async def sandboxes(
        self, *, tags: Iterable[str] = (), status: str | Iterable[str] = ()
    ) -> list[wire.Sandbox]:
        """List the sandboxes with all of `tags` and with a status in `status`."""
        return await self._driver.finish(self._sandbox_calls.find(tags, status))

    async def count_active(self, *, tags: Iterable[str] = ()) -> ActiveCount:
        """Count the running and pending sandboxes with all of `tags`."""
        return await self._driver.finish(self._sandbox_calls.count(tags))

    async def stop_sandboxes(self, tags: Iterable[str]) -> int:
        """Stop the sandboxes with all of `tags` (at least one tag); return their number."""
        return await self._driver.finish(self._sandbox_calls.stop_tagged(tags))

    async def evaluations(self, **options: Unpack[EvaluationOptions]) -> wire.EvaluationPage:
        """List recorded evaluations, the newest first; a page's `next` is the next one's `cursor`.

        `options` are the fields of wire.EvaluationQuery: see EvaluationOptions. These methods raise
        JournalOffError where the service runs without a journal.
        """
        return await self._driver.finish(self._journal_calls.evaluations(options))

    async def evaluation(self, evaluation_id: str) -> wire.EvaluationDetail:
        """Return a recorded evaluation with its texts. Raises NotFoundError for an unknown id."""
        return await self._driver.finish(self._journal_calls.evaluation(evaluation_id))

    async def replay(self, evaluation_id: str) -> wire.Replay:
        """Judge a recorded evaluation again, and compare. Raises NotReplayableError."""
        return await self._driver.finish(self._journal_calls.replay(evaluation_id))

    async def recorded_rollout(self, rollout_id: str) -> wire.RolloutRecord:
        """Return a recorded rollout with its conversation. Raises NotFoundError."""
        return await self._driver.finish(self._journal_calls.rollout(rollout_id))

    async def jobs(self) -> list[wire.JobSummary]:
        """List up to 200 recorded jobs, by newest evaluation."""
        return (await self._driver.finish(self._journal_calls.jobs())).jobs

    async def job(self, name: str, by: Literal["step", "time"] = "step") -> wire.JobSeries:
        """Return the series of a recorded job and its figures. Raises NotFoundError."""
        return await self._driver.finish(self._journal_calls.job(name, by))

    async def save_tasks(self, tasks: Iterable[Mapping[str, Any] | wire.TaskFields]) -> list[str]:
        """Save tasks by the hash of their content; return the names for `task` of submissions.

        So a large task travels once. A later NotFoundError means that it is gone: save it again.
        """
        return await self._driver.finish(self._calls.save_tasks(tasks))

    async def capacity(self) -> wire.Capacity:
        """Return the capacity of the service, from which a trainer can choose its batch size."""
        return await self._driver.finish(self._calls.capacity())

    async def environments(self) -> wire.EnvironmentList:
        """Return the environments available to submissions and sandboxes."""
        return await self._driver.finish(self._calls.environments())

    async def verifiers(self) -> wire.VerifierList:
        """Return the verifiers by name, with their parameters, for the grader `verifier`."""
        return await self._driver.finish(self._calls.verifiers())

    async def health(self) -> wire.Health:
        """Check the service's health. Waits out a restart; `max_attempts=1` disables retries."""
        return await self._driver.finish(self._calls.health())

    @property
    def has_answered(self) -> bool:
        """True if the service ever answered this client, or its original in the parent process."""
        return self._driver.has_answered

    async def aclose(self) -> None:
        """Close this loop's connections, and have other running loops close theirs.

        A closed client raises ClientClosedError for every call.
        """
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
        return f"{type(self).__name__}({self._address!r})"
