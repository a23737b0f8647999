"""Metrics to the Weights & Biases run that is active, by itself, on demand or never.

`report_to`, wherever it is an argument: None reports when this process has an active run, ["wandb"]
also says so where there is none, [] never reports. A run is never begun or finished here, and what goes
wrong with one is logged and costs the caller nothing but the metrics. By itself it imports nothing:
a process without `import wandb` has no run.
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
"""Dashboards for the names below exist under it."""

log = logging.getLogger("proctor_client")


class Run(Protocol):
    """What is used of a wandb run."""

    @property
    def step(self) -> int:
        """The step of the history that is being written."""

    def log(self, data: dict[str, Any], *, step: int | None = None, commit: bool) -> None:
        """Writes to a row of the history, the one that is open or a later one; `commit` ends it."""


class Reporter:
    """Writes metrics under a prefix.

    Raises ValueError for another name than "wandb", and ModuleNotFoundError for that name when the
    package is not installed.
    """

    def __init__(self, report_to: Sequence[str] | None = None, prefix: str = PREFIX) -> None:
        names = [report_to] if isinstance(report_to, str) else list(report_to or ())
        for name in names:
            if name != WANDB:
                raise ValueError(f"report_to: there is only {WANDB!r}, not {name!r}")
        if names:
            _import_wandb()
        self._is_asked = bool(names)
        self._is_off = report_to is not None and not names
        self._prefix = prefix

    @property
    def is_asked(self) -> bool:
        """Whether it was asked for by name."""
        return self._is_asked

    def is_open(self, step: int) -> bool:
        """Whether the history of the active run still takes values for a step."""
        run = None if self._is_off else _active_run()
        return run is not None and not _is_past(run, step)

    def report(
        self, metrics: Mapping[str, float], step: int | None = None, *, commit: bool = False
    ) -> bool:
        """Whether the metrics were written: to `step` of the history, or to the row that is open.

        Without `commit` that row stays open, and whoever logs next goes on with it: a row of ours
        would take the step for which the trainer is about to log, and W&B drops what comes for a
        step that its history is past. Should that befall our own metrics, they go to the open row,
        with the step that was meant beside them under the name `step`.
        """
        run = None if self._is_off else _active_run()
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
        except Exception as error:  # theirs, whatever it is; no training is to end for it
            log.warning("no metrics were written: %s: %s", type(error).__name__, error)
            return False
        return True


def session_metrics(stats: SessionStats) -> dict[str, float]:
    """A session's counts under the names that dashboards know; empty when nothing was done.

    Rates and executions per sandbox are left out when there was no execution. A sandbox that was not
    used in that time does not count among the latter.
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
    except Exception:  # a run that several processes share has no step to write to
        return True


def _import_wandb() -> None:
    # Where it is not installed, a folder `wandb` that an earlier run left behind can be imported.
    if not hasattr(importlib.import_module(WANDB), "init"):
        raise ModuleNotFoundError("report_to: wandb is not installed", name=WANDB)
