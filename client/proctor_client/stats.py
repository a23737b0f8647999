"""What sandboxes did, in numbers: executions by how they came out, and how many sandboxes live.

An execution that ended by itself is a success with exit code 0, else a failure. One that did not, at
a limit or because the sandbox or the service was lost, is an error.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from proctor_client import wire
from proctor_client._process import PerProcess

Outcome: TypeAlias = Literal["success", "failure", "error"]


def outcome_of(result: wire.ExecResult | None) -> Outcome:
    """How an execution came out; None is one without a result."""
    if result is None or result.ending not in ("exited", "signalled"):
        return "error"
    return "success" if result.exit_code == 0 else "failure"


@dataclass(frozen=True, slots=True)
class ActiveCount:
    """How many sandboxes live, by status."""

    running: int
    pending: int

    @property
    def total(self) -> int:
        """Both."""
        return self.running + self.pending


@dataclass(frozen=True, slots=True)
class SessionStats:
    """What a session did since it began, or since its counts were last reset."""

    sandboxes_created: int = 0
    by_sandbox: Mapping[str, wire.ExecStats] = field(default_factory=dict)
    """By sandbox id: those that were created or used in that time."""

    @property
    def executions(self) -> int:
        """All of them."""
        return sum(each.total for each in self.by_sandbox.values())

    @property
    def exec_successes(self) -> int:
        """Those with exit code 0."""
        return sum(each.successes for each in self.by_sandbox.values())

    @property
    def exec_failures(self) -> int:
        """Those with another exit code, or a signal of their own."""
        return sum(each.failures for each in self.by_sandbox.values())

    @property
    def exec_errors(self) -> int:
        """Those that did not end by themselves."""
        return sum(each.errors for each in self.by_sandbox.values())

    @property
    def success_rate(self) -> float | None:
        """Successes per execution; None when there was none."""
        return self.exec_successes / self.executions if self.executions else None

    @property
    def error_rate(self) -> float | None:
        """Errors per execution; None when there was none."""
        return self.exec_errors / self.executions if self.executions else None


class Tally:
    """Counts executions by sandbox. May be used from several threads."""

    def __init__(self) -> None:
        self._lock = PerProcess(threading.Lock)
        self._created = 0
        self._by_sandbox: dict[str, Counter[Outcome]] = {}

    def created(self, sandbox_id: str) -> None:
        """A sandbox was made."""
        with self._lock.get():
            self._created += 1
            self._by_sandbox.setdefault(sandbox_id, Counter())

    def executed(self, sandbox_id: str, outcome: Outcome) -> None:
        """An execution ended, or was lost."""
        with self._lock.get():
            self._by_sandbox.setdefault(sandbox_id, Counter())[outcome] += 1

    def stats(self) -> SessionStats:
        """The counts so far."""
        with self._lock.get():
            return self._stats()

    def reset(self) -> SessionStats:
        """The counts so far, which begin at nothing again: none is lost or told twice."""
        with self._lock.get():
            stats = self._stats()
            self._created = 0
            self._by_sandbox = {}
            return stats

    def restore(self, stats: SessionStats) -> None:
        """What `reset` took is not told after all: it counts on."""
        with self._lock.get():
            self._created += stats.sandboxes_created
            for name, each in stats.by_sandbox.items():
                counts = self._by_sandbox.setdefault(name, Counter())
                counts.update(success=each.successes, failure=each.failures, error=each.errors)

    def _stats(self) -> SessionStats:
        by_sandbox = {name: exec_stats(counts) for name, counts in self._by_sandbox.items()}
        return SessionStats(self._created, by_sandbox)


def together(*parts: SessionStats) -> SessionStats:
    """What was done in several times, one after the other."""
    tally = Tally()
    for stats in parts:
        tally.restore(stats)
    return tally.stats()


def exec_stats(counts: Mapping[Outcome, int]) -> wire.ExecStats:
    """Counts in the wire's form."""
    by_outcome = {each: counts.get(each, 0) for each in ("success", "failure", "error")}
    return wire.ExecStats(
        total=sum(by_outcome.values()),
        successes=by_outcome["success"],
        failures=by_outcome["failure"],
        errors=by_outcome["error"],
    )
