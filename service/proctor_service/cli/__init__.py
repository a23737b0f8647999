"""Command line with a module for each command, which is imported when the command is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from proctor_service.cli.failures import friendly
from proctor_service.cli.imports import paused_collector
from proctor_service.feature import Command
from proctor_service.features import FEATURES
from proctor_service.version import version

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
        "demo": Command(
            "cli.demo",
            "demo",
            "Judge a handful of completions, right and wrong, and show their rewards.",
        ),
        "bench": Command(
            "cli.bench",
            "benches",
            "Measure rewards per second and the latency of batches of 1, 10, 100 and 1,000.",
            is_group=True,
            takes_parts=True,
        ),
        "sandboxes": Command(
            "cli.sandboxes",
            "sandboxes",
            "List and stop the sandboxes that keep their state.",
            is_group=True,
        ),
        **{name: command for each in FEATURES for name, command in each.commands.items()},
    }
)
"""Commands by name. A name of two words is a part of the command that has the first word as its name."""

REMOVED_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "--url": "PROCTOR_URL",
        "--journal": "PROCTOR_JOURNAL",
        "--allow-degraded": "PROCTOR_ALLOW_DEGRADED",
        "--workers": "PROCTOR_WORKERS",
        "--max-queued": "PROCTOR_MAX_QUEUED",
        "--tokens-file": "PROCTOR_TOKENS_FILE",
        "--log-level": "PROCTOR_LOG_LEVEL",
        "--log-format": "PROCTOR_LOG_FORMAT",
    }
)
"""Options of earlier versions, and the variables that do the same."""


def load(name: str) -> Any:
    """Return the command with this name, for Typer; its module and its parts are imported here."""
    command = COMMANDS[name]
    with friendly(), paused_collector():  # Ctrl-C may come during the import
        function = _imported(command)
        parts = {
            each.removeprefix(f"{name} "): _imported(part)
            for each, part in COMMANDS.items()
            if each.startswith(f"{name} ")
        }
    if command.takes_parts:
        function = function(parts)
    elif command.is_group:
        function = function()
    app = typer.Typer()
    app.callback()(_no_options)
    if command.is_group:
        app.add_typer(function, name=name)
    else:
        app.command(name)(function)
    return typer.main.get_group(app).commands[name]


def _imported(command: Command) -> Any:
    return getattr(import_module(f"proctor_service.{command.module}"), command.function)


class _Commands(TyperGroup):
    """Group which lists commands without their modules, and imports the chosen command's module."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if name is not None and name in COMMANDS else command, rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            variable = REMOVED_OPTIONS.get(getattr(error, "option_name", ""))
            if variable is not None and hasattr(error, "message"):
                error.message += f"; set {variable}"
            raise


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
        if " " not in name:
            app.command(name, help=command.help)(_no_options)
    return app


def _no_options() -> None:
    """Stand in for a command before the import of its module."""


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
