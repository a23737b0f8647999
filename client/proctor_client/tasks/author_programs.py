"""Columns with programs of a task's author: a checker, an interactor, a verifier and its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proctor_client.tasks.fields import decoded_value, plain, set_fields
from proctor_client.tasks.task import BadTask, Row, Task, refuse_typos

CHECKER, INTERACTOR, VERIFIER, PARAMS = "checker", "interactor", "verifier", "params"
_BY_OUTPUT = (CHECKER, INTERACTOR)
_CLOSENESS = 0.9
"""Likeness of `verifer` and `verifier` is 0.93; that of `verified`, a column of other data sets, 0.88."""


def refuse_typos_of_programs(row: Row) -> None:
    """Raise BadTask for a column with nearly the name of an author's program."""
    refuse_typos(row, (CHECKER, INTERACTOR, VERIFIER), _CLOSENESS)
    if row.get(VERIFIER) is not None:
        refuse_typos(row, (PARAMS,))


def with_programs(task: Task, row: Row) -> Task:
    """Return the task of programs with the row's checker or interactor. Raises BadTask."""
    found = _programs(row)
    if not found:
        return task
    grader = task.grader or {}
    if grader.get("kind") != "stdio":
        raise BadTask(f"{', '.join(found)}: only for tests with stdin and stdout")
    return task.with_fields({"grader": {**grader, **found}})


def needs_outputs(row: Row) -> bool:
    """Tell whether the cases of a row need expected outputs: programs of the author may do without.

    Raises BadTask.
    """
    return not any(isinstance(each, Mapping) for each in _programs(row).values())


def _programs(row: Row) -> dict[str, Any]:
    return {name: _program(row[name], name) for name in _BY_OUTPUT if row.get(name) is not None}


def _program(value: Any, name: str) -> Any:
    value = decoded_value(value)
    if isinstance(value, Mapping):
        return set_fields(value)
    if isinstance(value, str) and name == CHECKER and "\n" not in value.strip():
        return value
    named = ", or the name of a ready one" if name == CHECKER else ""
    raise BadTask(f"{name}: an object with its language and source is needed{named}")


def verifier_of(row: Row) -> dict[str, Any]:
    """Return the grader of a row's `verifier`: its name, its source in Python, or its fields; and `params`.

    None among the parameters stays as data. Raises BadTask.
    """
    value = decoded_value(row[VERIFIER])
    if isinstance(value, str) and value.strip():
        fields = {"source" if "\n" in value.strip() else "name": value}
    elif isinstance(value, Mapping):
        fields = {name: each for name, each in plain(value).items() if each is not None}
    else:
        raise BadTask(f"{VERIFIER}: neither a name, nor a source, nor an object")
    params = decoded_value(row.get(PARAMS))
    if params is not None and PARAMS in fields:
        raise BadTask(f"{PARAMS}: a column, and also in {VERIFIER}")
    if params is not None:
        fields[PARAMS] = params
    if not isinstance(fields.get(PARAMS, {}), Mapping):
        raise BadTask(f"{PARAMS}: no object")
    return {"kind": "verifier", **fields}
