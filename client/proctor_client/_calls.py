"""The calls about rewards, and those around them, each as a flow that a client drives."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict

from pydantic import BaseModel

from proctor_client import wire
from proctor_client._answers import handed_back, parse_model, parse_reward_response
from proctor_client._clock import Clock
from proctor_client._flow import Call, Flow, Policy, answer_flow, stream_flow
from proctor_client._requests import checked, encode, plain
from proctor_client.errors import InvalidRequestError

# The service ends a batch at its deadline by itself; this is for its last words and the way back.
GRACE_SECONDS = 30.0

AnySubmission: TypeAlias = wire.Submission | Mapping[str, Any] | str


class RewardOptions(TypedDict, total=False):
    """The fields of wire.RewardRequest beside the submissions, with that model's defaults."""

    grader: wire.Grader | Mapping[str, Any] | None
    """For every submission that has none of its own."""
    limits: wire.Limits | Mapping[str, Any] | None
    """For every submission that has none of its own; None is the server's."""
    scoring: wire.Scoring
    """`all` (the default): 1.0 when every test passes, else 0.0; `fraction`: passed / total."""
    extract: wire.Extract
    """How code is taken out of a completion; `auto` by default."""
    tags: Iterable[str]
    """Carried to the sandboxes, the logs and the journal; none by default."""
    job: str
    """The training run, by which the service shares itself out; "default" by default."""
    priority: wire.Priority
    """`evaluation` comes before the tenant's `training`, which is the default."""
    deadline_seconds: float
    """After it, what is not judged comes back with the error `deadline`; 600 by default."""
    cache: bool
    """Whether identical work may be judged once; True by default."""


@dataclass(frozen=True)
class Calls:
    """What is needed to make the flows."""

    policy: Policy
    clock: Clock

    def reward(
        self, submissions: Iterable[AnySubmission], options: RewardOptions
    ) -> Flow[wire.RewardResponse]:
        """POST /reward for one answer. Raises InvalidRequestError at once."""
        request = reward_request(submissions, options)
        count = len(request.submissions)
        return answer_flow(
            self._reward_call(request, accept="application/json"),
            lambda body: parse_reward_response(body, count),
            self.policy,
            self.clock,
            lambda response: handed_back(response.results),
        )

    def reward_stream(
        self, submissions: Iterable[AnySubmission], options: RewardOptions
    ) -> Flow[wire.Result | wire.Summary]:
        """POST /reward for a line each. Raises InvalidRequestError at once."""
        request = reward_request(submissions, options)
        call = self._reward_call(request, accept="application/x-ndjson")
        return stream_flow(call, len(request.submissions), self.policy, self.clock)

    def capacity(self) -> Flow[wire.Capacity]:
        """GET /capacity."""
        call = Call("GET", "/capacity", self.policy.timeout_seconds)
        return answer_flow(
            call, lambda body: parse_model(wire.Capacity, body), self.policy, self.clock
        )

    def health(self) -> Flow[wire.Health]:
        """GET /healthz."""
        call = Call("GET", "/healthz", self.policy.timeout_seconds)
        return answer_flow(
            call, lambda body: parse_model(wire.Health, body), self.policy, self.clock
        )

    def _reward_call(self, request: wire.RewardRequest, *, accept: str) -> Call:
        wait = max(self.policy.timeout_seconds, request.deadline_seconds + GRACE_SECONDS)
        key = str(uuid.uuid4())
        return Call("POST", "/reward", wait, content=encode(request), accept=accept, key=key)


def reward_request(
    submissions: Iterable[AnySubmission], options: RewardOptions
) -> wire.RewardRequest:
    """The request on the wire's own model. Raises InvalidRequestError that names the field."""
    if isinstance(submissions, str | Mapping | BaseModel):
        # Each of these can be iterated over, into nonsense that would be judged.
        raise InvalidRequestError("submissions: a list is wanted, of one submission or more")
    listed = [
        {"completion": each} if isinstance(each, str) else plain(each) for each in submissions
    ]
    return checked(wire.RewardRequest, {**options, "submissions": listed})
