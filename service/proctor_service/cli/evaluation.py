"""`proctor eval`: judge a file of problems, and report the pass rate."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Annotated

import typer
from rich.console import Console

from proctor_client import wire
from proctor_service.cli.console import TROUBLE, UNSOUND, Trouble, aside, friendly, progress, screen
from proctor_service.cli.datasets import Format, Task, load_completions, load_tasks
from proctor_service.cli.judging import Attempt, attempts, judged
from proctor_service.cli.summary import Summary
from proctor_service.cli.target import connected


def evaluation(
    file: Annotated[Path, typer.Argument(help="JSON lines, plain or .gz.")],
    form: Annotated[Format, typer.Option("--format", help="What the rows are.")],
    completions: Annotated[
        Path | None,
        typer.Option(help="JSON lines of {task_id, completion}; default: the references."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            help="The service; default: PROCTOR_URL, or the local one, or one of its own."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first tasks.")] = None,
    extract: Annotated[
        wire.Extract | None,
        typer.Option(help="How code is taken out; default: none for references, else auto."),
    ] = None,
    job: Annotated[str, typer.Option(help="The name by which the service shares itself.")] = "eval",
    output: Annotated[
        Path | None, typer.Option(help="Write each result here, a JSON line as it comes.")
    ] = None,
    show: Annotated[int, typer.Option(min=0, help="List this many failures at most.")] = 20,
    allow_degraded: Annotated[
        bool,
        typer.Option("--allow-degraded", help="For a service of its own: as in `proctor serve`."),
    ] = False,
) -> None:
    """Judge a file of problems: completions of them, or the reference solutions.

    Status 0: all passed. 1: some failed. 2: some or all could not be judged.
    """
    with friendly(), ExitStack() as stack:
        items = _load(file, form, completions, limit)
        sink = stack.enter_context(_open(output)) if output else None
        console = aside()
        client = stack.enter_context(connected(url, console, allow_degraded=allow_degraded))
        mode = extract or _extract(form, given=completions is not None)
        started = time.monotonic()
        summary = _follow(judged(client, items, extract=mode, job=job), len(items), sink, console)
        summary.show(screen(), time.monotonic() - started, show)
        if summary.errors:
            raise typer.Exit(TROUBLE)
        if summary.failed:
            raise typer.Exit(UNSOUND)


def _load(file: Path, form: Format, completions: Path | None, limit: int | None) -> list[Attempt]:
    tasks = load_tasks(file, form)[:limit]
    if completions is not None:
        return attempts(load_completions(completions, tasks))
    return attempts([(task, _reference(task)) for task in tasks])


def _reference(task: Task) -> str | list[dict[str, object]]:
    if task.reference is None:
        raise Trouble(f"{task.place}: no reference solution; give --completions")
    return task.reference


def _extract(form: Format, *, given: bool) -> wire.Extract:
    """Return the default extraction mode.

    HumanEval programs are assembled here, and a reference is already code.
    """
    if form == "humaneval":
        return "none"
    return "auto" if given or form == "jsonl" else "none"


def _open(path: Path) -> IO[str]:
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise Trouble(f"{path}: {error.strerror}") from None


def _follow(
    results: Iterable[tuple[Attempt, wire.Result]],
    count: int,
    sink: IO[str] | None,
    console: Console,
) -> Summary:
    """Add the results to the summary, the progress bar and the file as they arrive."""
    summary = Summary()
    with progress(console) as bar:
        line = bar.add_task("judging", total=count)
        for attempt, result in results:
            summary.add(attempt, result)
            bar.update(line, advance=1, description=f"{summary.passed} passed")
            if sink is not None:
                sink.write(_record(attempt, result) + "\n")
                sink.flush()
    return summary


def _record(attempt: Attempt, result: wire.Result) -> str:
    named = {"task_id": attempt.task.id, "sample": attempt.sample}
    return json.dumps(named | result.model_dump(mode="json", exclude={"index", "id", "group"}))
