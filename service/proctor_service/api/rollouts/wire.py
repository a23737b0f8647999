"""Conversion of rollouts between wire and domain, in both directions. Pure, no I/O.

As in `items.py`: defaults are filled in, ceilings are enforced, and an error names the field.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proctor_client.wire import Policy, PytestGrader, RolloutRequest, RolloutTask, ToolsAgent
from proctor_service.api.responses import Line, encode
from proctor_service.api.rewards.items import (
    Machine,
    check_files,
    check_tags,
    error_body,
    test_count,
)
from proctor_service.errors import InvalidRequest
from proctor_service.rollout.addresses import check_url
from proctor_service.rollout.prompts import system_prompt
from proctor_service.rollout.reply import clean
from proctor_service.rollout.trajectory import JsonObject, Plan, Task, Trajectory
from proctor_service.sandbox.interface import Limits

MESSAGE_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id")


@dataclass(frozen=True, slots=True)
class Part:
    """One trajectory of a request: the fields to echo, and the plan to play."""

    task: RolloutTask
    index: int
    plan: Plan


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
        self._limits: Limits = machine.limits(request.limits, "limits")
        _check_policy(request.policy, machine.settings.policy_hosts)
        if isinstance(request.agent, ToolsAgent):
            asked, ceiling = request.agent.exec_timeout_seconds, machine.settings.max_wall_seconds
            if not asked <= ceiling:
                where = "agent.exec_timeout_seconds"
                raise InvalidRequest(f"{where}: {asked} is above this server's {ceiling}")
        check_tags(request.tags)

    def parts(self, number: int, asked: RolloutTask) -> list[Part]:
        """Return the trajectories of one task. Raises InvalidRequest, naming the field."""
        where = f"tasks.{number}"
        check_files(asked.files, f"{where}.files")
        if isinstance(asked.grader, PytestGrader):
            check_files(asked.grader.files, f"{where}.grader.files")
        task = Task(
            id=asked.id,
            messages=self._messages(asked, where),
            grader=asked.grader,
            files=asked.files,
            test_count=test_count(asked.grader),
        )
        count = self._request.trajectories_per_task
        return [Part(asked, index, self._plan(task)) for index in range(count)]

    def _plan(self, task: Task) -> Plan:
        request = self._request
        return Plan(
            rollout_id=f"ro_{uuid.uuid4().hex}",
            task=task,
            agent=request.agent,
            limits=self._limits,
            scoring=request.scoring,
            extract=request.extract,
            tenant=self._tenant,
            job=request.job,
            deadline=self._deadline,
            tags=tuple(request.tags),
            priority=request.priority,
            shell="bash" if "bash" in self._machine.backend.traits.languages else "sh",
        )

    def _messages(self, asked: RolloutTask, where: str) -> Sequence[JsonObject]:
        """Return the policy's first messages: the system prompt and the task, as chat messages.

        A task with its own system message gets no built-in system prompt: many chat templates
        accept only a single system message.
        """
        if isinstance(asked.prompt, str):
            given: list[JsonObject] = [{"role": "user", "content": asked.prompt}]
        else:
            given = [_message(each.model_dump(exclude_unset=True)) for each in asked.prompt]
        if not given:
            raise InvalidRequest(f"{where}.prompt: it holds no message")
        agent = self._request.agent
        system = system_prompt(agent, self._request.extract)
        if agent.system_prompt is None and given[0]["role"] in ("system", "developer"):
            system = ""
        if system:
            given.insert(0, {"role": "system", "content": system})
        found: list[JsonObject] = json.loads(clean(json.dumps(given, ensure_ascii=False)))
        return found


def _message(given: dict[str, Any]) -> JsonObject:
    """Return a message with only the API's fields, without fields private to the trainer."""
    return {name: given[name] for name in MESSAGE_FIELDS if name in given}


def _check_policy(policy: Policy, hosts: Sequence[str]) -> None:
    check_url(policy.base_url, hosts, "policy.base_url")
    key = "" if policy.api_key is None else policy.api_key.get_secret_value()
    if not (key.isascii() and key.isprintable() and key == key.strip()):
        raise InvalidRequest("policy.api_key: it cannot be sent in a header")


def trajectory_line(part: Part, trajectory: Trajectory) -> Line:
    """Return one trajectory in its wire form."""
    failure = trajectory.failure
    body = {
        "task_id": part.task.id,
        "index": part.index,
        "messages_and_choices": trajectory.messages_and_choices,
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
    return Line(encode(body), trajectory.reward, trajectory.verdict, retryable)
