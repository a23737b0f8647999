"""`environment_factory`: GRPOTrainer calls the factory once for each parallel rollout."""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from pydantic import SecretStr

from proctor_client import wire
from proctor_client.tasks.forms import task_from_row
from proctor_client.tasks.task import TaskOf
from proctor_trainers.addresses import client_for
from proctor_trainers.trl.environment import Environment, Rules
from proctor_trainers.trl.toolbox import Tool, environment_class
from proctor_trainers.trl.versions import TAG, require_masking
from proctor_trainers.trl.workplaces import Order, Workplaces

HASTY_CONNECT_SECONDS = 2.0


class EnvironmentFactory:
    """Factory of environments, which also stops their remaining sandboxes.

    The clean-up runs in `close`, at the end of a `with` block, or at the end of the process.
    """

    def __init__(
        self, name: str, tools: Sequence[Tool], workplaces: Workplaces, rules: Rules
    ) -> None:
        self._arguments = name, tuple(tools), workplaces, rules
        self._kind = environment_class(name, tools)
        self._workplaces = workplaces
        self._rules = rules
        atexit.register(self.close)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments

    def __call__(self) -> Environment:
        return self._kind(self._workplaces, self._rules)

    def callback(self) -> Any:
        """Return a callback for the trainer, which puts each reward's step into the service's journal.

        Needs transformers, which TRL brings.
        """
        return self._workplaces.training.callback()

    def close(self) -> None:
        """Stop the remaining sandboxes, and end the rollouts for good."""
        atexit.unregister(self.close)
        self._workplaces.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def environment_factory(
    url: str | None = None,
    *,
    token: str | SecretStr | None = None,
    retry_seconds: float = 60.0,
    tools: Sequence[Tool] = ("execute_code", "submit_solution"),
    name: str = "proctor",
    task: TaskOf = task_from_row,
    scoring: wire.Scoring = "all",
    limits: wire.Limits | Mapping[str, Any] | None = None,
    ttl_seconds: float = 3600.0,
    exec_timeout_seconds: float = 30.0,
    observation_characters: int = 8192,
    tags: Iterable[str] = (),
    job: str = "default",
    environment: str | None = None,
) -> EnvironmentFactory:
    """Return a factory for GRPOTrainer: each rollout gets a sandbox, and tools to use it.

    Pass the factory as `environment_factory`. `url`, `token`, `retry_seconds`, `name`, `task` and
    `scoring` are as for reward_function; `task` may also return `limits`, `environment`, and `files` for
    the new sandbox. `environment` is the service's environment of the other sandboxes.
    `tools` are the policy's tools, out of `execute_code`, `bash`, `read_file`,
    `write_file` and `submit_solution`. The reward judges the sandbox's final state: its
    `solution.py`, which submit_solution writes, or the files that the grader reads.

    A sandbox lives from the first tool call to the reward. `ttl_seconds` bounds its idle time,
    while other rollouts run and while the policy generates.

    Pass the factory's `callback()` to the trainer too, and the service's journal knows the step of
    the training run.

    Give the factory to a single trainer, without other reward functions: TRL adds up all rewards except
    None, so an unjudged rollout would count as 0.0. Raises MissingExtra for a TRL before 1.15.
    """
    require_masking()
    patient = client_for(url, token, retry_seconds)
    hasty = client_for(url, token, 0.0, connect_timeout_seconds=HASTY_CONNECT_SECONDS)
    order = Order(
        tags=(TAG, *tags),
        ttl_seconds=ttl_seconds,
        limits=limits,
        job=job,
        environment=environment,
    )
    rules = Rules(
        task=task,
        scoring=scoring,
        exec_timeout_seconds=exec_timeout_seconds,
        observation_characters=observation_characters,
    )
    workplaces = Workplaces(patient, hasty, order)
    return EnvironmentFactory(name, tools, workplaces, rules)
