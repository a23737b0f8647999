"""Calls about rewards, capacity and health, each as a flow for a client's driver."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypedDict, TypeVar

from pydantic import BaseModel

from proctor_client import wire
from proctor_client._answers import completed, is_back, parse_model, parse_reward_response
from proctor_client._flow import Call, Flow, Policy, answer_flow, stream_flow
from proctor_client._merging import RewardOrder
from proctor_client._requests import checked, encode, plain
from proctor_client._runtime import Clock
from proctor_client.errors import InvalidRequestError
from proctor_client.wire.rewards import default_deadline_seconds

LONGEST_LIMIT_SECONDS = 3600.0
"""Ceiling of `cpu_seconds` and of `wall_seconds` in a service."""
# The service ends a batch at its deadline; the grace covers the last results and the transfer.
GRACE_SECONDS = 30.0

M = TypeVar("M", bound=wire.Response)

AnySubmission: TypeAlias = wire.Submission | Mapping[str, Any] | str


class CodeOptions(TypedDict, total=False):
    """Fields of wire.Code, the code around a completion. An older service may lack a field that is set."""

    prelude: str | None
    """Source before each submission: imports, helpers, a recursion limit; default: none."""
    prompt_code: str | None
    """Code that a completion may go on with: a body, a whole function, or a whole file; default: none."""
    suffix_code: str | None
    """Code behind a completion that fills in the middle; default: none."""
    compiler: wire.Compiler | Mapping[str, Any] | None
    """Options of the compiler, each from the list of the service; default: none."""


class JobOptions(TypedDict, total=False):
    """Shared fields of wire.RewardRequest and wire.RolloutRequest."""

    scoring: wire.Scoring
    """`all` (the default): 1.0 when every test passes, else 0.0; `fraction`: passed / total."""
    negative_control: wire.NegativeControl
    """Second run of passed programs by other expected values: `off`, `signal` (default) or `verdict`."""
    tags: Iterable[str]
    """Labels for the sandboxes, the logs and the journal; default: none."""
    job: str
    """Name of the training run, used for fair sharing of the service; default: "default"."""
    step: int | None
    """Step of the training run, for the journal; default: none."""
    priority: wire.Priority
    """`evaluation` runs before the tenant's `training`, which is the default."""


class RewardOptions(CodeOptions, JobOptions, total=False):
    """Fields of wire.RewardRequest except the submissions, with the model's defaults."""

    grader: wire.Grader | Mapping[str, Any] | None
    """Grader of every submission without its own grader."""
    limits: wire.Limits | Mapping[str, Any] | None
    """Limits of every submission without its own limits; None selects the server's limits."""
    extract: wire.Extract
    """Method for extracting code from a completion; default: `auto`."""
    deadline_seconds: float
    """Submissions unjudged by then return with the error `deadline`; default: 600, for repositories by
    their limits."""
    cache: bool
    """True (the default) lets the service judge identical work once."""
    environment: wire.EnvironmentChoice | None
    """Environment of submissions that name none; None selects `default`."""
    prompt: str | Iterable[wire.Message | Mapping[str, Any]] | None
    """What the policy saw, for the journal; default: none."""


@dataclass(frozen=True)
class Calls:
    """Builder of the flows."""

    policy: Policy
    clock: Clock

    def reward(self, order: RewardOrder) -> Flow[wire.RewardResponse]:
        """Build the flow of POST /reward with one JSON answer."""
        count = len(order.request.submissions)
        return answer_flow(
            self._reward_call(order, accept="application/json"),
            lambda body: parse_reward_response(body, count),
            self.policy,
            self.clock,
            lambda response: sum(map(is_back, response.results)),
            completed,
        )

    def reward_stream(self, order: RewardOrder) -> Flow[wire.Result | wire.Summary]:
        """Build the flow of POST /reward with one line per result."""
        call = self._reward_call(order, accept="application/x-ndjson")
        return stream_flow(call, len(order.request.submissions), self.policy, self.clock)

    def save_tasks(self, tasks: Iterable[Mapping[str, Any] | wire.TaskFields]) -> Flow[list[str]]:
        """Build the flow of POST /tasks. Raises InvalidRequestError, which names the wrong field."""
        if isinstance(tasks, str | Mapping | BaseModel):
            raise InvalidRequestError("tasks: a list is wanted, of one task or more")
        request = checked(wire.TasksRequest, {"tasks": [plain(each) for each in tasks]})
        call = Call("POST", "/tasks", self.policy.timeout_seconds, content=encode(request))
        return answer_flow(call, _names_of_tasks, self.policy, self.clock)

    def capacity(self) -> Flow[wire.Capacity]:
        """Build the flow of GET /capacity."""
        return self._get("/capacity", wire.Capacity)

    def environments(self) -> Flow[wire.EnvironmentList]:
        """Build the flow of GET /environments."""
        return self._get("/environments", wire.EnvironmentList)

    def verifiers(self) -> Flow[wire.VerifierList]:
        """Build the flow of GET /verifiers."""
        return self._get("/verifiers", wire.VerifierList)

    def health(self) -> Flow[wire.Health]:
        """Build the flow of GET /healthz."""
        return self._get("/healthz", wire.Health)

    def _get(self, path: str, model: type[M]) -> Flow[M]:
        call = Call("GET", path, self.policy.timeout_seconds)
        return answer_flow(call, partial(parse_model, model), self.policy, self.clock)

    def _reward_call(self, order: RewardOrder, *, accept: str) -> Call:
        wait = max(self.policy.timeout_seconds, _deadline_seconds(order.request) + GRACE_SECONDS)
        key = str(uuid.uuid4())
        return Call("POST", "/reward", wait, content=order.content, accept=accept, key=key)


def _deadline_seconds(request: wire.RewardRequest) -> float:
    """Return the deadline that a service gives the request, or a later one: limits may be its own."""
    if request.deadline_seconds is not None:
        return request.deadline_seconds
    return default_deadline_seconds(
        sum(
            longest_seconds(each.limits or request.limits)
            for each in request.submissions
            if each.task is not None
            or isinstance(each.grader or request.grader, wire.RepositoryGrader)
        )
    )


def longest_seconds(limits: wire.Limits | None) -> float:
    """Return the CPU and wall time that tests have by these limits; the ceilings for unknown ones."""
    limits = limits or wire.Limits()
    cpu_seconds = limits.cpu_seconds or LONGEST_LIMIT_SECONDS
    return cpu_seconds + (limits.wall_seconds or LONGEST_LIMIT_SECONDS)


def _names_of_tasks(body: bytes) -> list[str]:
    return parse_model(wire.TasksResponse, body).tasks


def reward_order(submissions: Iterable[AnySubmission], options: RewardOptions) -> RewardOrder:
    """Build the request of these arguments. Raises InvalidRequestError, which names the wrong field."""
    if isinstance(submissions, str | Mapping | BaseModel):
        # These types are iterable too, and their parts would be judged as submissions.
        raise InvalidRequestError("submissions: a list is wanted, of one submission or more")
    listed = [
        {"completion": each} if isinstance(each, str) else plain(each) for each in submissions
    ]
    return RewardOrder.of(checked(wire.RewardRequest, {**options, "submissions": listed}))
