"""Problems of a command: from a file, or from a data set by its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from proctor_client.tasks.files import Named, form_of_file, load_judgeable, load_named, load_tasks
from proctor_client.tasks.forms import REPOSITORY_FORMS, Format
from proctor_client.tasks.supplies import Supplies, lacks_database, lacks_testlib
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
Testlib = Annotated[
    Path | None,
    typer.Option(help="The file testlib.h, for checkers that include it and bring none."),
]
Databases = Annotated[
    str | None,
    typer.Option(
        help="Folder of Spider's or BIRD's databases on the service, `FOLDER` or `ENVIRONMENT:FOLDER`."
    ),
]


def supplies_of(testlib: Path | None, databases: str | None) -> Supplies:
    """Return the files of these options. Raises Trouble."""
    environment, colon, folder = (databases or "").partition(":")
    if not colon:
        environment, folder = "", databases or ""
    if databases is not None and not folder.startswith("/"):
        raise Trouble(f"--databases: {folder!r} is no absolute path")
    try:
        text = None if testlib is None else testlib.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Trouble(
            f"--testlib: {testlib}: {getattr(error, 'strerror', None) or error}"
        ) from None
    return Supplies(text, folder or None, environment or None)


def problems_of(
    file: Path | None,
    dataset: str | None,
    form: Format | None,
    split: str | None,
    limit: int | None,
    supplies: Supplies,
    console: Console,
) -> tuple[str, Format, list[Task]]:
    """Return the name, the form and the problems, with what they need. Raises DatasetError and Trouble.

    Of a named data set, and of rows about repositories, unjudgeable ones are left out and counted on
    `console`.
    """
    if (file is None) == (dataset is None):
        raise Trouble("which problems? give either a file or --dataset")
    if dataset is not None:
        named = load_named(dataset, form, split=split, limit=limit)
        return dataset, named.form, _supplied(_counted(named, console), supplies, console)
    assert file is not None
    if split is not None:
        raise Trouble("--split is for --dataset")
    form = form or form_of_file(file)
    if form in REPOSITORY_FORMS:
        named = load_judgeable(file, form, limit)
        return file.name, form, _counted(named, console)
    return file.name, form, _supplied(load_tasks(file, form)[:limit], supplies, console)


def _counted(named: Named, console: Console) -> list[Task]:
    """Return the problems, and print how many rows are left out."""
    if named.left_out:
        console.print(
            f"{len(named.left_out)} rows cannot be judged and are left out, the first: "
            f"{plain(named.left_out[0])}"
        )
    return named.tasks


def _supplied(tasks: Sequence[Task], supplies: Supplies, console: Console) -> list[Task]:
    supplied = [supplies.for_task(task) for task in tasks]
    place = next((task.place for task in supplied if lacks_database(task)), None)
    if place is not None:
        raise Trouble(f"{place}: where is its database? --databases names their folder")
    count = sum(map(lacks_testlib, supplied))
    if count:
        console.print(
            f"testlib.h is missing in {count} checkers: --testlib gives it, else the compiler of the "
            "service must find it"
        )
    return supplied
