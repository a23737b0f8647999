"""Command line with a module for each command; the start imports only the needed modules."""

from __future__ import annotations

from typing import Annotated

import typer

from proctor_service.cli.audit import audit
from proctor_service.cli.bench import benches
from proctor_service.cli.console import service_version
from proctor_service.cli.demo import demo
from proctor_service.cli.doctor import doctor
from proctor_service.cli.environments import environments
from proctor_service.cli.evaluation import evaluation
from proctor_service.cli.go_cache import go_cache
from proctor_service.cli.journal import journal
from proctor_service.cli.replay import replay
from proctor_service.cli.sandboxes import sandboxes
from proctor_service.cli.serve import serve


def build() -> typer.Typer:
    """Return the command line as a Typer app."""
    app = typer.Typer(
        name="proctor",
        help="Judges model-written code in sandboxes, and says what it was worth.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Every setting of the service is also a variable, PROCTOR_…",
    )
    app.callback()(_options)
    app.command()(serve)
    app.command()(doctor)
    app.command("eval")(evaluation)
    app.command()(audit)
    app.add_typer(benches(), name="bench")
    app.command()(demo)
    app.add_typer(sandboxes(), name="sandboxes")
    app.add_typer(journal(), name="journal")
    app.add_typer(environments(), name="env")
    app.command()(replay)
    app.command("go-cache")(go_cache)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"proctor {service_version()}")
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
