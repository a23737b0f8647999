"""`environment_factory`: what GRPOTrainer calls for each rollout that it plays at once."""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from pydantic import SecretStr

from proctor_client import wire
from proctor_trainers.addresses import client_for
from proctor_trainers.columns import TaskOf, task_from_columns
from proctor_trainers.trl.environment import Environment, Rules
from proctor_trainers.trl.toolbox import Tool, environment_class
from proctor_trainers.trl.versions import TAG, require_masking
from proctor_trainers.trl.workplaces import Order, Workplaces

HASTY_CONNECT_SECONDS = 2.0


class EnvironmentFactory:
    """Makes environments, and stops what they leave: by `close`, at the end of a `with` block, or
    when the process ends."""

    def __init__(self, kind: type[Environment], workplaces: Workplaces, rules: Rules) -> None:
        self._kind = kind
        self._workplaces = workplaces
        self._rules = rules
        atexit.register(self.close)

    def __call__(self) -> Environment:
        return self._kind(self._workplaces, self._rules)

    def close(self) -> None:
        """Stop the sandboxes that are left. No rollout can be played after that."""
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
    task: TaskOf = task_from_columns,
    scoring: wire.Scoring = "all",
    limits: wire.Limits | Mapping[str, Any] | None = None,
    ttl_seconds: float = 3600.0,
    exec_timeout_seconds: float = 30.0,
    observation_characters: int = 8192,
    tags: Iterable[str] = (),
    job: str = "default",
) -> EnvironmentFactory:
    """For GRPOTrainer's `environment_factory`: a sandbox for each rollout, and tools to use it.

    `url`, `token`, `retry_seconds`, `name`, `task` and `scoring` are as for reward_function; `task`
    may also give `files`, which are in the sandbox at the beginning, and `limits`. `tools` are those
    that the policy is given, out of `execute_code`, `bash`, `read_file`, `write_file` and
    `submit_solution`. The reward is what the sandbox's final state is worth: its `solution.py`,
    which submit_solution writes, or whatever the grader looks at.

    A sandbox lives from the first tool call to the reward. `ttl_seconds` is how long it may go
    unused meanwhile: while other rollouts use theirs, and the policy thinks.

    Give it to one trainer, without other reward functions: TRL adds up what is not None, and would
    take a rollout that could not be judged for 0.0. Raises MissingExtra for a TRL before 1.15.
    """
    require_masking()
    patient = client_for(url, token, retry_seconds)
    hasty = client_for(url, token, 0.0, connect_timeout_seconds=HASTY_CONNECT_SECONDS)
    order = Order(tags=(TAG, *tags), ttl_seconds=ttl_seconds, limits=limits, job=job)
    rules = Rules(
        task=task,
        scoring=scoring,
        exec_timeout_seconds=exec_timeout_seconds,
        observation_characters=observation_characters,
    )
    workplaces = Workplaces(patient, hasty, order)
    return EnvironmentFactory(environment_class(name, tools), workplaces, rules)
