"""`proctor journal`: list, show, export and prune the records of evaluations and rollouts.

The commands read the database itself, so they need no running service.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.table import Column, Table
from rich.text import Text

from proctor_client import wire
from proctor_client.wire import long_integers
from proctor_service.cli.console import plain, screen
from proctor_service.cli.failures import Trouble, friendly
from proctor_service.features.journal.cli.export import exported
from proctor_service.features.journal.cli.record_texts import (
    evaluation_text,
    report_text,
    rollout_text,
)
from proctor_service.features.journal.cli.recorded import (
    Row,
    Tenant,
    reading,
    rows,
    writing,
)
from proctor_service.features.journal.pages.report import write_html

PAGE = 500
DAY_SECONDS = 86_400
Json = Annotated[bool, typer.Option("--json", help="Print JSON lines.")]


def journal() -> typer.Typer:
    """Return the commands `list`, `show`, `report`, `export` and `prune`."""
    app = typer.Typer(
        help="Look at what was judged, as the journal has recorded it.", no_args_is_help=True
    )
    app.command("list")(list_evaluations)
    app.command("show")(show)
    app.command("report")(report)
    app.command("export")(export)
    app.command("prune")(prune)
    return app


def list_evaluations(
    job: Annotated[str | None, typer.Option(help="Only this job.")] = None,
    step: Annotated[int | None, typer.Option(min=0, help="Only this step.")] = None,
    task: Annotated[str | None, typer.Option(help="Only this task or group.")] = None,
    verdict: Annotated[str | None, typer.Option(help="Only this verdict.")] = None,
    error: Annotated[
        str | None, typer.Option(help="Only without a reward, for this reason; '*': for any.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Only those that carry it.")] = None,
    signal: Annotated[str | None, typer.Option(help="Only with this signal of a hack.")] = None,
    text: Annotated[str | None, typer.Option(help="Only completions with these words.")] = None,
    tenant: Tenant = None,
    limit: Annotated[int, typer.Option(min=1, help="So many at most, the newest.")] = 50,
    as_json: Json = False,
) -> None:
    """List evaluations, the newest first."""
    with friendly():
        if verdict is not None and verdict not in get_args(wire.Verdict):
            raise Trouble(f"--verdict {plain(verdict, 40)}: it is one of {_names(wire.Verdict)}")
        with reading() as reader:
            from proctor_service.features.journal.filters import Filter

            wanted = Filter(
                job=job,
                step=step,
                task=task,
                verdict=verdict,
                error=error,
                tag=tag,
                signal=signal,
                words=text,
            )
            found = rows(reader.evaluations, tenant, wanted, page=PAGE, limit=limit)
            if as_json:
                for row in found:
                    typer.echo(json.dumps(row))
            elif listed := list(found):
                screen().print(_table(listed, time.time()))
            else:
                screen().print("no evaluations")


def show(
    id_: Annotated[str, typer.Argument(metavar="ID", help="ev_… or ro_…")],
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
) -> None:
    """Show one evaluation or rollout: texts, tests, output, failures, limits and usage."""
    with friendly(), reading() as reader:
        from proctor_service.features.journal.reading import parsed

        if id_.startswith("ev_"):
            found, text = reader.evaluation(None, id_), evaluation_text
        elif id_.startswith("ro_"):
            found, text = reader.rollout(None, id_), rollout_text
        else:
            raise Trouble(f"{plain(id_, 60)}: the id of an evaluation is ev_…, of a rollout ro_…")
        if found is None:
            raise Trouble(f"{plain(id_, 60)}: the journal has no such record")
        whole = parsed(found)
        shown = long_integers.dumps(whole, json.JSONEncoder(indent=2)) if as_json else text(whole)
        typer.echo(shown)


def report(
    job: Annotated[str, typer.Option(help="The job.")],
    tenant: Tenant = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write it with charts to this file, for a browser.")
    ] = None,
) -> None:
    """Print what training should know of a job: rewards, tasks, groups, signals, and warnings."""
    with friendly(), reading() as reader:
        if as_json and html is not None:
            raise Trouble("--json prints the report and --html writes it: give one of them")
        page = reader.job_page(tenant, job)
        if page is None:
            raise Trouble(f"{plain(job, 60)}: the journal has no evaluation of this job")
        if html is not None:
            write_html(page, tenant, html)
            screen().print(f"wrote the report to {html}", markup=False, soft_wrap=True)
            return
        found = {"job": job, **page["figures"]}
        typer.echo(json.dumps(found, indent=2) if as_json else report_text(found))


def export(
    job: Annotated[str, typer.Option(help="The job.")],
    out: Annotated[Path, typer.Option(help="The file to write.")],
    tenant: Tenant = None,
) -> None:
    """Write all evaluations of a job with their texts to a file that `datasets` loads."""
    with friendly(), reading() as reader:
        count = exported(reader, tenant, job, out)
        screen().print(
            f"wrote {count} {'evaluation' if count == 1 else 'evaluations'} to {out}",
            markup=False,
            soft_wrap=True,
        )


def prune(
    days: Annotated[float, typer.Option(min=0, help="Remove what is older than so many days.")],
) -> None:
    """Remove old evaluations and rollouts now."""
    with friendly(), writing() as store:
        before, count = time.time() - days * DAY_SECONDS, 0
        while removed := store.prune(before):
            count += removed
        while store.prune_texts():
            pass
        screen().print(f"removed {count} {'record' if count == 1 else 'records'}")


def _table(found: Sequence[Row], now: float) -> Table:
    table = Table(
        Column("id", no_wrap=True),
        Column("age", justify="right", no_wrap=True),
        Column("job", overflow="fold"),
        Column("step", justify="right", no_wrap=True),
        Column("task", overflow="fold"),
        Column("verdict", overflow="fold"),
        Column("reward", justify="right", no_wrap=True),
        box=None,
        pad_edge=False,
    )
    for row in found:
        verdict = row["error"] if row["verdict"] is None else row["verdict"]
        table.add_row(
            Text(plain(row["id"], 60)),
            _span(now - row["at"]),
            Text(plain(row["job"], 40)),
            "-" if row["step"] is None else str(row["step"]),
            Text(plain(row["task"] or "-", 40)),
            Text(plain(str(verdict), 40), style="" if row["error"] is None else "yellow"),
            "-" if row["reward"] is None else f"{row['reward']:.3g}",
        )
    return table


def _names(literal: object) -> str:
    return ", ".join(get_args(literal))


def _span(seconds: float) -> str:
    """Return an approximate duration: `42 s`, `7 min`, `3 h`, `2 d`."""
    seconds = max(0.0, seconds)
    for unit, length, until in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < until:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds // DAY_SECONDS:.0f} d"
