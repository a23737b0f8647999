"""Wrong submissions that attack the levels `calls` and `values`; right ones for the same tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness import Service, running_service
from judging import ask

from level_attacks.control_flow import CONTROL_FLOW
from level_attacks.decoys import DECOYS
from level_attacks.in_place import IN_PLACE
from level_attacks.leaks import LEAKS
from level_attacks.task import Task
from proctor_service.settings import Settings

TASKS = [
    replace(task, name=f"{group}_{task.name}")
    for group, tasks in (
        ("in_place", IN_PLACE),
        ("decoys", DECOYS),
        ("control_flow", CONTROL_FLOW),
        ("leaks", LEAKS),
    )
    for task in tasks
]
RIGHT = [(f"{task.name}/right", task, task.right) for task in TASKS]
WRONG = [(f"{task.name}/{name}", task, text) for task in TASKS for name, text in task.wrong.items()]
Results = dict[str, dict[str, Any]]
_BATCH = 48


def _identify(value: object) -> str:
    return value if isinstance(value, str) else ""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A real service; the interpreter of the tests has numpy, which a system's own may lack."""
    with running_service(Settings(sandbox_python=Path(sys.executable)), judge=None) as running:
        yield running


@pytest.fixture(scope="module")
def results(service: Service) -> Results:
    """The result of every submission, by its name."""
    found: Results = {}
    every = [*RIGHT, *WRONG]
    for start in range(0, len(every), _BATCH):
        part = every[start : start + _BATCH]
        answers = ask(
            service, *({"completion": text, "grader": task.grader()} for _, task, text in part)
        )
        found.update({name: answer for (name, _, _), answer in zip(part, answers, strict=True)})
    return found


def test_every_name_is_of_one_submission() -> None:
    names = [name for name, _, _ in (*RIGHT, *WRONG)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("name", "task"), [each[:2] for each in RIGHT], ids=_identify)
def test_a_right_solution_passes(results: Results, name: str, task: Task) -> None:
    result = results[name]
    assert (result["error"], result["verdict"], result["integrity"]) == (
        None,
        "passed",
        "separated",
    ), result


@pytest.mark.parametrize(("name", "task"), [each[:2] for each in WRONG], ids=_identify)
def test_an_attack_is_not_rewarded(results: Results, name: str, task: Task) -> None:
    result = results[name]
    assert result["error"] is None, result
    assert result["reward"] == 0.0, result
    if task.secret:
        assert task.secret not in str(result)
