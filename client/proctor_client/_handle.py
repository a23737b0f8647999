"""State of a sandbox handle, shared by both handle classes, without I/O.

A handle represents a sandbox. Its creation always uses the same Idempotency-Key, so that an
interrupted creation can be found again, and stopped. Leaving a `with` block stops the sandbox only
in the process that created the sandbox. Forked children and copies of the handle only use the
sandbox.
"""

from __future__ import annotations

import os
import uuid
from typing import Any

from proctor_client import wire
from proctor_client._flow import Flow
from proctor_client._runtime import PerProcess
from proctor_client._sandbox_calls import SandboxCalls, check_id, followed
from proctor_client.stats import Counts, Outcome, outcome_of


class Observer:
    """Callbacks for events of handles, possibly from several threads. This base does nothing."""

    def on_start(self, sandbox: Handle) -> None:
        """Called before the creation of the sandbox; an exception prevents the creation."""

    def on_created(self, sandbox: Handle) -> None:
        """Called when the sandbox runs."""

    def on_exec(self, sandbox: Handle, outcome: Outcome) -> None:
        """Called when an execution ended or was lost."""

    def on_end(self, sandbox: Handle) -> None:
        """Called when the sandbox is gone, or its creation failed."""


class Handle:
    """Local state of a sandbox. Without an `order`, the sandbox was created elsewhere."""

    def __init__(
        self,
        calls: SandboxCalls,
        order: wire.SandboxRequest | None = None,
        *,
        sandbox_id: str | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._calls = calls
        self._order = order
        self._key = PerProcess(_new_key)  # a forked child's start() gets its own sandbox
        self._id = None if sandbox_id is None else check_id(sandbox_id)
        self._state: wire.Sandbox | None = None
        self._maker_pid: int | None = None
        self._is_stopped = False
        self._counts = Counts()
        self._observer = observer or Observer()

    @property
    def id(self) -> str:
        """Id of the sandbox at the service. Raises RuntimeError before the start."""
        if self._id is None:
            raise RuntimeError("this sandbox was not started: use `with`, or start()")
        return self._id

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the sandbox. For a sandbox created elsewhere, refresh() loads the tags."""
        state = self._state or self._order
        return () if state is None else tuple(state.tags)

    @property
    def status(self) -> wire.SandboxStatus | str:
        """Last known status of the sandbox; refresh() asks the service."""
        if self._is_stopped:
            return "stopped"
        if self._state is not None:
            return self._state.status
        return "pending" if self._id is None else "running"

    @property
    def exec_stats(self) -> wire.ExecStats:
        """Counts of this handle's executions; refresh().exec_stats covers all handles."""
        return self._counts.stats().by_sandbox.get(self._id or "", wire.ExecStats())

    @property
    def execution_stats(self) -> wire.ExecStats:
        """The same as `exec_stats`, by the name in Aviato's client."""
        return self.exec_stats

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._id or 'not started'!r}, {self.status})"

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy, which uses the same sandbox and leaves the stop to the original."""
        return {**self.__dict__, "_maker_pid": None, "_observer": Observer()}

    @property
    def _is_ours(self) -> bool:
        """True if leaving the block must stop the sandbox: this handle and process created it."""
        return self._maker_pid == os.getpid()

    def _begins(self) -> bool:
        """Return True if the sandbox must be created now. Raises RuntimeError after a stop."""
        if self._is_stopped:
            raise RuntimeError("this sandbox was stopped: make another one")
        if self._id is None:
            self._observer.on_start(self)
        return self._id is None

    def _create(self, calls: SandboxCalls) -> Flow[wire.Sandbox]:
        assert self._order is not None, "one that was made elsewhere has its id"
        return calls.create(self._order, self._key.get())

    def _started(self, sandbox: wire.Sandbox) -> None:
        self._state = sandbox
        self._id = check_id(sandbox.id)
        self._maker_pid = os.getpid()
        self._observer.on_created(self)

    def _ended(self) -> None:
        self._is_stopped = True
        self._observer.on_end(self)

    def _exec(self, request: wire.ExecRequest) -> Flow[wire.ExecResult]:
        return followed(self._calls.exec(self.id, request, self._limits), request, self._note)

    def _stream(self, request: wire.ExecRequest) -> Flow[wire.ExecLine]:
        return followed(self._calls.stream(self.id, request, self._limits), request, self._note)

    @property
    def _limits(self) -> wire.Limits | None:
        return None if self._order is None else self._order.limits

    def _note(self, result: wire.ExecResult | None) -> None:
        outcome = outcome_of(result)
        self._counts.executed(self.id, outcome)
        self._observer.on_exec(self, outcome)


def _new_key() -> str:
    return str(uuid.uuid4())
