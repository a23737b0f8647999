"""`proctor sandboxes list` and `stop`: manage stateful sandboxes, above all orphans.

The commands need a running service: a temporary service would have an empty list.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, get_args

import typer
from rich.table import Column, Table
from rich.text import Text

from proctor_client import wire
from proctor_service.cli.console import plain, screen
from proctor_service.cli.failures import Trouble, friendly
from proctor_service.cli.target import client_errors, existing

LIVE = ("pending", "running")
Json = Annotated[bool, typer.Option("--json", help="Print the service's answer as JSON.")]


def sandboxes() -> typer.Typer:
    """Return the commands `list` and `stop`."""
    app = typer.Typer(
        help="List and stop the sandboxes that keep their state.", no_args_is_help=True
    )
    app.command("list")(list_sandboxes)
    app.command("stop")(stop_sandboxes)
    return app


def list_sandboxes(
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="Only those that carry it; repeat.")
    ] = None,
    statuses: Annotated[
        list[str] | None,
        typer.Option("--status", help="Only those; repeat. Default: pending and running."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List your sandboxes with all of the given tags."""
    with friendly(), client_errors():
        wanted = statuses or LIVE
        for status in wanted:
            if status not in get_args(wire.SandboxStatus):
                choices = ", ".join(get_args(wire.SandboxStatus))
                raise Trouble(f"--status {status}: it is one of {choices}")
        with existing() as client:
            found = client.sandboxes(tags=tags or (), status=wanted)
        if as_json:
            _print_json(wire.SandboxList(sandboxes=found))
        elif found:
            screen().print(_table(found, datetime.now(UTC)))
        else:
            screen().print("no sandboxes")


def stop_sandboxes(
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", help="Those that carry it, and every other; repeat."),
    ] = None,
) -> None:
    """Stop your sandboxes with all of the given tags; at least one tag is required."""
    with friendly(), client_errors():
        if not tags:
            raise Trouble("--tag is missing: it says which sandboxes to stop")
        with existing() as client:
            count = client.stop_sandboxes(tags)
        screen().print(f"stopped {count} {'sandbox' if count == 1 else 'sandboxes'}")


def _print_json(answer: wire.Response) -> None:
    typer.echo(json.dumps(answer.model_dump(mode="json", exclude_unset=True), indent=2))


def _table(found: Sequence[wire.Sandbox], now: datetime) -> Table:
    texts = [Column(name, no_wrap=True) for name in ("id", "status")]
    numbers = [Column(name, justify="right", no_wrap=True) for name in ("age", "expires", "execs")]
    tags = Column("tags", overflow="fold")
    table = Table(*texts, *numbers, tags, box=None, pad_edge=False)
    for each in found:
        live = each.status in LIVE
        table.add_row(
            Text(plain(each.id, 60)),
            Text(plain(each.status, 20)),
            _span(now - each.created_at),
            f"in {_span(each.expires_at - now)}" if live else "-",
            str(each.exec_stats.total),
            Text(", ".join(plain(tag) for tag in each.tags)),
        )
    return table


def _span(time: timedelta) -> str:
    """Return an approximate duration: `42 s`, `7 min`, `3 h`, `2 d`."""
    seconds = max(0.0, time.total_seconds())
    for unit, length, until in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < until:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds // 86_400:.0f} d"
