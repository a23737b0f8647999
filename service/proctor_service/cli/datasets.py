"""Files of problems for `proctor eval`: rows of known data sets, programs with stdin and stdout.

Each row becomes a Task: the fields to judge a completion, and the reference solution if the row has
one. A file contains JSON lines or one JSON array, plain or `.gz`. An invalid row raises a
DatasetError with file and line, before any completion is judged.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from pydantic import ValidationError

from proctor_client import wire
from proctor_service.cli.dataset_rows import MAKERS, Completion, Format, Task

_COMPLETION_KEYS = ("completion", "solution")


class DatasetError(ValueError):
    """Invalid file or row; the message names the file and line."""


def load_tasks(path: Path, form: Format) -> list[Task]:
    """Return the problems of a file. Raises DatasetError."""
    make = MAKERS[form]
    tasks = []
    for place, row in _rows(path):
        try:
            task = make(row, place)
            wire.Submission.model_validate(task.submission(task.reference or ""))
        except ValidationError as error:
            raise DatasetError(f"{place}: {_first(error)}") from None
        except (KeyError, TypeError, ValueError) as error:
            said = f"the field {error} is missing" if isinstance(error, KeyError) else error
            raise DatasetError(f"{place}: {said}") from None
        tasks.append(task)
    if not tasks:
        raise DatasetError(f"{path}: no rows")
    return tasks


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
    for place, row in _rows(path):
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


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each row with its position, `file:line`, or `file:row` in a JSON array.

    Blank lines are skipped. A file that begins with `[` is one JSON array.
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
                rows = json.loads(line + stream.read()) if is_array else [json.loads(line)]
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
