"""`proctor env pull`: fetch the images named in a file of rows, before a training."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated, Any

import typer

from proctor_client.tasks.forms import Format
from proctor_client.tasks.task import DatasetError
from proctor_service.cli.console import aside, plain, screen
from proctor_service.cli.failures import TROUBLE, Trouble, friendly, settings_from
from proctor_service.errors import StartError

_FIELDS = ("environment", "docker_image", "image_name", "image_url", "image")
"""Fields with an image, as the public data sets of repositories have them; the first that is there."""
_FETCHES = 3
_GB = 1e9


def pull(
    rows: Annotated[Path, typer.Option("--rows", help="JSON lines.", exists=True, dir_okay=False)],
    field: Annotated[
        str | None, typer.Option("--field", help="Field with the image, if no usual one.")
    ] = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--form", help="What the rows are, such as swe_bench, whose image is in no field."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Fetch nothing; say how much it would be.")
    ] = False,
) -> None:
    """Fetch the images of a file of rows, such as tasks; present images are skipped."""
    with friendly():
        settings = settings_from()
        if not settings.images:
            raise Trouble(
                'PROCTOR_IMAGES is not set: it has the names that are allowed, as ["docker.io/swebench/*"]'
            )
        from proctor_service.features.environments.by_name import KnownEnvironments
        from proctor_service.features.environments.store import environments_folder

        folder = environments_folder(settings)
        environments = KnownEnvironments({}, folder, tuple(settings.images))
        try:
            images = images_of(rows, field) if form is None else images_of_form(rows, form)
            names = sorted({environments.image_name(each) for each in images})
        except ValueError as error:
            raise Trouble(plain(str(error), 500)) from None
        if dry_run:
            _tell_sizes(folder, names)
        elif _fetch_all(folder, names, int(settings.images_gb * _GB)):
            raise typer.Exit(TROUBLE)


def images_of(rows: Path, field: str | None = None) -> Iterator[str]:
    """Yield the image of each row. Raises Trouble for a row without an image."""
    with rows.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise Trouble(f"{rows}, line {number}: {error}") from None
            image = _image_of(row, field)
            if image is None:
                fields = ", ".join(_FIELDS) if field is None else field
                raise Trouble(f"{rows}, line {number}: no image in any of: {fields}")
            yield image


def images_of_form(rows: Path, form: Format) -> list[str]:
    """Return the images of the tasks made from rows in a form. Raises Trouble."""
    from proctor_client.tasks.files import load_judgeable

    try:
        found = load_judgeable(rows, form)
    except DatasetError as error:
        raise Trouble(str(error)) from None
    if found.left_out:
        aside().print(
            f"{len(found.left_out)} rows cannot be judged and are left out, the first: "
            f"{plain(found.left_out[0])}",
            markup=False,
        )
    choices = (task.environment for task in found.tasks)
    return [str(each["image"]) for each in choices if isinstance(each, Mapping)]


def _image_of(row: Any, field: str | None) -> str | None:
    if not isinstance(row, dict):
        return None
    for name in _FIELDS if field is None else (field,):
        value = row.get(name)
        if isinstance(value, dict):
            value = value.get("image")
        elif name == "environment" and field is None:
            continue  # the name of an environment of the file
        if isinstance(value, str) and value:
            return value
    return None


def _tell_sizes(folder: Path, names: list[str]) -> None:
    from proctor_service.features.environments.images import missing_blobs
    from proctor_service.features.environments.layers import Layers

    layers, missing, troubles = Layers(folder), dict[str, int](), 0
    for name in names:
        try:
            missing |= missing_blobs(name, folder, layers)
        except (StartError, OSError) as error:
            troubles += 1
            aside().print(f"{name}: {plain(str(error), 500)}", markup=False, soft_wrap=True)
    size = sum(missing.values()) / _GB
    screen().print(
        f"{len(names)} images, {len(missing)} layers to fetch, {size:.2f} GB compressed"
        + (f"; {troubles} images could not be looked up" if troubles else "")
    )


def _fetch_all(folder: Path, names: list[str], most_bytes: int) -> int:
    """Fetch the images, with a progress bar; return how many failed."""
    from rich.progress import Progress

    from proctor_service.features.environments.bound import ImageBound
    from proctor_service.features.environments.images import USED, key_of_image
    from proctor_service.features.environments.store import EnvironmentStore

    bound, failed = ImageBound(folder, most_bytes), 0

    def fetch(name: str) -> None:
        EnvironmentStore(folder).fetch(name, lambda line: None, bound.room())
        (folder / key_of_image(name) / USED).touch()

    with (
        Progress(console=aside(), transient=True) as progress,
        ThreadPoolExecutor(_FETCHES) as pool,
    ):
        task = progress.add_task("images", total=len(names))
        running = {pool.submit(fetch, name): name for name in names}
        for future in as_completed(running):
            error = future.exception()
            if error is not None:
                if not isinstance(error, StartError | OSError):
                    raise error
                failed += 1
                text = f"{running[future]}: {plain(str(error), 500)}"
                aside().print(text, markup=False, soft_wrap=True)
            progress.advance(task)
    screen().print(f"fetched {len(names) - failed} of {len(names)} images")
    return failed
