"""`proctor eval`: judge a file of problems, and report the pass rate."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Column, Table

from proctor_client import wire
from proctor_service.cli.console import (
    TROUBLE,
    UNSOUND,
    Trouble,
    aside,
    friendly,
    plain,
    print_list,
    progress,
    screen,
)
from proctor_service.cli.datasets import Format, Task, load_completions, load_tasks
from proctor_service.cli.harbor_tasks import evaluated, load, own_environments
from proctor_service.cli.judging import Attempt, attempts, judged, message_of
from proctor_service.cli.target import AllowDegraded, Prepare, Url, connected

Form = Literal[Format, "harbor"]


@dataclass(slots=True)
class Summary:
    """Results by task and verdict, with items that could not be judged counted apart."""

    verdicts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    rewards: list[float] = field(default_factory=list)
    unsound: list[tuple[Attempt, wire.Result]] = field(default_factory=list)
    solved: defaultdict[str, bool] = field(default_factory=lambda: defaultdict(bool))

    @property
    def passed(self) -> int:
        """Number of passed submissions."""
        return self.verdicts["passed"]

    @property
    def failed(self) -> int:
        """Number of submissions with another verdict."""
        return self.verdicts.total() - self.passed

    @property
    def errors(self) -> int:
        """Number of submissions without a verdict."""
        return self.reasons.total()

    def add(self, attempt: Attempt, result: wire.Result) -> None:
        """Count a result."""
        self.solved[attempt.task.id] |= result.verdict == "passed"
        if result.error is not None:
            self.reasons[result.error.reason] += 1
        else:
            self.verdicts[result.verdict or "?"] += 1
            self.rewards.append(result.reward or 0.0)
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
        judged = len(self.rewards)
        if judged:
            table.add_row("pass rate", f"{100 * self.passed / judged:.1f} %")
            table.add_row("mean reward", f"{sum(self.rewards) / judged:.4f}")
        if len(self.solved) < judged + self.errors:
            table.add_row("tasks solved", f"{sum(self.solved.values())} of {len(self.solved)}")
        for verdict, count in self.verdicts.most_common():
            table.add_row(verdict, str(count))
        for reason, count in self.reasons.most_common():
            table.add_row(f"error: {reason}", str(count))
        rate = (judged + self.errors) / seconds if seconds else 0.0
        table.add_row("time", f"{seconds:.1f} s, {rate:.0f} a second")
        return table


def evaluation(
    file: Annotated[
        Path,
        typer.Argument(
            help="JSON lines or a JSON array, plain or .gz; for harbor a folder of tasks."
        ),
    ],
    form: Annotated[Form, typer.Option("--format", help="What the rows are.")],
    completions: Annotated[
        Path | None,
        typer.Option(help="Rows of {task_id, completion}; default: the references."),
    ] = None,
    url: Url = None,
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
    empty: Annotated[
        bool, typer.Option("--empty", help="For harbor: judge untouched sandboxes.")
    ] = False,
    allow_degraded: AllowDegraded = False,
) -> None:
    """Judge a file of problems: completions of them, or the reference solutions.

    With --format harbor, run the solution/solve.sh of each task, and then its verifier.

    Status 0: all passed. 1: some failed. 2: some or all could not be judged.
    """
    with friendly(), ExitStack() as stack:
        console = aside()
        if form == "harbor":
            if completions is not None or extract is not None:
                raise Trouble("--completions and --extract are for files of problems")
            tasks = load(file, limit, empty=empty)
            prepare: Prepare = partial(own_environments, tasks)
            count = len(tasks)
        else:
            items = _load(file, form, completions, limit)
            prepare, count = dict, len(items)
        sink = stack.enter_context(_open(output)) if output else None
        client = stack.enter_context(
            connected(url, console, allow_degraded=allow_degraded, prepare=prepare)
        )
        started = time.monotonic()
        if form == "harbor":
            results = evaluated(client, tasks, job=job, empty=empty)
        else:
            mode = extract or _extract(form, given=completions is not None)
            results = judged(client, items, extract=mode, job=job)
        summary = _follow(results, count, sink, console)
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


def _show(title: str, pairs: list[tuple[Attempt, wire.Result]], most: int, out: Console) -> None:
    shown = []
    for attempt, result in sorted(pairs, key=lambda pair: (pair[0].task.place, pair[0].sample)):
        name = f"{attempt.task.id} #{attempt.sample}" if attempt.sample else attempt.task.id
        verdict = result.error.reason if result.error else result.verdict or ""
        shown.append((plain(name, 60), verdict, plain(message_of(result))))
    columns = [Column(each, no_wrap=True) for each in ("task", "verdict")]
    print_list(out, title, [*columns, Column("message", overflow="fold")], shown, most)
