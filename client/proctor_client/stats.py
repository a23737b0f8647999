"""Counts of sandboxes and of their executions by outcome.

An execution with exit code 0 is a success, with another code a failure. An
execution ended by a limit, or lost with its sandbox or the service, is an error.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from proctor_client import wire
from proctor_client._runtime import PerProcess

Outcome: TypeAlias = Literal["success", "failure", "error"]


def outcome_of(result: wire.ExecResult | None) -> Outcome:
    """Return the outcome of an execution; None stands for a missing result."""
    if result is None or result.ending not in ("exited", "signalled"):
        return "error"
    return "success" if result.exit_code == 0 else "failure"


@dataclass(frozen=True, slots=True)
class ActiveCount:
    """Number of live sandboxes by status."""

    running: int
    pending: int

    @property
    def total(self) -> int:
        """Number of running and pending sandboxes."""
        return self.running + self.pending


@dataclass(frozen=True, slots=True)
class SessionStats:
    """Counts of a session since its begin, or since the last reset of the counts."""

    sandboxes_created: int = 0
    by_sandbox: Mapping[str, wire.ExecStats] = field(default_factory=dict)
    """Execution counts by sandbox id, for the sandboxes created or used in this period."""

    @property
    def executions(self) -> int:
        """Number of all executions."""
        return sum(each.total for each in self.by_sandbox.values())

    @property
    def exec_successes(self) -> int:
        """Number of executions with exit code 0."""
        return sum(each.successes for each in self.by_sandbox.values())

    @property
    def exec_failures(self) -> int:
        """Number of executions with another exit code, or ended by a signal of their own."""
        return sum(each.failures for each in self.by_sandbox.values())

    @property
    def exec_errors(self) -> int:
        """Number of executions ended from outside."""
        return sum(each.errors for each in self.by_sandbox.values())

    @property
    def success_rate(self) -> float | None:
        """Successes per execution; None without executions."""
        return self.exec_successes / self.executions if self.executions else None

    @property
    def error_rate(self) -> float | None:
        """Errors per execution; None without executions."""
        return self.exec_errors / self.executions if self.executions else None


class Counts:
    """Thread-safe counter of executions by sandbox."""

    def __init__(self) -> None:
        self._lock = PerProcess(threading.Lock)
        self._created = 0
        self._by_sandbox: dict[str, Counter[Outcome]] = {}

    def created(self, sandbox_id: str) -> None:
        """Count a created sandbox."""
        with self._lock.get():
            self._created += 1
            self._by_sandbox.setdefault(sandbox_id, Counter())

    def executed(self, sandbox_id: str, outcome: Outcome) -> None:
        """Count an ended or lost execution."""
        with self._lock.get():
            self._by_sandbox.setdefault(sandbox_id, Counter())[outcome] += 1

    def stats(self) -> SessionStats:
        """Return the counts so far."""
        with self._lock.get():
            return self._stats()

    def reset(self) -> SessionStats:
        """Return the counts so far and restart at zero, atomically."""
        with self._lock.get():
            stats = self._stats()
            self._created = 0
            self._by_sandbox = {}
            return stats

    def restore(self, stats: SessionStats) -> None:
        """Add counts taken by `reset` again, after a failed report."""
        with self._lock.get():
            self._created += stats.sandboxes_created
            for name, each in stats.by_sandbox.items():
                counts = self._by_sandbox.setdefault(name, Counter())
                counts.update(success=each.successes, failure=each.failures, error=each.errors)

    def _stats(self) -> SessionStats:
        by_sandbox = {name: exec_stats(counts) for name, counts in self._by_sandbox.items()}
        return SessionStats(self._created, by_sandbox)


def together(*parts: SessionStats) -> SessionStats:
    """Return the sum of the counts of several periods."""
    counts = Counts()
    for stats in parts:
        counts.restore(stats)
    return counts.stats()


def exec_stats(counts: Mapping[Outcome, int]) -> wire.ExecStats:
    """Return the counts as a wire.ExecStats."""
    by_outcome = {each: counts.get(each, 0) for each in ("success", "failure", "error")}
    return wire.ExecStats(
        total=sum(by_outcome.values()),
        successes=by_outcome["success"],
        failures=by_outcome["failure"],
        errors=by_outcome["error"],
    )
