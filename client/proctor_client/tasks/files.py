"""Problems from a file of rows, or from a data set by its name, and files of completions.

Each row becomes a Task: the fields for judging a completion, and the row's reference solution, if any. A file
contains JSON lines or a JSON array, plain or `.gz`. An invalid row of a file raises a DatasetError with file
and line; unusable rows of a named data set are left out.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO, cast

from pydantic import ValidationError

from proctor_client.tasks.catalog import rows_of, source_of
from proctor_client.tasks.forms import MAKERS, Format, error_text, form_of
from proctor_client.tasks.task import Completion, DatasetError, MissingColumns, Task, submission_of
from proctor_client.wire.long_integers import loads

_COMPLETION_KEYS = ("completion", "solution")


@dataclass(frozen=True, slots=True)
class Named:
    """Problems of a data set by name; `left_out`: why each other row cannot be judged."""

    form: Format
    tasks: list[Task]
    left_out: list[str]


def load_tasks(path: Path, form: Format) -> list[Task]:
    """Return the problems of a file. Raises DatasetError."""
    tasks = [task_of_row(form, place, row) for place, row in rows_of_file(path)]
    if not tasks:
        raise DatasetError(f"{path}: no rows")
    return tasks


def load_judgeable(path: Path, form: Format, limit: int | None = None) -> Named:
    """Return the problems of a file, without rows unfit for judging. Raises DatasetError.

    For data sets with a known unusable part, such as data sets about repositories.
    """
    left_out: list[str] = []
    tasks = list(islice(_judgeable(form, rows_of_file(path), left_out), limit))
    if not tasks:
        raise DatasetError(left_out[0] if left_out else f"{path}: no rows")
    return Named(form, tasks, left_out)


def form_of_file(path: Path) -> Format:
    """Return the form of the rows of a file, by the fields of the first. Raises DatasetError."""
    for place, row in rows_of_file(path):
        try:
            return form_of(row)
        except MissingColumns as error:
            raise DatasetError(f"{place}: {error}; or say the form with --format") from None
    raise DatasetError(f"{path}: no rows")


def load_named(
    name: str,
    form: Format | None = None,
    *,
    split: str | None = None,
    limit: int | None = None,
) -> Named:
    """Return the problems of a data set, at most `limit` of them. Raises DatasetError.

    `name` is a name in proctor_client.tasks.catalog, or `owner/name` of the hub, with a form.
    """
    source = source_of(name, form)
    left_out: list[str] = []
    tasks = list(islice(_judgeable(source.form, rows_of(name, source, split), left_out), limit))
    if not tasks:
        raise DatasetError(f"{name}: {left_out[0] if left_out else 'no rows'}")
    return Named(source.form, tasks, left_out)


def _judgeable(
    form: Format, rows: Iterator[tuple[str, dict[str, Any]]], left_out: list[str]
) -> Iterator[Task]:
    for place, row in rows:
        try:
            yield task_of_row(form, place, row)
        except DatasetError as error:
            left_out.append(str(error))


def task_of_row(form: Format, place: str, row: dict[str, Any]) -> Task:
    """Return the task of a row in the form of the service. Raises DatasetError with the place."""
    try:
        task = MAKERS[form](row, place)
        submission_of(task, task.reference or "")
    except ValidationError as error:
        raise DatasetError(f"{place}: {_first(error)}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"{place}: {error_text(error)}") from None
    return task


def load_completions(path: Path, tasks: list[Task]) -> list[tuple[Task, Completion]]:
    """Return each completion of a file with its task. Raises DatasetError for an unknown task.

    A row is {"task_id" or "id", "completion"}; a task may have several.
    """
    by_id: dict[str, Task] = {}
    for task in tasks:
        if task.id in by_id:
            raise DatasetError(
                f"{task.place}: the id {task.id!r} again; see {by_id[task.id].place}"
            )
        by_id[task.id] = task
    pairs = []
    for place, row in rows_of_file(path):
        found = next((row[key] for key in _COMPLETION_KEYS if key in row), None)
        if not _is_completion(found):
            raise DatasetError(f"{place}: no completion, a text or a list of chat messages")
        name = next((str(row[key]) for key in ("task_id", "id") if key in row), None)
        if name not in by_id:
            raise DatasetError(f"{place}: no task {name!r} in the data")
        pairs.append((by_id[name], cast(Completion, found)))
    if not pairs:
        raise DatasetError(f"{path}: no rows")
    return pairs


def _is_completion(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(message, dict) for message in value)
    )


# ---------------------------------------------------------------- files


def rows_of_file(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each row with its position, `file:line`, or `file:row` in a JSON array.

    Raises DatasetError. Blank lines are skipped. A file with `[` at the begin is a JSON array.
    """
    number = 0
    is_first = True
    try:
        with _open(path) as stream:
            for number, line in enumerate(stream, 1):
                if not line.strip():
                    continue
                is_array = is_first and line.lstrip().startswith("[")
                is_first = False
                rows = loads(line + stream.read()) if is_array else [loads(line)]
                for place, row in enumerate(rows, 1 if is_array else number):
                    if not isinstance(row, dict):
                        raise DatasetError(f"{path}:{place}: not a JSON object")
                    yield f"{path}:{place}", row
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror or error}") from None
    except (EOFError, zlib.error):
        raise DatasetError(f"{path}: the compressed file is damaged or cut off") from None
    except UnicodeDecodeError:
        raise DatasetError(f"{path}:{number + 1}: not UTF-8") from None
    except RecursionError:
        raise DatasetError(f"{path}:{number}: nested too deep") from None
    except json.JSONDecodeError as error:
        raise DatasetError(f"{path}:{number}: not JSON: {error.msg}") from None


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8", newline="\n"))
    return path.open(encoding="utf-8", newline="\n")


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
