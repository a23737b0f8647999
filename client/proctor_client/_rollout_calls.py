"""Rollout calls as flows. A rollout is retried only if the request surely did not begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import BaseModel

from proctor_client import wire
from proctor_client._answers import TrajectoryLines, parse_rollout_response
from proctor_client._calls import GRACE_SECONDS, JobOptions
from proctor_client._flow import Call, Flow, Policy, answer_flow, lines_flow
from proctor_client._requests import checked, encode, plain
from proctor_client._runtime import Clock
from proctor_client.errors import InvalidRequestError

AnyTask: TypeAlias = wire.RolloutTask | Mapping[str, Any]
AnyPolicy: TypeAlias = wire.Policy | Mapping[str, Any]


class RolloutOptions(JobOptions, total=False):
    """Fields of wire.RolloutRequest except the tasks and the policy, with the model's defaults."""

    agent: wire.Agent | Mapping[str, Any]
    """Agent type and its settings: {"kind": "tools", …} (the default) or {"kind": "refine", …}."""
    trajectories_per_task: int
    """Default: 1."""
    limits: wire.Limits | Mapping[str, Any] | None
    """Limits of each sandbox; None selects the server's limits."""
    extract: wire.Extract
    """Method for extracting code from the policy's submissions; default: `auto`."""
    deadline_seconds: float
    """Trajectories unfinished by then return with the error `deadline`; default: 3,600."""
    environment: wire.EnvironmentChoice | None
    """Environment of the sandboxes; None selects `default`."""


@dataclass(frozen=True)
class RolloutCalls:
    """Builder of the rollout flows."""

    policy: Policy
    clock: Clock

    def rollout(
        self, tasks: Iterable[AnyTask], policy: AnyPolicy, options: RolloutOptions
    ) -> Flow[wire.RolloutResponse]:
        """Build the flow of POST /rollout with one JSON answer.

        Raises InvalidRequestError at once.
        """
        request = rollout_request(tasks, policy, options)
        return answer_flow(
            self._call(request, accept="application/json"),
            lambda body: parse_rollout_response(body, request),
            self.policy,
            self.clock,
        )

    def rollout_stream(
        self, tasks: Iterable[AnyTask], policy: AnyPolicy, options: RolloutOptions
    ) -> Flow[wire.Trajectory | wire.RolloutSummary]:
        """Build the flow of POST /rollout with one line per trajectory.

        Raises InvalidRequestError at once.
        """
        request = rollout_request(tasks, policy, options)
        return lines_flow(
            self._call(request, accept="application/x-ndjson"),
            TrajectoryLines(request).parse,
            lambda item: isinstance(item, wire.RolloutSummary),
            self.policy,
            self.clock,
        )

    def _call(self, request: wire.RolloutRequest, *, accept: str) -> Call:
        # No Idempotency-Key: with a key, the service works on for a while after a disconnect.
        key = request.policy.api_key
        return Call(
            "POST",
            "/rollout",
            max(self.policy.timeout_seconds, request.deadline_seconds + GRACE_SECONDS),
            content=encode(request),
            accept=accept,
            repeatable=False,
            secret="" if key is None else key.get_secret_value(),
        )


def rollout_request(
    tasks: Iterable[AnyTask], policy: AnyPolicy, options: RolloutOptions
) -> wire.RolloutRequest:
    """Build the wire.RolloutRequest. Raises InvalidRequestError, which names the wrong field."""
    if isinstance(tasks, str | Mapping | BaseModel):
        raise InvalidRequestError("tasks: a list is wanted, of one task or more")
    fields = {**options, "tasks": [plain(each) for each in tasks], "policy": policy}
    return checked(wire.RolloutRequest, fields)
