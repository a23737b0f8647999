"""The sandboxes of rollouts, at a service that may be away for a while.

Rollouts use their sandboxes one after the other. So when the service is away, the first to notice
waits for it as long as was said; those after it ask once each, until one gets an answer: a training
with hundreds of rollouts must not wait hundreds of times.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from proctor_client import Client, ProctorError, Sandbox, SandboxOptions, environment_tags, wire
from proctor_client._process import PerProcess
from proctor_trainers.mistakes import is_mistake

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
"""What the service says of a sandbox that its own commands brought to its end."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What each sandbox is to be."""

    tags: tuple[str, ...] = ()
    ttl_seconds: float = 3600.0
    limits: wire.Limits | Mapping[str, Any] | None = None
    job: str = "default"


class _Made:
    """What a process made: it all has this tag."""

    def __init__(self) -> None:
        self.tag = f"trl-factory:{uuid.uuid4().hex[:12]}"
        self.is_any = False


class Workplaces:
    """Makes and stops sandboxes. `hasty` is a client that tries once, `patient` one that waits.

    Raises InvalidRequestError for an order that no request can have.
    """

    def __init__(self, patient: Client, hasty: Client, order: Order) -> None:
        hasty.sandbox(**asdict(order))  # makes none, but would say what is wrong with it
        self._patient = patient
        self._hasty = hasty
        self._order = order
        self._made = PerProcess(_Made)  # a forked child stops none of its parent's
        self._is_away = False

    def ask(self, call: Callable[[Client], T]) -> T:
        """Asks the service. Raises what `call` raises, a ProctorError once it is no use to wait."""
        try:
            answer = call(self._hasty if self._is_away else self._patient)
        except ProctorError as error:
            self._is_away = error.retryable
            raise
        self._is_away = False
        return answer

    def is_mistake(self, error: ProctorError) -> bool:
        """Whether every other rollout would meet the same: it is to end the training.

        A service that may yet come is none, even at the first rollout: the others go on without it.
        """
        has_answered = self._patient.has_answered or self._hasty.has_answered
        return is_mistake(error, has_answered) and not error.retryable

    def make(self, client: Client, task: Mapping[str, Any]) -> Sandbox:
        """A sandbox for a task, which may have `files` and `limits`. Raises ProctorError."""
        order = self._order
        options: SandboxOptions = {
            "tags": list(dict.fromkeys([*order.tags, *environment_tags(), self._made.get().tag])),
            "ttl_seconds": order.ttl_seconds,
            "limits": task.get("limits", order.limits),
            "files": task.get("files") or {},
            "job": order.job,
        }
        self._made.get().is_any = True
        return client.sandbox(**options).start()

    def own_end(self, sandbox_id: str) -> str | None:
        """How a sandbox ended, if that was the doing of its own commands; else None."""
        try:
            message = self.ask(lambda client: client.attach(sandbox_id).refresh().message)
        except ProctorError:
            return None
        return message if message in OWN_ENDS else None

    def stop(self, sandbox_id: str) -> None:
        """Stops one. What cannot be stopped now is ended by its ttl."""
        try:
            self._hasty.attach(sandbox_id).stop(missing_ok=True)
        except ProctorError as error:
            log.info("sandbox %s was not stopped, its ttl will end it: %s", sandbox_id, error)

    def close(self) -> None:
        """Stops all that were made and are left, and closes the connections."""
        made = self._made.get()
        if made.is_any:
            made.is_any = False
            try:
                self._hasty.stop_sandboxes([made.tag])
            except ProctorError as error:
                log.info("sandboxes may be left, their ttl will end them: %s", error)
        self._patient.close()
        self._hasty.close()
