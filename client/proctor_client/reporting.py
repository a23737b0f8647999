"""Metrics for the active Weights & Biases run.

`report_to`, wherever it is an argument: None reports if this process has an active run; ["wandb"]
also warns without an active run; [] never reports. The caller starts and finishes the
run. An error of wandb is logged; the caller loses only the metrics. With None, this module does not
import wandb: only a process with `import wandb` has a run.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from proctor_client.stats import SessionStats

WANDB = "wandb"
PREFIX = "aviato/"
"""Prefix used by existing dashboards for the names below."""

log = logging.getLogger("proctor_client")


class Run(Protocol):
    """Subset of the wandb run interface used here."""

    @property
    def step(self) -> int:
        """Step of the history row that is currently open."""

    def log(self, data: dict[str, Any], *, step: int | None = None, commit: bool) -> None:
        """Write values to the open history row or to a later row; `commit` closes the row."""


class Reporter:
    """Writer of metrics under a prefix, to `run` or else to the active run.

    Raises ValueError for a name other than "wandb", and ModuleNotFoundError if the name is "wandb"
    and the package is not installed.
    """

    def __init__(
        self,
        report_to: Sequence[str] | None = None,
        prefix: str = PREFIX,
        run: Run | None = None,
    ) -> None:
        names = [report_to] if isinstance(report_to, str) else list(report_to or ())
        for name in names:
            if name != WANDB:
                raise ValueError(f"report_to: there is only {WANDB!r}, not {name!r}")
        if names:
            _import_wandb()
        self._is_asked = bool(names)
        self._is_off = report_to is not None and not names
        self._prefix = prefix
        self._own = run

    @property
    def is_asked(self) -> bool:
        """True if the caller requested reports by name."""
        return self._is_asked

    def is_open(self, step: int) -> bool:
        """Return True if the history of the active run still accepts values for `step`."""
        run = self._run()
        return run is not None and not _is_past(run, step)

    def open_row(self) -> int | None:
        """Return the step of the active run's open row; None without a run or a step."""
        run = self._run()
        try:
            return None if run is None else run.step
        except Exception:  # a run shared by several processes has no current step
            return None

    def _run(self) -> Run | None:
        return None if self._is_off else self._own or _active_run()

    def report(
        self, metrics: Mapping[str, float], step: int | None = None, *, commit: bool = False
    ) -> bool:
        """Write the metrics to history row `step`, or to the open row; return True if written.

        Without `commit` the row stays open, and the next writer continues it. A row of our own
        would take the step for which the trainer is about to log, and W&B drops values for a step
        before the current one. If our own metrics come too late for their step, they go to the open
        row, and the intended step is written beside them under the name `step`.
        """
        run = self._run()
        if run is None:
            if self._is_asked:
                log.warning("no metrics were written: this process has no active wandb run")
            return False
        named = {f"{self._prefix}{name}": value for name, value in metrics.items()}
        try:
            if step is not None and _is_past(run, step):
                named[f"{self._prefix}step"] = step
                step = None
            run.log(named, step=step, commit=commit)
        except Exception as error:  # any error of wandb: metrics must never end a training
            log.warning("no metrics were written: %s: %s", type(error).__name__, error)
            return False
        return True


def session_metrics(stats: SessionStats) -> dict[str, float]:
    """Return a session's counts under the names used by dashboards; empty if nothing happened.

    Rates and executions per sandbox are omitted if there was no execution. Executions per sandbox
    ignore sandboxes without executions.
    """
    if not stats.sandboxes_created and not stats.executions:
        return {}
    metrics: dict[str, float] = {
        "sandboxes_created": stats.sandboxes_created,
        "executions": stats.executions,
        "exec_successes": stats.exec_successes,
        "exec_failures": stats.exec_failures,
        "exec_errors": stats.exec_errors,
    }
    if stats.success_rate is not None and stats.error_rate is not None:
        metrics |= {"success_rate": stats.success_rate, "error_rate": stats.error_rate}
    used = [each.total for each in stats.by_sandbox.values() if each.total]
    if used:
        metrics["avg_execs_per_sandbox"] = sum(used) / len(used)
        metrics["min_execs_per_sandbox"] = min(used)
        metrics["max_execs_per_sandbox"] = max(used)
    return metrics


def _active_run() -> Run | None:
    run: Run | None = getattr(sys.modules.get(WANDB), "run", None)
    return run


def _is_past(run: Run, step: int) -> bool:
    try:
        return step < run.step
    except Exception:  # a run shared by several processes has no current step
        return True


def _import_wandb() -> None:
    # Without the package, Python can still import a folder `wandb` left behind by an earlier run.
    if not hasattr(importlib.import_module(WANDB), "init"):
        raise ModuleNotFoundError("report_to: wandb is not installed", name=WANDB)
