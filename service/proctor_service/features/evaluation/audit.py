"""`proctor audit`: find errors in a data set before training spends GPU hours.

The audit judges every reference several times, and also check programs, which solve nothing. The
cache is off, since a flaky test shows only in repeated runs.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from proctor_client import Client, wire
from proctor_client.tasks.catalog import rows_of, source_of
from proctor_client.tasks.files import rows_of_file
from proctor_client.tasks.forms import Format
from proctor_client.tasks.task import Row, Task
from proctor_service.cli.console import aside, plain, print_list, progress, screen, write_json
from proctor_service.cli.failures import TROUBLE, UNSOUND, Trouble, friendly
from proctor_service.cli.judging import Attempt
from proctor_service.cli.problems import (
    Databases,
    Dataset,
    Split,
    Testlib,
    problems_of,
    supplies_of,
)
from proctor_service.cli.target import client_errors, connected
from proctor_service.features.evaluation import repository_audit
from proctor_service.features.evaluation.checks import CheckProgram, checks_of
from proctor_service.features.evaluation.judging import judged
from proctor_service.features.evaluation.reports import (
    LEVELS,
    TITLES,
    Examined,
    ProblemReport,
    reading_of,
)
from proctor_service.features.evaluation.reports import report as report_of
from proctor_service.judge.submission import Graders
from proctor_service.settings.language_rows import KNOWN_LANGUAGES
from proctor_service.settings.languages import Language
from proctor_service.version import version

JOB = "audit"
SHOWN = 20
SLOW_SECONDS = 1.0
"""A reference above so many CPU seconds holds up training; the report has the times of all."""
INK, BAND, LIMIT = "#1f4e79", "#9dc3e6", "#c00000"
_UNASSEMBLED: Mapping[str, None] = {"answer": None, "prompt_code": None, "suffix_code": None}
"""Check programs are whole programs."""


def audit(parts: Mapping[str, Callable[[Mapping[str, Language]], Graders]]) -> Callable[..., None]:
    """Return the command. `parts`: `graders` returns the rules of all graders."""
    return Audit(parts["graders"]).run


@dataclass(frozen=True, slots=True)
class Audit:
    """The command `proctor audit`. `graders_of`: returns the rules of all graders."""

    graders_of: Callable[[Mapping[str, Language]], Graders]

    def run(
        self,
        file: Annotated[
            Path | None, typer.Argument(help="JSON lines or a JSON array, plain or .gz.")
        ] = None,
        form: Annotated[
            Format | None,
            typer.Option("--format", "--form", help="What the rows are; default: what fits."),
        ] = None,
        dataset: Dataset = None,
        split: Split = None,
        testlib: Testlib = None,
        databases: Databases = None,
        repeat: Annotated[
            int, typer.Option(min=1, max=1000, help="Judge each reference this many times.")
        ] = 3,
        json_path: Annotated[
            Path | None, typer.Option("--json", help="Write a report with every result here.")
        ] = None,
        plot: Annotated[
            Path | None, typer.Option(help="Write a plot of the references' CPU times here, a PNG.")
        ] = None,
        sample: Annotated[
            int | None, typer.Option(min=1, help="Only so many problems, always the same ones.")
        ] = None,
        fit: Annotated[
            Path | None,
            typer.Option(help="For repositories: write the rows that are fit for training here."),
        ] = None,
    ) -> None:
        """Find errors in a data set: failing references, and flaky or vacuous tests.

        Status 0: no finding would harm training. 1: at least one would. 2: the audit could not finish.
        """
        with friendly(), client_errors(), ExitStack() as stack:
            if plot is not None:
                check_plotting()
            console = aside()
            supplies = supplies_of(testlib, databases)
            name, form, tasks = problems_of(file, dataset, form, split, None, supplies, console)
            if sample is not None and sample < len(tasks):
                tasks = random.Random(0).sample(tasks, sample)
            client = stack.enter_context(connected(console))
            started = time.monotonic()
            if all((task.grader or {}).get("kind") == "repository" for task in tasks):
                rows = repository_audit.audited(client, tasks, repeat, JOB, console)
                originals = _originals(file, dataset, form, split)
                _end_of_rows(rows, repeat, time.monotonic() - started, json_path, fit, originals)
                return
            if fit is not None:
                raise Trouble("--fit is for rows about repositories")
            examined = _examine(
                client, tasks, form, repeat, console, self.graders_of(KNOWN_LANGUAGES)
            )
            reports = [
                (each.task, report) for each in examined for report in each.reports(SLOW_SECONDS)
            ]
            out = screen()
            _show(out, examined, reports, repeat, time.monotonic() - started, SHOWN)
            if json_path is not None:
                write_json(
                    json_path,
                    _report(dataset or str(file), form, repeat, SLOW_SECONDS, examined, reports),
                )
            if plot is not None:
                seconds = [each.seconds for each in examined]
                plot_times(seconds, SLOW_SECONDS, f"{name}, {repeat} runs each", plot)
            _end(out, examined, reports)


def _originals(
    file: Path | None, dataset: str | None, form: Format, split: str | None
) -> Iterator[tuple[str, Row]]:
    """Return the rows as they are in the file or the data set."""
    if dataset is not None:
        return rows_of(dataset, source_of(dataset, form), split)
    assert file is not None
    return rows_of_file(file)


def _end_of_rows(
    rows: Sequence[repository_audit.AuditedRow],
    repeat: int,
    seconds: float,
    json_path: Path | None,
    fit: Path | None,
    originals: Iterator[tuple[str, Row]],
) -> None:
    """Show the audit of repositories, and write its files. Status 1: a row is unfit; 2: one is unjudged."""
    out = screen()
    repository_audit.show(out, rows, repeat, seconds, SHOWN)
    if json_path is not None:
        write_json(json_path, repository_audit.report_of(rows))
    if fit is not None:
        count = repository_audit.write_fit(fit, rows, originals)
        out.print(f"\n{count} rows that are fit: {fit}", markup=False)
    states = {each.found.state for each in rows}
    if "unjudged" in states:
        raise typer.Exit(TROUBLE)
    if states - {"fit"}:
        raise typer.Exit(UNSOUND)


def _examine(
    client: Client,
    tasks: Sequence[Task],
    form: Format,
    repeat: int,
    console: Console,
    graders: Graders,
) -> list[Examined]:
    """Judge references and check programs; return the results in the order of the tasks."""
    examined = {task.place: Examined(task, reading=reading_of(task, graders)) for task in tasks}
    checks = {task.place: checks_of(task) for task in tasks}
    # Run by run, so that time passes between the runs of a problem.
    references = [
        Attempt(task, task.reference, run)
        for run in range(repeat)
        for task in tasks
        if task.reference is not None
    ]
    tries = [
        Attempt(task.with_fields(_UNASSEMBLED), probe.program, number)
        for task in tasks
        for number, probe in enumerate(checks[task.place])
    ]
    with progress(console) as bar:
        line = bar.add_task("references", total=len(references) + len(tries))
        extract: wire.Extract = "auto" if form == "jsonl" else "none"
        for attempt, result in judged(client, references, extract=extract, job=JOB, cache=False):
            examined[attempt.task.place].reference.append(result)
            bar.update(line, advance=1)
        bar.update(line, description="probes")
        for attempt, result in judged(client, tries, extract="none", job=JOB, cache=False):
            probe: CheckProgram = checks[attempt.task.place][attempt.sample]
            examined[attempt.task.place].checks[probe.name] = result
            bar.update(line, advance=1)
    return list(examined.values())


def _show(
    out: Console,
    examined: Sequence[Examined],
    reports: Sequence[tuple[Task, ProblemReport]],
    repeat: int,
    seconds: float,
    most: int,
) -> None:
    counts = Counter(report.kind for _, report in reports)
    references = sum(bool(each.reference) for each in examined)
    table = Table.grid(padding=(0, 2))
    table.add_row("problems", str(len(examined)))
    table.add_row("references", f"{references}, judged {repeat} times each")
    levels = Counter(each.level for each in examined)
    if any(levels[level] for level in LEVELS):
        text = ", ".join(f"{levels[level]} {level}" for level in LEVELS if levels[level])
        table.add_row("levels", text)
    controlled = sum(bool(each.reading and each.reading.clear_expectations) for each in examined)
    table.add_row("with a clear expectation", f"{controlled}, for a negative control")
    bearing = sum("negative_control" in each.fields for each in examined)
    if bearing:
        table.add_row("can bear", f'{bearing}, `"negative_control": "verdict"`')
    for kind, title in TITLES.items():
        style = "red" if counts[kind] and ProblemReport(kind, "").harms else ""
        table.add_row(title, Text(str(counts[kind]), style=style))
    table.add_row("time", f"{seconds:.1f} s")
    out.print(table)
    for kind, title in TITLES.items():
        found = [(plain(t.id, 60), plain(each.detail)) for t, each in reports if each.kind == kind]
        if kind != "no_reference":
            columns = Column("problem", no_wrap=True), Column("what", overflow="fold")
            print_list(out, title[0].upper() + title[1:], columns, found, most)


def _report(
    dataset: str,
    form: Format,
    repeat: int,
    SLOW_SECONDS: float,
    examined: Sequence[Examined],
    reports: Sequence[tuple[Task, ProblemReport]],
) -> dict[str, Any]:
    counts = Counter(report.kind for _, report in reports)
    return {
        "dataset": dataset,
        "format": form,
        "repeat": repeat,
        "SLOW_SECONDS": SLOW_SECONDS,
        "proctor": version(),
        "problems": len(examined),
        "counts": {kind: counts[kind] for kind in TITLES},
        "harmful": len({task.place for task, report in reports if report.harms}),
        "tasks": report_of(examined, SLOW_SECONDS),
    }


def _end(
    out: Console, examined: Sequence[Examined], reports: Sequence[tuple[Task, ProblemReport]]
) -> None:
    failures = [(each.task, failure) for each in examined for failure in each.failures]
    if failures:
        task, failure = failures[0]
        why = failure.error.message if failure.error else ""
        out.print(
            f"\n{len(failures)} could not be judged, {task.id}: {plain(why)}",
            markup=False,
            style="red",
        )
        raise typer.Exit(TROUBLE)
    if any(report.harms for _, report in reports):
        raise typer.Exit(UNSOUND)
    out.print("\nNothing was found that would harm training.")


def check_plotting() -> None:
    """Raise Trouble, with the name of the extra, if matplotlib is missing."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise Trouble(
            "a plot needs matplotlib: python -m pip install 'proctor-service[bench]'"
        ) from None


def plot_times(
    runs: Sequence[Sequence[float]], SLOW_SECONDS: float, title: str, path: Path
) -> None:
    """Plot the CPU times of each problem in seconds, fastest problem first.

    Each problem has a line for the range of its runs, and a point for the fastest run.
    """
    from matplotlib.figure import Figure

    ranked = sorted((each for each in runs if each), key=min)
    fastest = [max(min(each), 1e-4) for each in ranked]
    slowest = [max(max(each), 1e-4) for each in ranked]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    places = range(1, len(ranked) + 1)
    axes.vlines(places, fastest, slowest, color=BAND, linewidth=1.5, label="all runs")
    axes.plot(places, fastest, ".", color=INK, markersize=4, label="fastest run")
    axes.axhline(SLOW_SECONDS, color=LIMIT, linewidth=1, linestyle="--", label="slow")
    axes.set_yscale("log")
    axes.set_xlabel("problems, by time")
    axes.set_ylabel("CPU seconds")
    axes.set_title(title)
    axes.legend(frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    try:
        figure.savefig(path, format="png", dpi=130)
    except OSError as error:
        raise Trouble(f"{path}: {error.strerror}") from None
