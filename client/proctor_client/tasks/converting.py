"""Conversion of rows to tasks, with columns from a package or a folder beside the data set."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from proctor_client.tasks import package_tables
from proctor_client.tasks.fields import decoded_value
from proctor_client.tasks.files import task_of_row
from proctor_client.tasks.forms import Format
from proctor_client.tasks.repository_fields import column_of
from proctor_client.tasks.repository_reports import report_of_parser
from proctor_client.tasks.repository_rows import PARSER_SOURCE
from proctor_client.tasks.task import BadTask, DatasetError, Row, Task

_COLUMNS: Mapping[Format, str] = MappingProxyType(
    {
        "swe_bench": "eval_script",
        "swe_gym": "eval_script",
        "swe_smith": "test_cmd",
        "multi_swe": "parser_source",
        "swe_rebench": "parser_source",
        "swe_pro": "run_script",
    }
)
"""Column that rows of a form lack where their commands or their parser lie elsewhere."""
_ADVICE: Mapping[Format, str] = MappingProxyType(
    {
        "swe_bench": "pip install swebench==4.1.0",
        "swe_gym": "install SWE-Gym's fork of swebench",
        "swe_smith": "pip install swesmith==0.0.9 swebench==4.1.0",
        "multi_swe": "pip install multi-swe-bench",
        "swe_rebench": "give --folder with a copy of github.com/SWE-rebench/SWE-rebench-V2",
        "swe_pro": "give --folder with a copy of github.com/scaleapi/SWE-bench_Pro-os",
    }
)
_PART = 2000
"""Rows that are in memory, and in temporary files, at once."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Place of the tables of a data set: an interpreter with its package, or a folder with a copy."""

    python: str = sys.executable
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Converted:
    """A row with its task, or the reason for a missing task."""

    place: str
    task: Task | None
    reason: str = ""


def converted(
    form: Format, rows: Iterable[tuple[str, Row]], tables: Tables | None = None
) -> Iterator[Converted]:
    """Yield the task of each row, or the reason for a missing task; a repeated id is such a reason.

    Raises DatasetError if rows need a missing package or folder.
    """
    tables = tables or Tables()
    places: dict[str, str] = {}
    for part in _parts(rows):
        for place, row, reason in _with_columns(form, part, tables):
            if reason:
                yield Converted(place, None, reason)
                continue
            try:
                task = task_of_row(form, place, dict(row))
            except DatasetError as error:
                yield Converted(place, None, str(error).removeprefix(f"{place}: "))
                continue
            if task.id in places:
                yield Converted(place, None, f"the id {task.id!r} again; see {places[task.id]}")
                continue
            places[task.id] = place
            yield Converted(place, task)


def line_of(task: Task) -> dict[str, Any]:
    """Return a task as a row of the form `jsonl`, with its text as `prompt` and its solution."""
    fields: dict[str, Any] = {"id": task.id, **task.fields}
    if task.text is not None:
        fields.setdefault("prompt", task.text)
    if task.reference is not None:
        fields["completion"] = task.reference
    return fields


def lacks_columns(form: Format, row: Row) -> bool:
    """Tell whether a row needs columns of its data set's package or folder."""
    name = _COLUMNS.get(form)
    if name is None:
        return False
    if form in ("swe_bench", "swe_gym") and column_of(row, name) is not None:
        return _lacks_parser(row, row.get("log_parser"))
    if form != "swe_rebench":
        return column_of(row, name) is None
    config = decoded_value(row.get("install_config"))
    return isinstance(config, Mapping) and _lacks_parser(row, config.get("log_parser") or "pytest")


def _lacks_parser(row: Row, name: Any) -> bool:
    if column_of(row, PARSER_SOURCE) is not None:
        return False
    try:
        report_of_parser(str(name))
    except BadTask:
        return True
    return False


def _parts(rows: Iterable[tuple[str, Row]]) -> Iterator[list[tuple[str, Row]]]:
    part: list[tuple[str, Row]] = []
    for each in rows:
        part.append(each)
        if len(part) == _PART:
            yield part
            part = []
    if part:
        yield part


def _with_columns(
    form: Format, rows: list[tuple[str, Row]], tables: Tables
) -> Iterator[tuple[str, Row, str]]:
    """Yield each row with its missing columns, or with the reason for leaving the row out."""
    added = iter(_added(form, [row for _, row in rows if lacks_columns(form, row)], tables))
    for place, row in rows:
        columns = next(added) if lacks_columns(form, row) else {}
        yield place, {**row, **columns}, str(columns.get("left_out", ""))


def _added(form: Format, rows: list[Row], tables: Tables) -> list[Mapping[str, Any]]:
    """Return the columns for the rows from the program `package_tables`. Raises DatasetError."""
    if not rows:
        return []
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / name for name in ("rows.jsonl", "added.jsonl")]
        with places[0].open("w", encoding="utf-8") as output:
            output.writelines(json.dumps(row, default=str) + "\n" for row in rows)
        program = [tables.python, package_tables.__file__, form, *map(str, places)]
        if tables.folder is not None:
            program.append(str(tables.folder.absolute()))
        try:
            ended = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False)
        except OSError as error:
            raise DatasetError(f"{tables.python}: {error.strerror or error}") from None
        if ended.returncode == package_tables.MISSING:
            missing = ended.stderr.strip().rpartition("\n")[2]
            raise DatasetError(
                f"rows of {form} need {missing}, which {tables.python} lacks: {_ADVICE[form]}"
            )
        if ended.returncode:
            raise DatasetError(f"{form}: {ended.stderr.strip()[-500:]}")
        with places[1].open(encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]
