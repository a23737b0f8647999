"""`proctor tasks`: rows of public data sets become tasks, as rows that every other command takes."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Annotated

import typer

from proctor_client.tasks.catalog import rows_of, source_of
from proctor_client.tasks.converting import Tables, converted, line_of
from proctor_client.tasks.files import form_of_file, rows_of_file
from proctor_client.tasks.forms import Format
from proctor_client.tasks.task import Row
from proctor_service.cli.console import aside, plain
from proctor_service.cli.failures import UNSOUND, Trouble, friendly
from proctor_service.cli.problems import Dataset, Split
from proctor_service.cli.target import client_errors

_SHOWN = 10


def tasks() -> typer.Typer:
    """Return the command `convert`."""
    app = typer.Typer(help="Make tasks of the rows of public data sets.", no_args_is_help=True)
    app.callback()(_group)
    app.command("convert")(convert)
    return app


def _group() -> None:
    """Make tasks of the rows of public data sets."""


def convert(
    file: Annotated[
        Path | None, typer.Argument(help="JSON lines or a JSON array, plain or .gz.")
    ] = None,
    form: Annotated[
        Format | None, typer.Option("--form", "--format", help="What the rows are.")
    ] = None,
    dataset: Dataset = None,
    split: Split = None,
    python: Annotated[
        str,
        typer.Option(help="An interpreter with the data set's package; default: this one's."),
    ] = sys.executable,
    folder: Annotated[
        Path | None,
        typer.Option(help="A copy of the data set's repository, for swe_pro and swe_rebench."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the tasks here; default: standard output.")
    ] = None,
    left_out: Annotated[
        Path | None, typer.Option(help="Write each row without a task here, with its reason.")
    ] = None,
) -> None:
    """Make tasks of rows: JSON lines with a grader, which every command and trainer takes.

    Test commands and parsers that lie in a package of the data set are read there.

    Status 0: every row has a task. 1: some have none. 2: no row has one.
    """
    with friendly(), client_errors(), ExitStack() as stack:
        console = aside()
        form, rows = _rows(file, form, dataset, split)
        sink = _opened(stack, output) or sys.stdout
        reasons = _opened(stack, left_out)
        counts: Counter[str] = Counter()
        made = 0
        for each in converted(form, rows, Tables(python, folder)):
            if each.task is not None:
                made += 1
                sink.write(json.dumps(line_of(each.task)) + "\n")
                continue
            counts[each.reason] += 1
            if reasons is not None:
                line = {"place": each.place, "reason": each.reason}
                reasons.write(json.dumps(line) + "\n")
        console.print(f"{made} tasks, {counts.total()} rows left out", markup=False)
        for reason, count in counts.most_common(_SHOWN):
            console.print(f"  {count}: {plain(reason)}", markup=False)
        if not made:
            raise Trouble("no row became a task")
        if counts:
            raise typer.Exit(UNSOUND)


def _rows(
    file: Path | None, form: Format | None, dataset: str | None, split: str | None
) -> tuple[Format, Iterator[tuple[str, Row]]]:
    if (file is None) == (dataset is None):
        raise Trouble("which rows? give either a file or --dataset")
    if dataset is not None:
        source = source_of(dataset, form)
        return source.form, rows_of(dataset, source, split)
    assert file is not None
    return form or form_of_file(file), rows_of_file(file)


def _opened(stack: ExitStack, path: Path | None) -> IO[str] | None:
    if path is None:
        return None
    try:
        return stack.enter_context(path.open("w", encoding="utf-8"))
    except OSError as error:
        raise Trouble(f"{path}: {error.strerror}") from None
