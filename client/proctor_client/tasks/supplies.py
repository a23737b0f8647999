"""Files that rows need but lack: testlib.h for programs of their authors, databases for queries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proctor_client.tasks.forms import task_from_row
from proctor_client.tasks.task import Row, Task

TESTLIB = "testlib.h"
_INCLUDES = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]testlib\.h[">]', re.MULTILINE)
"""A line such as `#include "testlib.h"`."""
_PROGRAMS = ("checker", "interactor")
_OF_CASES = ("generator", "reference")


@dataclass(frozen=True, slots=True)
class Supplies:
    """Files for rows, of the command line or of a trainer.

    `testlib`: the text of testlib.h. `databases`: the folder of Spider's or BIRD's databases, an absolute
    path in the `environment` of their verifier; by default `default`.
    """

    testlib: str | None = None
    databases: str | None = None
    environment: str | None = None

    def task_from_row(self, row: Row) -> Task:
        """Return the task of a row, for the parameter `task` of a reward function.

        Raises BadTask and MissingColumns.
        """
        return self.for_task(task_from_row(row))

    def for_task(self, task: Task) -> Task:
        """Return a task with the files needed by the task."""
        grader = dict(task.grader or {})
        if self.testlib is not None and lacks_testlib(task):
            grader = _with_testlib(grader, self.testlib)
        if self.databases is not None and lacks_database(task):
            path = f"{self.databases.rstrip('/')}/{grader['params']['database']}"
            grader["params"] = {**grader["params"], "database": path}
            if self.environment is not None:
                grader["environment"] = self.environment
        return task.with_fields({"grader": grader or None})


def lacks_testlib(task: Task) -> bool:
    """Return True if a program of the task includes testlib.h without bringing the file."""
    grader = task.grader or {}
    cases = grader.get("cases")
    of_cases = cases if isinstance(cases, Mapping) else {}
    programs = [grader.get(name) for name in _PROGRAMS]
    return any(map(_lacks_it, (*programs, *(of_cases.get(name) for name in _OF_CASES))))


def lacks_database(task: Task) -> bool:
    """Tell whether a query's database has a path without its folder."""
    grader = task.grader or {}
    params = grader.get("params")
    path = params.get("database") if isinstance(params, Mapping) else None
    return grader.get("name") == "sql" and isinstance(path, str) and not path.startswith("/")


def _with_testlib(grader: Mapping[str, Any], text: str) -> dict[str, Any]:
    found = {name: _with_file(grader[name], text) for name in _PROGRAMS if name in grader}
    cases = grader["cases"]
    if isinstance(cases, Mapping):
        of_cases = {name: _with_file(cases[name], text) for name in _OF_CASES if name in cases}
        found["cases"] = {**cases, **of_cases}
    return {**grader, **found}


def _with_file(program: Any, text: str) -> Any:
    if not _lacks_it(program):
        return program
    return {**program, "files": {**(program.get("files") or {}), TESTLIB: text}}


def _lacks_it(program: Any) -> bool:
    if not isinstance(program, Mapping):
        return False
    files, source = program.get("files") or {}, program.get("source")
    return TESTLIB not in files and isinstance(source, str) and bool(_INCLUDES.search(source))
