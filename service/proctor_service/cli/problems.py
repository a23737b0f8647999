"""Problems of a command: from a file, or from a data set by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from proctor_client.tasks.files import form_of_file, load_named, load_tasks
from proctor_client.tasks.forms import Format
from proctor_client.tasks.task import Task
from proctor_service.cli.console import plain
from proctor_service.cli.failures import Trouble

Dataset = Annotated[
    str | None,
    typer.Option(
        help="A data set by its name in place of a file: mbpp, humaneval, livecodebench, … "
        "(a wrong name lists them), or owner/name of the hub with --format."
    ),
]
Split = Annotated[
    str | None, typer.Option(help="The split of --dataset; default: the one that is for tests.")
]


def problems_of(
    file: Path | None,
    dataset: str | None,
    form: Format | None,
    split: str | None,
    limit: int | None,
    console: Console,
) -> tuple[str, Format, list[Task]]:
    """Return the name, the form and the problems. Raises DatasetError and Trouble.

    Of a named data set, unjudgeable rows are left out and counted on `console`.
    """
    if (file is None) == (dataset is None):
        raise Trouble("which problems? give either a file or --dataset")
    if dataset is not None:
        named = load_named(dataset, form, split=split, limit=limit)
        if named.left_out:
            console.print(
                f"{len(named.left_out)} rows cannot be judged and are left out, the first: "
                f"{plain(named.left_out[0])}"
            )
        return dataset, named.form, named.tasks
    assert file is not None
    if split is not None:
        raise Trouble("--split is for --dataset")
    form = form or form_of_file(file)
    return file.name, form, load_tasks(file, form)[:limit]
