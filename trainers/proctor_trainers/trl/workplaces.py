"""Sandboxes of rollouts, at a service with possible outages.

Rollouts use their sandboxes in turn. During an outage, the first failing rollout waits
up to the configured time. Later rollouts try once each, until a try succeeds. Otherwise a
training with hundreds of rollouts would wait hundreds of times.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from proctor_client import Client, ProctorError, Sandbox, SandboxOptions, environment_tags, wire
from proctor_client._runtime import PerProcess
from proctor_trainers.mistakes import is_mistake, refuses_option
from proctor_trainers.trl.steps import Training

log = logging.getLogger("proctor_trainers")

T = TypeVar("T")

OWN_ENDS = frozenset(
    {
        "it ended by itself",
        "its first process was killed",
        "it used up its CPU time",
        "it used up its time",
        "it used up its memory",
        "it wrote more than it may",
    }
)
"""Messages of the service for a sandbox ended by its own commands."""

SETTINGS = frozenset(
    {"tags", "ttl_seconds", "limits", "job", "environment", "timeout_seconds", "scoring"}
)
"""Fields that every rollout sends: those of the Order, a command's time limit, and the scoring."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """Settings of each sandbox."""

    tags: tuple[str, ...] = ()
    ttl_seconds: float = 3600.0
    limits: wire.Limits | Mapping[str, Any] | None = None
    job: str = "default"
    environment: str | None = None


class _Made:
    """Sandboxes created by a process, all with this tag."""

    def __init__(self) -> None:
        self.tag = f"trl-factory:{uuid.uuid4().hex[:12]}"
        self.is_any = False


class Workplaces:
    """Creates and stops sandboxes. The client `hasty` tries once, the client `patient` waits.

    Raises InvalidRequestError for settings that are invalid in every request.
    """

    def __init__(self, patient: Client, hasty: Client, order: Order) -> None:
        hasty.sandbox(**asdict(order))  # creates no sandbox, but validates the order
        self.training = Training()
        self._patient = patient
        self._hasty = hasty
        self._order = order
        self._made = PerProcess(_Made)  # a forked child does not stop its parent's sandboxes
        self._is_away = False

    def ask(self, call: Callable[[Client], T]) -> T:
        """Call the service. Raises the exceptions of `call`: a ProctorError after the wait."""
        try:
            answer = call(self._hasty if self._is_away else self._patient)
        except ProctorError as error:
            self._is_away = error.retryable
            raise
        self._is_away = False
        return answer

    def is_mistake(self, error: ProctorError, task: Mapping[str, Any]) -> bool:
        """Return True for a fatal error, which would affect every rollout and ends the training.

        An unavailable service is harmless, even at the first rollout: the other rollouts
        continue. A refused setting is fatal, unless the setting is from the rollout's own `task`.
        """
        has_answered = self._patient.has_answered or self._hasty.has_answered
        if is_mistake(error, has_answered) and not error.retryable:
            return True
        return refuses_option(error, SETTINGS - task.keys())

    def make(self, client: Client, task: Mapping[str, Any]) -> Sandbox:
        """Create a sandbox for a task, which may have `files`, `limits` and an `environment`.

        The task of a repository is made in the sandbox: its state, and where commands run.
        Raises ProctorError.
        """
        order = self._order
        options: SandboxOptions = {
            "tags": list(dict.fromkeys([*order.tags, *environment_tags(), self._made.get().tag])),
            "ttl_seconds": order.ttl_seconds,
            "limits": task.get("limits", order.limits),
            "files": task.get("files") or {},
            "job": order.job,
            "environment": task.get("environment", order.environment),
        }
        grader = task.get("grader")
        if isinstance(grader, Mapping) and grader.get("kind") == "repository":
            options["repository"] = grader
        self._made.get().is_any = True
        return client.sandbox(**options).start()

    def own_end(self, sandbox_id: str) -> str | None:
        """Return the end message of a sandbox if its own commands ended the sandbox; else None."""
        try:
            message = self.ask(lambda client: client.attach(sandbox_id).refresh().message)
        except ProctorError:
            return None
        return message if message in OWN_ENDS else None

    def stop(self, sandbox_id: str) -> None:
        """Stop a sandbox. If the stop fails, the ttl ends the sandbox."""
        try:
            self._hasty.attach(sandbox_id).stop(missing_ok=True)
        except ProctorError as error:
            log.info("sandbox %s was not stopped, its ttl will end it: %s", sandbox_id, error)

    def close(self) -> None:
        """Stop all remaining sandboxes of this process, and close the connections."""
        made = self._made.get()
        if made.is_any:
            made.is_any = False
            try:
                self._hasty.stop_sandboxes([made.tag])
            except ProctorError as error:
                log.info("sandboxes may be left, their ttl will end them: %s", error)
        self._patient.close()
        self._hasty.close()
