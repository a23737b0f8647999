"""`proctor eval`: judge problems of a file or a data set, and report the pass rate."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any, Literal, Protocol

import typer
from rich.console import Console
from rich.table import Column, Table

from proctor_client import Client, wire
from proctor_client.tasks.files import load_completions
from proctor_client.tasks.forms import Format
from proctor_client.tasks.predictions import GOLD, gold_predictions, read_predictions
from proctor_client.tasks.task import Completion, Task
from proctor_service.cli.console import aside, plain, print_list, progress, screen, write_json
from proctor_service.cli.failures import TROUBLE, UNSOUND, Trouble, friendly
from proctor_service.cli.judging import Attempt, message_of
from proctor_service.cli.problems import (
    Databases,
    Dataset,
    Split,
    Testlib,
    problems_of,
    supplies_of,
)
from proctor_service.cli.target import client_errors, connected
from proctor_service.features.evaluation.judging import attempts, judged
from proctor_service.features.evaluation.public_reports import PublicReport
from proctor_service.features.evaluation.scores import Scores, TaskScore

Form = Literal[Format, "harbor"]
SHOWN = 20
"""Number of listed failures; --output and the reports have all."""


@dataclass(slots=True)
class Summary:
    """Figures of the results, and the failed results."""

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


class Problems(Protocol):
    """Problems to judge: their ids in order, and the results of a service."""

    @property
    def ids(self) -> Sequence[str]:
        """Ids of the problems; an id stands here once for each completion."""

    def prepare(self) -> Mapping[str, str]:
        """Prepare a service of this command; return its variables."""

    def results(self, client: Client, job: str) -> Iterator[tuple[Attempt, wire.Result]]:
        """Yield each attempt with its result in order of completion. Raises ProctorError."""


@dataclass(frozen=True, slots=True)
class Completions:
    """Completions of problems, or their references."""

    attempts: Sequence[Attempt]
    extract: wire.Extract

    @property
    def ids(self) -> list[str]:
        """Ids of the problems."""
        return [each.task.id for each in self.attempts]

    def prepare(self) -> Mapping[str, str]:
        """Return an empty environment."""
        return {}

    def results(self, client: Client, job: str) -> Iterator[tuple[Attempt, wire.Result]]:
        """Yield each attempt with its result. Raises ProctorError."""
        return judged(client, self.attempts, extract=self.extract, job=job)


HarborTasks = Callable[[Path, "int | None", bool], Problems]
"""Tasks of a folder, at most so many; True: nothing is run before the verifier."""
WriteReport = Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]], Path], None]
"""Writer of the report for a browser: the JSON report, the rows that did not pass, and the file."""


def evaluation(parts: Mapping[str, Any]) -> Callable[..., None]:
    """Return the command. `parts`: `harbor` is a `HarborTasks`, and `html` a `WriteReport`."""
    return Evaluation(parts.get("harbor"), parts.get("html")).run


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The command `proctor eval`, with the parts of other features; None for a missing part."""

    harbor: HarborTasks | None
    write_report: WriteReport | None

    def run(
        self,
        file: Annotated[
            Path | None,
            typer.Argument(
                help="JSON lines or a JSON array, plain or .gz; for harbor a folder of tasks."
            ),
        ] = None,
        form: Annotated[
            Form | None, typer.Option("--format", "--form", help="What the rows are.")
        ] = None,
        dataset: Dataset = None,
        split: Split = None,
        testlib: Testlib = None,
        databases: Databases = None,
        completions: Annotated[
            Path | None,
            typer.Option(help="Rows of {task_id, completion}; default: the references."),
        ] = None,
        predictions: Annotated[
            str | None,
            typer.Option(
                help="For repositories: a public file of predictions (JSON lines, a list, or an object by "
                "id), or `gold`."
            ),
        ] = None,
        report: Annotated[
            Literal["swebench"] | None,
            typer.Option(help="Write the public harness's reports, MODEL.JOB.json and logs/."),
        ] = None,
        report_folder: Annotated[
            Path, typer.Option(help="Folder of the reports of --report.")
        ] = Path(),
        limit: Annotated[int | None, typer.Option(min=1, help="Only the first tasks.")] = None,
        extract: Annotated[
            wire.ExtractName | None,
            typer.Option(help="How code is taken out; default: none for references, else auto."),
        ] = None,
        job: Annotated[
            str, typer.Option(help="The name by which the service shares itself.")
        ] = "eval",
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
            problems: Problems
            public: PublicReport | None = None
            if report is not None and predictions is None:
                raise Trouble("--report is for --predictions")
            if form == "harbor":
                if dataset or completions or predictions or extract is not None:
                    raise Trouble(
                        "--dataset, --completions, --predictions and --extract are for files of problems"
                    )
                if file is None:
                    raise Trouble("harbor needs a folder of tasks")
                if self.harbor is None:
                    raise Trouble("this service has no environments, which harbor needs")
                name, problems = file.name, self.harbor(file, limit, empty)
            else:
                supplies = supplies_of(testlib, databases)
                name, form, tasks = problems_of(
                    file, dataset, form, split, limit, supplies, console
                )
                # A reference is code already.
                is_code = completions is None and form != "jsonl"
                mode = extract or ("none" if is_code or predictions else "auto")
                if predictions is None:
                    problems = Completions(_attempts(tasks, completions), mode)
                else:
                    public, predicted = _predicted(tasks, predictions, console)
                    problems = Completions(predicted, mode)
            ids = problems.ids
            if html_path is not None and self.write_report is None:
                raise Trouble("this service has no journal, which --html needs")
            for path in (json_path, html_path):
                if path is not None and not path.absolute().parent.is_dir():
                    raise Trouble(f"{path}: its folder does not exist")
            sink = stack.enter_context(_open(output)) if output else None
            client = stack.enter_context(connected(console, prepare=problems.prepare))
            started = time.monotonic()
            results = problems.results(client, job)
            summary = _follow(_noted(results, public), ids, sink, console)
            seconds = time.monotonic() - started
            summary.show(screen(), seconds, SHOWN)
            body = {"dataset": name, "format": form, "seconds": seconds, **summary.scores.report()}
            if json_path is not None:
                write_json(json_path, body)
            if public is not None and report is not None:
                console.print(str(public.write(report_folder, job)), markup=False)
            if html_path is not None and self.write_report is not None:
                names = ("task", "verdict", "message")
                rows = [dict(zip(names, row, strict=True)) for row in _rows(summary.unsound)]
                self.write_report(body, rows, html_path)
            if summary.scores.errors:
                raise typer.Exit(TROUBLE)
            if summary.scores.failed:
                raise typer.Exit(UNSOUND)


def _attempts(tasks: list[Task], completions: Path | None) -> list[Attempt]:
    """Return the completions of a file, or else the references. Raises Trouble."""
    if completions is not None:
        return attempts(load_completions(completions, tasks))
    for task in tasks:
        if task.reference is None:
            raise Trouble(f"{task.place}: no reference solution; give --completions")
    return attempts([(task, task.reference) for task in tasks if task.reference is not None])


def _predicted(
    tasks: list[Task], name: str, console: Console
) -> tuple[PublicReport, Sequence[Attempt]]:
    """Return the predictions of a file, or the tasks' own solutions. Raises DatasetError and Trouble."""
    repositories = [task for task in tasks if (task.grader or {}).get("kind") == "repository"]
    if not repositories:
        raise Trouble("--predictions is for tasks about repositories")
    found = gold_predictions(tasks) if name == GOLD else read_predictions(Path(name))
    by_id = {task.id: task for task in tasks}
    unknown = [each.id for each in found.predictions if each.id not in by_id]
    empty = [each.id for each in found.predictions if each.is_empty]
    for title, entries in (
        ("entries are no predictions", found.left_out),
        ("predictions are of no task in the data", unknown),
        ("predictions have no diff and are not judged", empty),
    ):
        if entries:
            console.print(f"{len(entries)} {title}, the first: {plain(entries[0])}", markup=False)
    pairs: list[tuple[Task, Completion]] = [
        (by_id[each.id], each.patch or "")
        for each in found.predictions
        if each.id in by_id and not each.is_empty
    ]
    return PublicReport(tasks, found), attempts(pairs)


def _noted(
    results: Iterable[tuple[Attempt, wire.Result]], public: PublicReport | None
) -> Iterator[tuple[Attempt, wire.Result]]:
    """Yield the results, and add each to the public report."""
    for attempt, result in results:
        if public is not None:
            public.add(attempt.task, result)
        yield attempt, result


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
