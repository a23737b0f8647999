"""`proctor eval`: judge problems of a file or a data set, and report the pass rate."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Column, Table

from proctor_client import wire
from proctor_client.tasks.files import load_completions
from proctor_client.tasks.forms import Format
from proctor_client.tasks.task import Task
from proctor_service.cli.console import aside, plain, print_list, progress, screen, write_json
from proctor_service.cli.failures import TROUBLE, UNSOUND, Trouble, friendly
from proctor_service.cli.problems import Dataset, Split, problems_of
from proctor_service.cli.target import Prepare, client_errors, connected
from proctor_service.features.environments.cli.harbor_tasks import evaluated, load, own_environments
from proctor_service.features.evaluation.judging import Attempt, attempts, judged, message_of
from proctor_service.features.evaluation.scores import Scores, TaskScore
from proctor_service.features.journal.cli.html_report import write_eval_html

Form = Literal[Format, "harbor"]
SHOWN = 20
"""Failures that are listed; --output and the reports have all."""


@dataclass(slots=True)
class Summary:
    """Figures of the results, and those that did not pass."""

    scores: Scores = field(default_factory=Scores)
    unsound: list[tuple[Attempt, wire.Result]] = field(default_factory=list)

    def add(self, attempt: Attempt, result: wire.Result) -> None:
        """Count a result."""
        reason = None if result.error is None else result.error.reason
        self.scores.add(attempt.task.id, result.verdict, result.reward, reason)
        if result.verdict != "passed":
            self.unsound.append((attempt, result))

    def show(self, out: Console, seconds: float, most: int) -> None:
        """Print the summary, then at most `most` failures and at most `most` errors."""
        out.print(self._summary(seconds))
        failures = [pair for pair in self.unsound if pair[1].error is None]
        errors = [pair for pair in self.unsound if pair[1].error is not None]
        _show("Failures", failures, most, out)
        _show("Could not be judged", errors, most, out)

    def _summary(self, seconds: float) -> Table:
        table = Table.grid(padding=(0, 2))
        scores = self.scores
        if scores.judged:
            table.add_row("pass rate", f"{100 * scores.passed / scores.judged:.1f} %")
            table.add_row("mean reward", f"{scores.mean_reward:.4f}")
        for each in scores.pass_at():
            interval = f"{100 * each.low:.1f} to {100 * each.high:.1f} %"
            table.add_row(f"pass@{each.k}", f"{100 * each.estimate:.1f} % ({interval})")
        if len(scores.tasks) < scores.judged + scores.errors:
            table.add_row("tasks solved", f"{scores.solved} of {len(scores.tasks)}")
        for verdict, count in scores.verdicts.most_common():
            table.add_row(verdict, str(count))
        for reason, count in scores.reasons.most_common():
            table.add_row(f"error: {reason}", str(count))
        rate = (scores.judged + scores.errors) / seconds if seconds else 0.0
        table.add_row("time", f"{seconds:.1f} s, {rate:.0f} a second")
        return table


def evaluation(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="JSON lines or a JSON array, plain or .gz; for harbor a folder of tasks."
        ),
    ] = None,
    form: Annotated[Form | None, typer.Option("--format", help="What the rows are.")] = None,
    dataset: Dataset = None,
    split: Split = None,
    completions: Annotated[
        Path | None,
        typer.Option(help="Rows of {task_id, completion}; default: the references."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first tasks.")] = None,
    extract: Annotated[
        wire.ExtractName | None,
        typer.Option(help="How code is taken out; default: none for references, else auto."),
    ] = None,
    job: Annotated[str, typer.Option(help="The name by which the service shares itself.")] = "eval",
    output: Annotated[
        Path | None, typer.Option(help="Write each result here, a JSON line as it comes.")
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write a report with all figures here.")
    ] = None,
    html_path: Annotated[
        Path | None, typer.Option("--html", help="Write a report for a browser here.")
    ] = None,
    empty: Annotated[
        bool, typer.Option("--empty", help="For harbor: judge untouched sandboxes.")
    ] = False,
) -> None:
    """Judge the problems of a file or of a data set: completions, or the reference solutions.

    With --format harbor, run the solution/solve.sh of each task, and then its verifier.

    Status 0: all passed. 1: some failed. 2: some or all could not be judged.
    """
    with friendly(), client_errors(), ExitStack() as stack:
        console = aside()
        if form == "harbor":
            if dataset or completions is not None or extract is not None:
                raise Trouble("--dataset, --completions and --extract are for files of problems")
            if file is None:
                raise Trouble("harbor needs a folder of tasks")
            tasks = load(file, limit, empty=empty)
            prepare: Prepare = partial(own_environments, tasks)
            name, ids = file.name, [each.id for each in tasks]
        else:
            name, form, problems = problems_of(file, dataset, form, split, limit, console)
            items = _items(problems, completions)
            prepare, ids = dict, [each.task.id for each in items]
        for path in (json_path, html_path):
            if path is not None and not path.absolute().parent.is_dir():
                raise Trouble(f"{path}: its folder does not exist")
        sink = stack.enter_context(_open(output)) if output else None
        client = stack.enter_context(connected(console, prepare=prepare))
        started = time.monotonic()
        if form == "harbor":
            results = evaluated(client, tasks, job=job, empty=empty)
        else:
            mode = extract or _extract(form, items, given=completions is not None)
            results = judged(client, items, extract=mode, job=job)
        summary = _follow(results, ids, sink, console)
        seconds = time.monotonic() - started
        summary.show(screen(), seconds, SHOWN)
        _write_reports(
            summary,
            {"dataset": name, "format": form, "seconds": seconds},
            json_path,
            html_path,
        )
        if summary.scores.errors:
            raise typer.Exit(TROUBLE)
        if summary.scores.failed:
            raise typer.Exit(UNSOUND)


def _items(tasks: list[Task], completions: Path | None) -> list[Attempt]:
    if completions is not None:
        return attempts(load_completions(completions, tasks))
    return attempts([(task, _reference(task)) for task in tasks])


def _reference(task: Task) -> str | list[dict[str, object]]:
    if task.reference is None:
        raise Trouble(f"{task.place}: no reference solution; give --completions")
    return task.reference


def _extract(form: Format, items: Sequence[Attempt], *, given: bool) -> wire.Extract:
    """Return the default extraction mode: a reference is already code."""
    return "auto" if given or form == "jsonl" else "none"


def _open(path: Path) -> IO[str]:
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise Trouble(f"{path}: {error.strerror}") from None


def _follow(
    results: Iterable[tuple[Attempt, wire.Result]],
    ids: Sequence[str],
    sink: IO[str] | None,
    console: Console,
) -> Summary:
    """Add the results to the summary, the progress bar and the file as they arrive.

    The summary has the tasks in the order of `ids`, however the results arrive.
    """
    summary = Summary(Scores({each: TaskScore() for each in ids}))
    with progress(console) as bar:
        line = bar.add_task("judging", total=len(ids))
        for attempt, result in results:
            summary.add(attempt, result)
            bar.update(line, advance=1, description=f"{summary.scores.passed} passed")
            if sink is not None:
                sink.write(_record(attempt, result) + "\n")
                sink.flush()
    return summary


def _write_reports(
    summary: Summary, about: dict[str, Any], json_path: Path | None, html_path: Path | None
) -> None:
    body = about | summary.scores.report()
    if json_path is not None:
        write_json(json_path, body)
    if html_path is not None:
        unsound = [
            {"task": task, "verdict": verdict, "message": text}
            for task, verdict, text in _rows(summary.unsound)
        ]
        write_eval_html(body, unsound, html_path)


def _rows(pairs: list[tuple[Attempt, wire.Result]]) -> list[tuple[str, str, str]]:
    """Return task, verdict or reason, and message of results, in the order of the tasks."""
    rows = []
    for attempt, result in sorted(pairs, key=lambda pair: (pair[0].task.place, pair[0].sample)):
        name = f"{attempt.task.id} #{attempt.sample}" if attempt.sample else attempt.task.id
        verdict = result.error.reason if result.error else result.verdict or ""
        rows.append((name, verdict, message_of(result)))
    return rows


def _record(attempt: Attempt, result: wire.Result) -> str:
    named = {"task_id": attempt.task.id, "sample": attempt.sample}
    return json.dumps(named | result.model_dump(mode="json", exclude={"index", "id", "group"}))


def _show(title: str, pairs: list[tuple[Attempt, wire.Result]], most: int, out: Console) -> None:
    shown = [(plain(name, 60), verdict, plain(text)) for name, verdict, text in _rows(pairs)]
    columns = [Column(each, no_wrap=True) for each in ("task", "verdict")]
    print_list(out, title, [*columns, Column("message", overflow="fold")], shown, most)
