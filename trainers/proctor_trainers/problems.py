"""Training problems: a few toy problems, a data set by its name, or a file of your own.

A problem consists of a text and of the task that judges an answer. The prompt shows
the first test, because the test shows the required names. The other tests stay hidden; otherwise
the policy would learn to print their answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from proctor_client import wire
from proctor_client.tasks.catalog import CATALOG, rows_of, source_of
from proctor_client.tasks.files import load_judgeable, load_named, rows_of_file
from proctor_client.tasks.forms import Format
from proctor_client.tasks.supplies import Supplies
from proctor_client.tasks.task import DatasetError, Task
from proctor_trainers.extras import require

_OF_COLUMNS = ("mbpp",)
"""Names of proctor_client.tasks.catalog whose columns are those of task_from_row."""
ANSWER = (
    "You are an expert Python programmer. Think briefly, then write the whole program between "
    "<answer> and </answer>."
)
DIFF = (
    "You are an expert programmer. Think briefly, then answer with your change of the repository: one "
    "unified diff, in a block that begins with ```diff."
)
AGENT = (
    "You are an expert programmer. Solve the issue in the repository that your tools work in. Change "
    "its files, and run its tests; your last state of the files counts."
)
_TEXTS = ("text", "prompt", "question")
_OF_ROLLOUTS = tuple(
    name for name in wire.RolloutTask.model_fields if name not in ("id", "prompt", "metadata")
)


TOYS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "Write a function that doubles a number.": (
            "assert double(2) == 4",
            "assert double(-3) == -6",
        ),
        "Write a function that adds two numbers.": (
            "assert add(2, 3) == 5",
            "assert add(-1, 1) == 0",
        ),
        "Write a function for the largest number of a list.": (
            "assert largest([1, 7, 3]) == 7",
            "assert largest([-2]) == -2",
        ),
        "Write a function that tells whether a number is even.": (
            "assert is_even(4) == True",
            "assert is_even(7) == False",
        ),
        "Write a function that reverses a text.": (
            "assert reverse('abc') == 'cba'",
            "assert reverse('') == ''",
        ),
        "Write a function for the factorial of a number.": (
            "assert factorial(5) == 120",
            "assert factorial(0) == 1",
        ),
        "Write a function that counts the vowels of a word.": (
            "assert vowels('banana') == 3",
            "assert vowels('sky') == 0",
        ),
        "Write a function for the sorted distinct numbers of a list.": (
            "assert unique([3, 1, 3]) == [1, 3]",
            "assert unique([]) == []",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Problem:
    """The text of a problem, and the task that judges an answer."""

    id: str
    text: str
    task: Task

    @property
    def columns(self) -> dict[str, str]:
        """The task as columns of a data set; objects and lists are JSON.

        A table would give every object the fields of all objects.
        """
        return {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in self.task.fields.items()
        }

    @property
    def is_repository(self) -> bool:
        """True for an issue of a repository, where a completion is a diff."""
        return (self.task.grader or {}).get("kind") == "repository"

    def messages(self, system: str | None = ANSWER) -> list[dict[str, str]]:
        """Return the prompt as chat messages; for a repository, ANSWER becomes DIFF."""
        if system == ANSWER and self.is_repository:
            system = DIFF
        user = {"role": "user", "content": self.text}
        return [user] if system is None else [{"role": "system", "content": system}, user]

    def rollout_task(self) -> dict[str, Any]:
        """Return the problem as a task of a rollout."""
        fields = {name: self.task.fields[name] for name in _OF_ROLLOUTS if name in self.task.fields}
        return {"id": self.id, "prompt": self.text, **fields}

    def row(self, system: str | None = ANSWER) -> dict[str, Any]:
        """Return a data set row for a trainer: `prompt`, `task_id`, and the judging columns."""
        return {"prompt": self.messages(system), "task_id": self.id, **self.columns}


def load_problems(
    name: str,
    *,
    split: str = "train",
    limit: int | None = None,
    extra: str = "trl",
    supplies: Supplies | None = None,
    form: Format | None = None,
) -> list[Problem]:
    """Load problems from `toy`, a data set by its name, or a file of JSON lines (also .gz).

    `form`: what the rows of a file or of the hub are; by default their columns tell it. Rows in a form that
    cannot be judged are left out.

    A name stands in proctor_client.tasks.catalog, or is `owner/name` of the hub. A row of a file or
    of the hub has a `text` (or `prompt`, `question`) and the columns known to task_from_row, for
    example in MBPP's form. `extra` names the package extra with `datasets`, which the hub requires.
    `supplies` has the files that rows need and do not bring.
    Raises DatasetError and MissingExtra.
    """
    supplies = supplies or Supplies()
    if limit is not None and limit < 1:
        raise DatasetError("the limit must be 1 or more")
    if name in CATALOG and name not in _OF_COLUMNS:
        require(extra, "datasets")
        named = load_named(name, split=split, limit=limit)
        return [_of_task(supplies.for_task(task)) for task in named.tasks]
    if form is not None and Path(name).is_file():
        named = load_judgeable(Path(name), form, limit)
        return [_of_task(supplies.for_task(task)) for task in named.tasks if _has_text(task)]
    if form is not None and "/" in name and not name.endswith((".json", ".jsonl", ".gz")):
        require(extra, "datasets")
        named = load_named(name, form, split=split, limit=limit)
        return [_of_task(supplies.for_task(task)) for task in named.tasks if _has_text(task)]
    if name == "toy":
        rows: Iterable[tuple[str, Mapping[str, Any]]] = _toys()
    elif Path(name).is_file():
        rows = rows_of_file(Path(name))
    elif name.endswith((".json", ".jsonl", ".gz")):
        raise DatasetError(f"{name}: no such file")
    else:
        require(extra, "datasets")
        rows = rows_of(name, source_of(name), split)
    problems = [_problem(place, row, supplies) for place, row in islice(rows, limit)]
    if not problems:
        raise DatasetError(f"{name}: no rows")
    return problems


def _has_text(task: Task) -> bool:
    """Tell whether a task has a text for a policy: some rows of SWE-smith have an empty one."""
    return bool(task.text and task.text.strip())


def _of_task(task: Task) -> Problem:
    if task.text is None or task.language != "python":
        found = (
            "an answer that is no program, or has no statement"
            if task.text is None
            else f"programs in {task.language}"
        )
        raise DatasetError(
            f"{task.place}: it asks for {found}; these scripts train Python programs"
        )
    return Problem(task.id, task.text.strip(), task)


def _problem(place: str, row: Mapping[str, Any], supplies: Supplies) -> Problem:
    try:
        task = supplies.task_from_row(row)
    except ValueError as error:  # includes BadTask and MissingColumns
        raise DatasetError(f"{place}: {error}") from None
    text = next((row[key] for key in _TEXTS if isinstance(row.get(key), str)), task.text)
    if not text:
        raise DatasetError(f"{place}: no text: one of {', '.join(_TEXTS)} is needed")
    tests = (task.grader or {}).get("tests")
    shown = f"\n\nIt must pass tests such as:\n{tests[0]}" if isinstance(tests, list) else ""
    return Problem(str(row.get("task_id", place)), text.strip() + shown, task)


def _toys() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for text, tests in TOYS.items():
        yield (
            tests[0],
            {"task_id": tests[0].split("(")[0].split()[-1], "text": text, "tests": tests},
        )
