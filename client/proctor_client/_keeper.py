"""Shared state of both session classes: default options, execution counts, live sandboxes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar, cast

from proctor_client import wire
from proctor_client._handle import Handle, Observer
from proctor_client._requests import strings
from proctor_client._runtime import PerProcess
from proctor_client._sandbox_calls import SandboxOptions
from proctor_client.reporting import Reporter, session_metrics
from proctor_client.stats import Counts, Outcome, SessionStats, together

H = TypeVar("H", bound=Handle)


class Keeper(Observer, Generic[H]):
    """Part of a session without I/O."""

    def __init__(self, tags: Iterable[str], reporter: Reporter, **defaults: object) -> None:
        self._tags = strings("tags", tags)
        self._reporter = reporter
        self._defaults = {name: value for name, value in defaults.items() if value is not None}
        self._counts = Counts()
        self._lock = PerProcess(threading.Lock)
        self._live: dict[H, None] = {}
        self._is_closed = False
        self._has_reported_end = False
        self._last_report: tuple[int | None, SessionStats] = None, SessionStats()

    @property
    def stats(self) -> SessionStats:
        """Counts since the session began, or since the last reset."""
        return self._counts.stats()

    @property
    def execution_stats(self) -> Mapping[str, wire.ExecStats]:
        """Execution counts of each sandbox for the same period, by sandbox id."""
        return self._counts.stats().by_sandbox

    def reset_stats(self) -> SessionStats:
        """Return the counts so far, and reset them to zero."""
        return self._counts.reset()

    def log_metrics(self, step: int | None = None, *, reset: bool = True) -> bool:
        """Report the counts to wandb at training step `step`; return True if they were reported.

                Without `step`, the counts get a history row of their own. With `reset`, the counts restart
                at zero after a report. Without a report, because all counts are zero or a run is
        missing, they continue.
        """
        return self._report(step, reset=reset, commit=step is None)

    def on_start(self, sandbox: Handle) -> None:
        """Add a sandbox to the sandboxes to stop. Raises RuntimeError after the session's end."""
        with self._lock.get():
            self._check_open()
            self._live[cast(H, sandbox)] = None

    def on_created(self, sandbox: Handle) -> None:
        """Count the new sandbox."""
        self._counts.created(sandbox.id)

    def on_exec(self, sandbox: Handle, outcome: Outcome) -> None:
        """Count the execution by its outcome."""
        self._counts.executed(sandbox.id, outcome)

    def on_end(self, sandbox: Handle) -> None:
        """Remove the sandbox from the sandboxes to stop."""
        with self._lock.get():
            self._live.pop(cast(H, sandbox), None)

    def _options(self, options: SandboxOptions) -> SandboxOptions:
        own = strings("tags", options.get("tags", ()))
        tags = list(dict.fromkeys([*self._tags, *own]))
        return cast(SandboxOptions, {**self._defaults, **options, "tags": tags})

    def _end(self) -> list[H]:
        """Close the session to new sandboxes, and return the sandboxes to stop."""
        with self._lock.get():
            self._is_closed = True
            return list(self._live)

    def _report(self, step: int | None, *, reset: bool, commit: bool) -> bool:
        stats = self._counts.reset() if reset else self._counts.stats()
        if not session_metrics(stats):
            return False
        step, combined = self._beside_the_last(step, stats)
        is_reported = self._reporter.report(session_metrics(combined), step, commit=commit)
        if reset and is_reported:
            self._last_report = step, combined
        elif reset:
            self._counts.restore(stats)
        return is_reported

    def _report_end(self) -> None:
        """Report the counts not yet reported, once. The counts remain readable afterwards."""
        if not self._has_reported_end:
            self._has_reported_end = True
            self._report(None, reset=False, commit=False)

    def _beside_the_last(
        self, step: int | None, stats: SessionStats
    ) -> tuple[int | None, SessionStats]:
        """Return the step and the counts to report.

        As long as W&B accepts values for the last reported step, the counts include the last
        report, because new values replace the earlier values of the same step.
        """
        last_step, last = self._last_report
        if last_step is None or step not in (None, last_step):
            return step, stats
        if not self._reporter.is_open(last_step):
            return step, stats
        return last_step, together(last, stats)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("this session is closed")
