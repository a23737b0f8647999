"""Reports of `proctor eval` with the keys of the public harness of SWE-bench (its schema 2)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor_client import wire
from proctor_client.tasks.predictions import Prediction, Predictions
from proctor_client.tasks.task import Task
from proctor_service.cli.failures import Trouble

_OWN_REASONS = frozenset({"invalid_task", "unknown_environment"})
"""Errors of a task itself; the others are of the machine or the service."""


@dataclass(slots=True)
class PublicReport:
    """Results of predictions, by the ids of tasks. `total`: ids of all tasks of the data set."""

    total: Sequence[Task]
    predictions: Predictions
    results: dict[str, wire.Result] = field(default_factory=dict)

    def add(self, task: Task, result: wire.Result) -> None:
        """Add the result of a task's prediction."""
        self.results[task.id] = result

    def run(self) -> dict[str, Any]:
        """Return the report of the whole run."""
        by_id = {each.id: each for each in self.predictions.predictions}
        names = {task.id for task in self.total}
        judged = {name: each for name, each in self.results.items() if each.error is None}
        errors = {name: each for name, each in self.results.items() if each.error is not None}
        resolved = {name for name, each in judged.items() if each.verdict == "passed"}
        infra = {
            name
            for name, each in errors.items()
            if each.error is not None and each.error.reason not in _OWN_REASONS
        }
        ids = {
            "completed": set(judged),
            "incomplete": names - set(by_id),
            "empty_patch": {name for name in names & set(by_id) if by_id[name].is_empty},
            "submitted": set(by_id),
            "resolved": resolved,
            "unresolved": set(judged) - resolved,
            "infra_failure": infra,
            "ambiguous_failure": set[str](),
            "error": set(errors),
        }
        counted = [each for each in ids if each != "incomplete"]
        return {
            "total_instances": len(names),
            **{f"{each}_instances": len(ids[each]) for each in counted},
            **{f"{each}_ids": sorted(found) for each, found in ids.items()},
            "failure_reasons": {
                name: each.error.reason for name, each in sorted(errors.items()) if each.error
            },
            "schema_version": 2,
        }

    def instance(self, prediction: Prediction, task: Task | None) -> dict[str, Any] | None:
        """Return the report of a task; None for a prediction that was neither judged nor empty."""
        result = self.results.get(prediction.id)
        if result is None and not prediction.is_empty:
            return None
        error = None if result is None else result.error
        is_applied = (
            result is not None and result.error is None and result.verdict not in _UNAPPLIED
        )
        found: dict[str, Any] = {
            "patch_is_None": prediction.patch is None,
            "patch_exists": not prediction.is_empty,
            "patch_successfully_applied": is_applied,
            "resolved": result is not None and result.verdict == "passed",
            "infra_failure": error is not None and error.reason not in _OWN_REASONS,
        }
        if task is not None and result is not None and result.repository is not None:
            found["tests_status"] = _tests_status(task, result.repository)
        return {prediction.id: found}

    def write(self, folder: Path, run: str) -> Path:
        """Write both reports where the public harness has them, and return the run's. Raises Trouble."""
        model = self.predictions.model.replace("/", "__")
        logs = folder / "logs" / "run_evaluation" / run / model
        path = folder / f"{model}.{run}.json"
        tasks = {task.id: task for task in self.total}
        try:
            for prediction in self.predictions.predictions:
                report = self.instance(prediction, tasks.get(prediction.id))
                if report is not None and _is_name(prediction.id):
                    place = logs / prediction.id / "report.json"
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_text(json.dumps(report, indent=4) + "\n", encoding="utf-8")
            path.write_text(json.dumps(self.run(), indent=4) + "\n", encoding="utf-8")
        except OSError as error:
            raise Trouble(f"{error.filename}: {error.strerror}") from None
        return path


_UNAPPLIED = frozenset({"syntax_error", "no_code"})


def _is_name(text: str) -> bool:
    """Tell whether an id is a name of a folder, inside of its parent."""
    return "/" not in text and "\0" not in text and text not in ("", ".", "..") and len(text) < 200


def _tests_status(task: Task, result: wire.RepositoryResult) -> Mapping[str, Any]:
    """Return successes and failures by list; of more than ten failures only ten are known by name."""
    grader = task.grader or {}
    found = {}
    for name, key, tests in (
        ("FAIL_TO_PASS", "fail_to_pass", result.fail_to_pass),
        ("PASS_TO_PASS", "pass_to_pass", result.pass_to_pass),
    ):
        failed = set(tests.failed)
        listed = [str(each) for each in grader.get(key, ())]
        is_whole = len(failed) == tests.total - tests.passed
        success = [each for each in listed if each not in failed] if is_whole else []
        found[name] = {"success": success, "failure": sorted(failed)}
    nothing: dict[str, list[str]] = {"success": [], "failure": []}
    return {**found, "FAIL_TO_FAIL": dict(nothing), "PASS_TO_FAIL": dict(nothing)}
