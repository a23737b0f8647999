"""POST /rollout: play trajectories of a policy, and return one JSON object or NDJSON lines.

A rejected request gets an error response for the whole request, before the first call of the
policy. After that the response is a 200, and a trajectory without a verdict has its own error.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from proctor_client.wire import (
    Policy,
    RolloutRequest,
    RolloutResponse,
    RolloutTask,
    ToolsAgent,
)
from proctor_service.errors import Failure, InvalidRequest, JudgeFailed
from proctor_service.features.rollouts.addresses import check_url
from proctor_service.features.rollouts.agent import Play
from proctor_service.features.rollouts.custom_tools import check_tools
from proctor_service.features.rollouts.policy import Connect
from proctor_service.features.rollouts.prompts import system_prompt
from proctor_service.http.body import parse_body, read_body
from proctor_service.http.json import encode, joined, member, without_surrogates
from proctor_service.http.openapi import answers, body_of
from proctor_service.http.responses import (
    NDJSON,
    AnswerFormat,
    Line,
    RequestTask,
    Work,
    task_response,
)
from proctor_service.judge.extract import Around, check_program_rule
from proctor_service.judge.submission import DefaultLimits, test_count
from proctor_service.outcomes import JsonObject, Trajectory, TrajectoryPlan, TrajectoryTask
from proctor_service.rewards.machine import (
    Machine,
    check_files,
    check_tags,
    refuse_compiler,
)
from proctor_service.rewards.results import error_body
from proctor_service.sandbox.interface import Limits
from proctor_service.scheduling.pacer import Pacer
from proctor_service.scheduling.queue import FairQueue, stopping

log = logging.getLogger(__name__)

MAX_ROLLOUTS = 256
"""Trajectories played at once; the rest wait. Most of the time each waits for its policy."""
MESSAGE_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id")


@dataclass(frozen=True, slots=True)
class Part:
    """One trajectory of a request: the fields to echo, and the plan to play."""

    task: RolloutTask
    index: int
    plan: TrajectoryPlan


class Planning:
    """Converter of one request into plans; `parts` plans the trajectories of one task."""

    def __init__(
        self, machine: Machine, request: RolloutRequest, tenant: str, deadline: float
    ) -> None:
        """Check the request. Raises InvalidRequest, naming the field."""
        self._machine = machine
        self._request = request
        self._tenant = tenant
        self._deadline = deadline
        self._environment = machine.environment(request.environment, "environment")
        self._limits(self._environment)
        _check_policy(request.policy, machine.settings.policy_hosts)
        if isinstance(request.agent, ToolsAgent):
            seconds, ceiling = request.agent.exec_timeout_seconds, machine.settings.max_wall_seconds
            if not seconds <= ceiling:
                where = "agent.exec_timeout_seconds"
                raise InvalidRequest(f"{where}: {seconds} is above this server's {ceiling}")
            check_tools(request.agent, machine.mcp_servers, "agent")
        check_program_rule(request.extract, "extract")
        check_tags(request.tags)

    def parts(self, number: int, wire_task: RolloutTask) -> list[Part]:
        """Return the trajectories of one task. Raises InvalidRequest, naming the field."""
        where = f"tasks.{number}"
        check_files(wire_task.files, f"{where}.files")
        grader = self._machine.resolved(wire_task.grader, f"{where}.grader")
        self._machine.check_grader(grader, f"{where}.grader")
        if wire_task.compiler is not None:
            refuse_compiler(f"{where}.compiler")
        environment = self._environment
        if wire_task.environment is not None:
            environment = self._machine.environment(wire_task.environment, f"{where}.environment")
        agent = self._request.agent
        keeps_files = isinstance(agent, ToolsAgent) and "submit_solution" not in agent.tools
        self._machine.check_place(grader, environment, f"{where}.grader", keeps_files=keeps_files)
        task = TrajectoryTask(
            id=wire_task.id,
            messages=self._messages(wire_task, where),
            grader=grader,
            files=wire_task.files,
            test_count=test_count(grader),
            around=Around.of(grader, wire_task),
            tree=self._machine.graders[grader.kind].tree,
        )
        if task.tree is not None and (task.around.prelude or task.around.continues):
            text = "no prelude, prompt_code or suffix_code belongs to a change"
            raise InvalidRequest(f"{where}: {text}")
        count = self._request.trajectories_per_task
        return [
            Part(wire_task, index, self._plan(wire_task, task, environment, index))
            for index in range(count)
        ]

    def _plan(
        self, wire_task: RolloutTask, task: TrajectoryTask, environment: str, index: int
    ) -> TrajectoryPlan:
        request = self._request
        seed = request.policy.seed
        return TrajectoryPlan(
            rollout_id=f"ro_{uuid.uuid4().hex}",
            task=task,
            agent=request.agent,
            limits=self._limits(environment, self._machine.graders[task.grader.kind].limits),
            environment=environment,
            scoring=request.scoring,
            negative_control=wire_task.negative_control or request.negative_control,
            extract=request.extract,
            tenant=self._tenant,
            job=request.job,
            deadline=self._deadline,
            tags=tuple(request.tags),
            priority=request.priority,
            step=request.step,
            seed=None if seed is None else seed + index,
            shell="bash" if "bash" in self._machine.languages(environment) else "sh",
        )

    def _limits(self, environment: str, defaults: DefaultLimits | None = None) -> Limits:
        """Return the limits of the sandboxes in an environment. Raises InvalidRequest."""
        return self._machine.limits(
            self._request.limits, "limits", environment=environment, defaults=defaults
        )

    def _messages(self, wire_task: RolloutTask, where: str) -> Sequence[JsonObject]:
        """Return the policy's first messages: the system prompt and the task, as chat messages.

        The built-in system prompt is for tasks without a system message of their own: many chat
        templates accept only a single system message.
        """
        if isinstance(wire_task.prompt, str):
            messages: list[JsonObject] = [{"role": "user", "content": wire_task.prompt}]
        else:
            messages = [_message(each.model_dump(exclude_unset=True)) for each in wire_task.prompt]
        if not messages:
            raise InvalidRequest(f"{where}.prompt: it holds no message")
        agent = self._request.agent
        system = system_prompt(agent, self._request.extract)
        if agent.system_prompt is None and messages[0]["role"] in ("system", "developer"):
            system = ""
        if system:
            messages.insert(0, {"role": "system", "content": system})
        found: list[JsonObject] = json.loads(
            without_surrogates(json.dumps(messages, ensure_ascii=False))
        )
        return found


def _message(message: dict[str, Any]) -> JsonObject:
    """Return a message with only the API's fields, without fields private to the trainer."""
    return {name: message[name] for name in MESSAGE_FIELDS if name in message}


def _check_policy(policy: Policy, hosts: Sequence[str]) -> None:
    check_url(policy.base_url, hosts, "policy.base_url")
    key = "" if policy.api_key is None else policy.api_key.get_secret_value()
    if not (key.isascii() and key.isprintable() and key == key.strip()):
        raise InvalidRequest("policy.api_key: it cannot be sent in a header")


def trajectory_line(part: Part, trajectory: Trajectory) -> Line:
    """Return one trajectory in its wire form."""
    failure = trajectory.failure
    names = {"task_id": part.task.id, "index": part.index}
    conversation = b"[%s]" % b",".join(trajectory.messages_and_choices)
    result = {
        "tools": trajectory.tools,
        "reward": trajectory.reward,
        "verdict": trajectory.verdict,
        "error": None if failure is None else error_body(failure),
        "metrics": trajectory.metrics,
        "metadata": part.task.metadata,
        "sandbox_id": trajectory.sandbox_id,
        "rollout_id": part.plan.rollout_id,
    }
    retryable = failure is not None and failure.retryable
    parts = encode(names), member("messages_and_choices", conversation), encode(result)
    return Line(joined(*parts), trajectory.reward, trajectory.verdict, retryable)


@dataclass(frozen=True, slots=True)
class RolloutContext:
    """Rollout context: the player of trajectories, the policy connection, and the queue."""

    play: Play
    connect: Connect
    turns: FairQueue


class RolloutHandler:
    """Handler of rollouts: a rollout is a job with a line for each trajectory.

    `running`: unfinished requests.
    """

    def __init__(
        self, machine: Machine, context: RolloutContext, running: set[RequestTask[Any]]
    ) -> None:
        self.running = running
        self._machine = machine
        self._context = context

    async def handle(self, tenant: str, body: bytes | bytearray, keep: bool) -> RequestTask[Line]:
        """Start the rollout of a request. `keep`: keep the text of each line taken by a reader.

        Raises Refusal: InvalidRequest, BatchTooLarge, Busy or Draining.
        """
        begun = time.monotonic()
        turns = self._context.turns
        if turns.draining:
            raise stopping()
        request = await parse_body(RolloutRequest, body)
        deadline = begun + request.deadline_seconds
        planning = Planning(self._machine, request, tenant, deadline)
        parts: list[Part] = []
        pacer = Pacer()
        for number, task in enumerate(request.tasks):
            parts += planning.parts(number, task)
            await pacer.pause()
        whose = (tenant, request.job)
        places = turns.reserve(len(parts), whose, start_by=(request.priority, deadline))
        return RequestTask(
            parts,
            self._connected(request.policy),
            _line,
            self.running,
            places=places,
            once_taken=None if keep else lambda line: replace(line, json=b""),
        )

    @asynccontextmanager
    async def _connected(self, policy: Policy) -> AsyncIterator[Work]:
        """Return a context with a function to play a trajectory of the policy."""
        context = self._context
        try:
            async with context.connect(policy) as ask:

                async def play(part: Part) -> Trajectory:
                    plan = part.plan
                    turn = context.turns.admit(plan.tenant, plan.job, plan.deadline, plan.priority)
                    async with turn:
                        return await context.play(plan, ask)

                yield play
        except Exception as error:
            log.error("a rollout failed", exc_info=error)
            raise JudgeFailed("a fault of the service; its log says how") from None


def _line(part: Part, outcome: Trajectory | BaseException) -> Line:
    plan = part.plan
    if isinstance(outcome, Failure):  # the queue never gave a slot, or the rollout was cancelled
        outcome = Trajectory(failure=outcome)
    elif isinstance(outcome, BaseException):
        log.error("a trajectory failed", exc_info=outcome, extra={"rollout_id": plan.rollout_id})
        message = f"a fault of the service; its log has it under {plan.rollout_id}"
        outcome = Trajectory(failure=JudgeFailed(message))
    line = trajectory_line(part, outcome)
    _log_end(plan, outcome, line)
    return line


def _log_end(plan: TrajectoryPlan, trajectory: Trajectory, line: Line) -> None:
    failure = trajectory.failure
    log.info(
        "a trajectory ended",
        extra={
            "rollout_id": plan.rollout_id,
            "task_id": plan.task.id,
            "tenant": plan.tenant,
            "job": plan.job,
            "tags": list(plan.tags),
            "turns": trajectory.metrics.get("turns", 0),
            "verdict": line.verdict,
            "error": None if failure is None else failure.reason,
            "reward": line.reward,
            "duration_seconds": trajectory.metrics.get("duration_seconds", 0.0),
            "sandbox_id": trajectory.sandbox_id,
        },
    )


def _docs() -> dict[str, Any]:
    """Return the OpenAPI documentation of POST /rollout."""
    found = answers(RolloutResponse, 401, 413, 422, 429, 500, 503)
    found[200]["content"][NDJSON] = {
        "schema": {"type": "string"},
        "example": "a trajectory a line, as they end, and last a line with the summary",
    }
    return {"responses": found, "openapi_extra": body_of(RolloutRequest)}


def rollout_routes(handler: RolloutHandler, max_body_mb: int) -> APIRouter:
    """Return the route POST /rollout."""
    routes = APIRouter()

    @routes.post("/rollout", response_model=RolloutResponse, **_docs())
    async def rollout(request: Request) -> Response:
        """Play trajectories of a policy, and return their rewards."""
        body = await read_body(request, max_body_mb)
        by_line = NDJSON in request.headers.get("accept", "")
        tenant: str = request.state.tenant
        job = await handler.handle(tenant, body, keep=not by_line)
        form = AnswerFormat("trajectories", ("passed",), by_line, at_once=1, headers_first=True)
        return task_response(job, form)

    return routes
