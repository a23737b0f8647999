"""The call about rollouts, as a flow. It may have begun after anything but a refusal: no retry then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict

from pydantic import BaseModel

from proctor_client import wire
from proctor_client._answers import TrajectoryLines, parse_rollout_response
from proctor_client._calls import GRACE_SECONDS
from proctor_client._clock import Clock
from proctor_client._flow import Call, Flow, Policy, answer_flow, lines_flow
from proctor_client._requests import checked, encode, plain
from proctor_client.errors import InvalidRequestError

AnyTask: TypeAlias = wire.RolloutTask | Mapping[str, Any]
AnyPolicy: TypeAlias = wire.Policy | Mapping[str, Any]


class RolloutOptions(TypedDict, total=False):
    """The fields of wire.RolloutRequest beside the tasks and the policy, with that model's defaults."""

    agent: wire.Agent | Mapping[str, Any]
    """How the policy acts: {"kind": "tools", …} (the default) or {"kind": "refine", …}."""
    trajectories_per_task: int
    """1 by default."""
    limits: wire.Limits | Mapping[str, Any] | None
    """Of each sandbox; None is the server's."""
    scoring: wire.Scoring
    """`all` (the default): 1.0 when every test passes, else 0.0; `fraction`: passed / total."""
    extract: wire.Extract
    """How code is taken out of what the policy submits; `auto` by default."""
    tags: Iterable[str]
    """Carried to the sandboxes, the logs and the journal; none by default."""
    job: str
    """The training run, by which the service shares itself out; "default" by default."""
    priority: wire.Priority
    """`evaluation` comes before the tenant's `training`, which is the default."""
    deadline_seconds: float
    """After it, what is not done comes back with the error `deadline`; 3,600 by default."""


@dataclass(frozen=True)
class RolloutCalls:
    """What is needed to make the flows."""

    policy: Policy
    clock: Clock

    def rollout(
        self, tasks: Iterable[AnyTask], policy: AnyPolicy, options: RolloutOptions
    ) -> Flow[wire.RolloutResponse]:
        """POST /rollout for one answer. Raises InvalidRequestError at once."""
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
        """POST /rollout for a line each. Raises InvalidRequestError at once."""
        request = rollout_request(tasks, policy, options)
        return lines_flow(
            self._call(request, accept="application/x-ndjson"),
            TrajectoryLines(request).parse,
            lambda item: isinstance(item, wire.RolloutSummary),
            self.policy,
            self.clock,
        )

    def _call(self, request: wire.RolloutRequest, *, accept: str) -> Call:
        # Without a key: with one, the service would work on for a while after we went away.
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
    """The request on the wire's own model. Raises InvalidRequestError that names the field."""
    if isinstance(tasks, str | Mapping | BaseModel):
        raise InvalidRequestError("tasks: a list is wanted, of one task or more")
    fields = {**options, "tasks": [plain(each) for each in tasks], "policy": policy}
    return checked(wire.RolloutRequest, fields)
