"""`proctor languages`: files for a faster start of compilers, for all sandboxes."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from proctor_service.cli.console import plain, screen
from proctor_service.cli.failures import Trouble, friendly
from proctor_service.features.languages.recipes import (
    NotMade,
    Recipe,
    default_names,
    folder_name,
    recipe_for,
)
from proctor_service.settings.prepared_folder import SHOWN_AT, prepared_folder

_UNFINISHED = ".making-"
_MOST_OF_A_LANGUAGE = 6
"""Folders of a language: C++ has some 150 MB for each standard and level of optimisation."""


def languages() -> typer.Typer:
    """Return the command `prepare`."""
    app = typer.Typer(
        help="Files that make compilers start faster, for all sandboxes.", no_args_is_help=True
    )
    app.callback()(lambda: None)  # so that a single command keeps its name
    app.command("prepare")(prepare)
    return app


def prepare(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]…", help="Default: all, of the installed languages."),
    ] = None,
    folder: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Make the files for the installed compilers, and remove the files of other versions.

    A service makes missing files at first use, too; a service started later uses the files made here.
    """
    with friendly():
        folder = folder or prepared_folder()
        recipes = [each for name in names or default_names() if (each := _recipe(name, names))]
        failed = False
        try:
            folder.mkdir(0o755, parents=True, exist_ok=True)
            with _alone(folder):
                for recipe in recipes:
                    failed |= not _make(folder, recipe)
                if not names:
                    _remove_others(folder, [folder_name(each) for each in recipes])
        except OSError as error:
            raise Trouble(f"{folder}: {error}") from None
        if failed:
            raise typer.Exit(1)


def _recipe(name: str, names: list[str] | None) -> Recipe | None:
    """Return a recipe, or None if its programs are missing. Raises Trouble if the recipe is in `names`."""
    recipe = recipe_for(name)
    if recipe is None and names:
        raise Trouble(f"{plain(name, 80)}: nothing to prepare, or its programs are not here")
    return recipe


def _make(folder: Path, recipe: Recipe) -> bool:
    """Make the folder of a recipe unless present; return False, and say why, after a failure."""
    final = folder / folder_name(recipe)
    language = recipe.name.partition("-")[0]
    if final.exists():
        return True
    if len(list(folder.glob(f"{language}-*"))) >= _MOST_OF_A_LANGUAGE:
        _say(f"{recipe.name}: {_MOST_OF_A_LANGUAGE} folders of {language} are enough")
        return False
    making = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder))
    old_umask = os.umask(0o022)  # the sandboxes' user reads the files
    try:
        recipe.make(making, f"{SHOWN_AT}/{final.name}")
        making.chmod(0o755)
        making.rename(final)
    except NotMade as error:
        _say(f"{recipe.name}: {plain(str(error), 2000)}")
        return False
    finally:
        os.umask(old_umask)
        shutil.rmtree(making, ignore_errors=True)
    size_mb = sum(path.stat().st_size for path in final.rglob("*") if path.is_file()) / 1e6
    screen().print(f"{final}  ({size_mb:.0f} MB)", markup=False, soft_wrap=True)
    return True


def _remove_others(folder: Path, names: list[str]) -> None:
    """Remove folders of other versions, and of other options of C++."""
    for other in folder.iterdir():
        if other.is_dir() and other.name not in names:
            shutil.rmtree(other, ignore_errors=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait for other processes making files here, and remove the remains of killed processes."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def _say(text: str) -> None:
    typer.echo(text, err=True)
