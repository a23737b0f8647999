"""`proctor env`: build, list, check and prune the environments of PROCTOR_ENVIRONMENTS.

The commands need no running service. A build runs the build scripts of packages as the user of the
command.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from proctor_service.cli.console import aside, plain, screen
from proctor_service.cli.failures import TROUBLE, UNSOUND, Trouble, friendly, settings_from
from proctor_service.errors import StartError
from proctor_service.features.environments.cli.pull import pull

if TYPE_CHECKING:
    from proctor_service.features.environments.store import EnvironmentStore
    from proctor_service.sandbox.environments import BuiltEnvironment
    from proctor_service.settings.environments import Environment

_MB = 1_000_000
Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]…", help="Default: all environments.")
]


@dataclass(frozen=True, slots=True)
class _Configured:
    """The environments of the file, their store, and the default interpreter."""

    definitions: Mapping[str, Environment]
    store: EnvironmentStore
    default: Path

    def chosen(self, names: Sequence[str] | None) -> dict[str, Environment]:
        """Return these environments, or all. Raises Trouble for an unknown name."""
        for name in names or ():
            if name not in self.definitions:
                choices = ", ".join(self.definitions) or "none"
                raise Trouble(f"{plain(name, 80)}: no such environment; there are: {choices}")
        return {name: self.definitions[name] for name in names or self.definitions}


def environments() -> typer.Typer:
    """Return the commands `build`, `list`, `check`, `prune`, `pull` and `harbor`."""
    app = typer.Typer(
        help="Build and check environments: an interpreter with packages, by name.",
        no_args_is_help=True,
    )
    app.command("build")(build)
    app.command("list")(list_environments)
    app.command("check")(check)
    app.command("prune")(prune)
    app.command("pull")(pull)
    app.command("harbor")(harbor_environments)
    return app


def build(
    names: Names = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Also those that are built: for newer packages.")
    ] = False,
) -> None:
    """Build environments with uv, import their packages, and store them; or fetch their images."""
    with friendly():
        configured = _configured()
        failed = False
        for name, definition in configured.chosen(names).items():

            def progress(line: str, name: str = name) -> None:
                if text := plain(line):
                    aside().print(f"{name}: {text}", style="dim", markup=False, soft_wrap=True)

            try:
                built = configured.store.build(
                    name, definition, configured.default, progress, rebuild
                )
            except StartError as error:
                failed = True
                aside().print(f"proctor: {_lines(str(error))}", markup=False, soft_wrap=True)
            else:
                screen().print(_described(built), markup=False, soft_wrap=True)
        if failed:
            raise typer.Exit(TROUBLE)


def list_environments(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> None:
    """List the environments with interpreter, size and number of packages."""
    with friendly():
        configured = _configured()
        rows = [_row(name, configured) for name in configured.definitions]
        if as_json:
            for row in rows:
                typer.echo(json.dumps(row))
        elif rows:
            screen().print(_table(rows))
            for row in rows:
                if row["problem"] is not None:
                    aside().print(_lines(row["problem"]), markup=False, soft_wrap=True)
        else:
            screen().print("no environments")


def check(names: Names = None) -> None:
    """Import the packages of built environments again. Status 1: a problem was found."""
    with friendly():
        configured = _configured()
        sound = True
        for name, definition in configured.chosen(names).items():
            problems = configured.store.check(name, definition, configured.default)
            for problem in problems:
                screen().print(f"{name}: {_lines(problem)}", markup=False, soft_wrap=True)
            if not problems:
                screen().print(f"{name}: ok", markup=False)
            sound = sound and not problems
        if not sound:
            raise typer.Exit(UNSOUND)


def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing.")] = False,
) -> None:
    """Remove built folders unused by the environments of the file, and remains of killed builds."""
    with friendly():
        configured = _configured()
        store = configured.store
        keep = store.used_keys(configured.definitions.values(), configured.default)
        found = store.prune(keep, dry_run)
        for each in found:
            if each.is_busy or dry_run:
                what = "in use, or being built:" if each.is_busy else "would remove"
                contents = plain(" ".join(each.requirements) or "an unfinished build")
                line = f"{what} {each.folder} ({contents}, {_size(each.size_bytes)})"
                screen().print(line, markup=False, soft_wrap=True)
        if not dry_run:
            gone = [each for each in found if not each.is_busy]
            size = _size(sum(each.size_bytes for each in gone))
            screen().print(
                f"removed {len(gone)} {'folder' if len(gone) == 1 else 'folders'}, {size}"
            )


def harbor_environments(
    tasks: Annotated[Path, typer.Argument(help="A task, or a folder of tasks.")],
    images: Annotated[Path, typer.Option(help="Folder for the images that are built.")],
) -> None:
    """Build the images of Harbor tasks with buildah, and print an environments.toml for them."""
    with friendly():
        from proctor_service.features.environments.cli.harbor_images import build_images
        from proctor_service.features.environments.cli.harbor_tasks import load, print_step

        found = load(tasks, None, empty=True)
        typer.echo(build_images(found, images, print_step), nl=False)


def _configured() -> _Configured:
    """Return the environments of PROCTOR_ENVIRONMENTS. Raises Trouble without the file, StartError."""
    settings = settings_from()
    if settings.environments is None:
        raise Trouble(
            "PROCTOR_ENVIRONMENTS is not set: it names the TOML file of the environments, as in "
            "docs/environments.md"
        )
    from proctor_service.features.environments.store import EnvironmentStore, environments_folder
    from proctor_service.sandbox.environments import default_python
    from proctor_service.settings.environments import read_environments

    definitions = read_environments(settings.environments)
    return _Configured(
        definitions, EnvironmentStore(environments_folder(settings)), default_python(settings)
    )


def _row(name: str, configured: _Configured) -> dict[str, Any]:
    definition = configured.definitions[name]
    row: dict[str, Any] = {
        "name": name,
        "python": None if definition.image else definition.python or str(configured.default),
        "image": definition.image or None,
        "requirements": definition.requirements,
        "built": False,
        "problem": None,
    }
    try:
        built = configured.store.built(name, definition, configured.default)
    except StartError as error:
        return {**row, "problem": str(error)}
    return {
        **row,
        "built": True,
        "version": built.version,
        "interpreter": built.python and str(built.python),
        "size_bytes": None if built.folder is None else configured.store.size_bytes(built.folder),
        "packages": dict(built.packages),
        "digest": built.digest,
    }


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(
        Column("name", no_wrap=True),
        Column("python", overflow="fold"),
        Column("built", no_wrap=True),
        Column("size", justify="right", no_wrap=True),
        Column("packages", justify="right", no_wrap=True),
        box=None,
        pad_edge=False,
    )
    for row in rows:
        if row["built"]:
            size, packages = _size(row["size_bytes"]), str(len(row["packages"]))
            if row["image"]:
                packages = "-"
            what = Text(row["version"] or plain(row["image"], 60))
            table.add_row(row["name"], what, "yes", size, packages)
        else:
            no = Text("no", style="yellow")
            what = Text(plain(row["image"] or row["python"], 60))
            table.add_row(row["name"], what, no, "-", "-")
    return table


def _described(built: BuiltEnvironment) -> str:
    if built.image is not None:
        return f"{built.name}: image {built.image.digest}"
    packages = f"{len(built.packages)} {'package' if len(built.packages) == 1 else 'packages'}"
    return f"{built.name}: Python {built.version}, {packages}"


def _size(count: int | None) -> str:
    return "-" if count is None else f"{count / _MB:.1f} MB"


def _lines(text: str) -> str:
    """Return text of programs without control characters; its lines remain."""
    return "\n".join(plain(line, 500) for line in text.splitlines())
