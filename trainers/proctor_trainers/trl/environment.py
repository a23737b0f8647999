"""Environments for GRPOTrainer's `environment_factory`: each rollout has its own sandbox.

The policy calls tools, turn by turn; the reward judges the sandbox's final state. Faults of the
policy are reported to the policy: a bad path, an endless command, a sandbox ended by its own
commands. Other faults, such as a lost sandbox or an unavailable service, make the rollout's reward
None, never 0.0. TRL omits a signal at the end of the training. So a sandbox is stopped right after
grading; the sandbox of an interrupted rollout is stopped at the end of the process, or at the
latest by its ttl.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from proctor_client import (
    Client,
    ProctorError,
    Sandbox,
    SandboxFileError,
    SandboxStoppedError,
    SandboxTimeoutError,
    wire,
)
from proctor_client.tasks.forms import task_from_row
from proctor_client.tasks.task import BadTask, TaskOf, fields_of
from proctor_trainers.observations import observe
from proctor_trainers.trl.workplaces import Workplaces

log = logging.getLogger("proctor_trainers")

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Settings of every rollout: the judging, and the limits of its tools."""

    task: TaskOf = task_from_row
    scoring: wire.Scoring = "all"
    exec_timeout_seconds: float = 30.0
    observation_characters: int = 8192


class _Unjudgeable(Exception):
    """Raised for a fault outside of the policy."""


class _Ended(Exception):
    """Raised when the policy's own commands ended its sandbox; the message tells how."""


class Environment:
    """A sequence of rollouts, each with a sandbox created on first use.

    TRL treats every public method except `reset` and `get_reward` as a tool. So the factory adds
    the tools, from `toolbox`.
    """

    def __init__(self, workplaces: Workplaces, rules: Rules) -> None:
        self._workplaces = workplaces
        self._rules = rules
        self._task: Mapping[str, Any] = {}
        self._sandbox_id: str | None = None
        self._failure = "no rollout was begun"
        self._mistake: ProctorError | None = None
        self._is_submitted = False
        self._is_graded = False
        self._reward: float | None = None

    def reset(self, **row: Any) -> None:
        """Begin a rollout for a row of the data set, and stop the previous rollout's sandbox.

        Raises MissingColumns without a column for the judging.
        """
        self._stop()
        self._failure, self._mistake, self._is_submitted = "", None, False
        self._is_graded, self._reward = False, None
        try:
            self._task = fields_of(self._rules.task(row))
        except BadTask as error:
            self._fail(str(error))

    def get_reward(self) -> float | None:
        """Return the reward of the sandbox's final state; None for an unjudged state.

        Raises ProctorError for a fatal error, such as a wrong token or limits that the service
        refuses, which every other rollout would meet.
        """
        if not self._is_graded:
            self._is_graded = True
            try:
                self._reward = self._grade()
            except _Unjudgeable as error:
                if self._mistake is not None:
                    raise self._mistake from None
                self._fail(str(error))
                log.warning("a rollout has no reward: %s", error)
            self._stop()
        return self._reward

    def _grade(self) -> float | None:
        def graded(sandbox: Sandbox) -> wire.Result:
            task = self._task
            scoring = task.get("scoring", self._rules.scoring)
            step = self._workplaces.training.step
            code = {name: task[name] for name in wire.Code.model_fields if name in task}
            return sandbox.grade(task.get("grader", {}), scoring=scoring, step=step, **code)

        try:
            result = self._do(graded)
        except _Ended:  # its files are lost: a new sandbox has only the task's files
            result = self._do(graded)
        if result.error is not None:
            raise _Unjudgeable(f"{result.error.reason}: {result.error.message}")
        return result.reward

    def _run(self, command: list[str] | None = None, *, code: str | None = None) -> str:
        """Run a command and return its observation for the policy."""
        seconds = self._rules.exec_timeout_seconds
        try:
            result = self._do(
                lambda sandbox: sandbox.exec(command, code=code, timeout_seconds=seconds)
            )
        except SandboxTimeoutError as error:
            result = error.result
        if result.ending == "killed":
            self._fail("a command was ended from outside")
            raise _Unjudgeable(self._failure)
        return observe(result, seconds, self._rules.observation_characters)

    def _act(self, act: Callable[[], str], *texts: str) -> str:
        """Perform a tool call with these text arguments; return its observation for the policy."""
        if self._is_submitted:
            return "Error: the solution was submitted, the task is over"
        if not all(isinstance(text, str) for text in texts):
            return "Error: every argument must be a string"
        try:
            "".join(texts).encode()
            return act()
        except UnicodeEncodeError:
            return "Error: the text cannot be written as UTF-8"
        except SandboxFileError as error:
            return f"Error: {error.message}"
        except _Ended as error:
            return (
                f"Error: the sandbox ended: {error}\n"
                "What was in it is gone. The next call gets a new one."
            )
        except _Unjudgeable:
            return "Error: the sandbox cannot be used"

    def _do(self, use: Callable[[Sandbox], T]) -> T:
        """Use the sandbox.

        Raises SandboxFileError, SandboxTimeoutError and _Ended for faults of the policy, and
        _Unjudgeable for all other faults. After an _Unjudgeable, every later use raises
        _Unjudgeable too.
        """
        if self._failure:
            raise _Unjudgeable(self._failure)
        try:
            return self._workplaces.ask(lambda client: use(self._sandbox_of(client)))
        except (SandboxFileError, SandboxTimeoutError):
            raise
        except SandboxStoppedError as error:
            ended, self._sandbox_id = self._sandbox_id, None
            why = self._workplaces.own_end(ended) if ended is not None else None
            if why is not None:
                raise _Ended(why) from None
            self._fail(str(error))
        except ProctorError as error:
            # Kept for get_reward: TRL reports a tool's exception to the policy, and continues.
            is_mistake = self._workplaces.is_mistake(error, self._task)
            self._mistake = error if is_mistake else None
            self._fail(str(error))
        raise _Unjudgeable(self._failure)

    def _sandbox_of(self, client: Client) -> Sandbox:
        if self._sandbox_id is not None:
            return client.attach(self._sandbox_id)
        made = self._workplaces.make(client, self._task)
        self._sandbox_id = made.id
        return made

    def _fail(self, why: str) -> None:
        self._failure = why

    def _stop(self) -> None:
        sandbox_id, self._sandbox_id = self._sandbox_id, None
        if sandbox_id is not None:
            self._workplaces.stop(sandbox_id)
