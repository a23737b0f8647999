"""Command line with a module for each command, which is imported when the command is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from proctor_service.cli.failures import friendly
from proctor_service.cli.imports import paused_collector
from proctor_service.version import version


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its module in this service, the function there, and the line in the list of commands.

    `is_group`: the function returns further commands as a Typer app.
    """

    module: str
    function: str
    help: str
    is_group: bool = False

    def load(self, name: str) -> Any:
        """Return the command itself under this name, for Typer."""
        with friendly(), paused_collector():  # Ctrl-C may come during the import
            function = getattr(import_module(f"proctor_service.{self.module}"), self.function)
        app = typer.Typer()
        app.callback()(_no_options)
        if self.is_group:
            app.add_typer(function(), name=name)
        else:
            app.command(name)(function)
        return typer.main.get_group(app).commands[name]


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "serve": Command(
            "cli.serve",
            "serve",
            "Run the service until Ctrl-C or SIGTERM; running work may finish within the grace period.",
        ),
        "doctor": Command(
            "cli.doctor",
            "doctor",
            "Show the protections and languages of this machine. Status 1: isolation is incomplete.",
        ),
        "eval": Command(
            "features.evaluation.evaluation",
            "evaluation",
            "Judge the problems of a file or of a data set: completions, or the reference solutions.",
        ),
        "audit": Command(
            "features.evaluation.audit",
            "audit",
            "Find errors in a data set: failing references, and flaky or vacuous tests.",
        ),
        "demo": Command(
            "cli.demo",
            "demo",
            "Judge a handful of completions, right and wrong, and show their rewards.",
        ),
        "replay": Command(
            "features.journal.cli.replay",
            "replay",
            "Judge all recorded evaluations of a job again, and list the rewards that changed.",
        ),
        "go-cache": Command(
            "features.languages.go_cache",
            "go_cache",
            "Compile Go's standard library into a build cache for all sandboxes: PROCTOR_GO_CACHE.",
        ),
        "bench": Command(
            "cli.bench",
            "benches",
            "Measure rewards per second and the latency of batches of 1, 10, 100 and 1,000.",
            is_group=True,
        ),
        "sandboxes": Command(
            "cli.sandboxes",
            "sandboxes",
            "List and stop the sandboxes that keep their state.",
            is_group=True,
        ),
        "journal": Command(
            "features.journal.cli.journal",
            "journal",
            "Look at what was judged, as the journal has recorded it.",
            is_group=True,
        ),
        "env": Command(
            "features.environments.cli.environments",
            "environments",
            "Build and check environments: an interpreter with packages, by name.",
            is_group=True,
        ),
    }
)


class _Commands(TyperGroup):
    """Group that lists commands without their modules, and imports the module of the chosen one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        chosen = None if name is None else COMMANDS.get(name)
        return name, command if name is None or chosen is None else chosen.load(name), rest


def build() -> typer.Typer:
    """Return the command line as a Typer app."""
    app = typer.Typer(
        cls=_Commands,
        name="proctor",
        help="Judges model-written code in sandboxes, and says what it was worth.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Every setting of the service is also a variable, PROCTOR_…",
    )
    app.callback()(_options)
    for name, command in COMMANDS.items():
        app.command(name, help=command.help)(_no_options)
    return app


def _no_options() -> None:
    """Stand in for a command whose module is not imported."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"proctor {version()}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Judge model-written code in sandboxes, and report its value."""
