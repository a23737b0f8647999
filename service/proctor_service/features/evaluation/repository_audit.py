"""Audit of tasks about repositories: the tests with the solution and without a change, several times each.

A row is fit for training if its tests always fail without a change and always pass with the solution.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Column, Table

from proctor_client import Client, wire
from proctor_client.tasks.task import Row, Task
from proctor_service.cli.console import plain, print_list, progress
from proctor_service.cli.failures import Trouble
from proctor_service.cli.judging import Attempt, message_of
from proctor_service.features.evaluation.judging import judged

State = Literal["fit", "flaky", "broken", "needs_network", "unjudged"]
TITLES: Mapping[State, str] = {
    "fit": "fit for training",
    "flaky": "flaky",
    "broken": "broken",
    "needs_network": "need the network",
    "unjudged": "could not be judged",
}
_UNCHANGED = """\
diff --git a/proctor_audit.txt b/proctor_audit.txt
new file mode 100644
--- /dev/null
+++ b/proctor_audit.txt
@@ -0,0 +1 @@
+This file changes nothing: the tests run as they do without a change.
"""
"""A diff that changes no code, since without any diff no test runs."""
_NETWORK = re.compile(
    r"Temporary failure in name resolution|Name or service not known|nodename nor servname"
    r"|Network is unreachable|Could not resolve host|getaddrinfo|ENOTFOUND|EAI_AGAIN|ENETUNREACH"
    r"|UnknownHostException|dial tcp|no such host|NewConnectionError|Failed to establish a new connection"
)
"""Errors of programs without a network: `curl: (6) Could not resolve host: pypi.org`."""
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
"""An address of memory in a test's name: `test_a[<object at 0x7f3a5c1d2e80>]`."""
_INVALID = frozenset({"invalid_task", "unknown_environment"})
"""Errors of the row itself."""


@dataclass(frozen=True, slots=True)
class RowState:
    """Whether a row is fit for training, and the reason if it is not."""

    state: State
    reason: str = ""


@dataclass(slots=True)
class AuditedRow:
    """Task with its results: with the solution, and without a change."""

    task: Task
    gold: list[wire.Result] = field(default_factory=list)
    unchanged: list[wire.Result] = field(default_factory=list)

    @property
    def found(self) -> RowState:
        """State of the row, by its results."""
        results = [*self.gold, *self.unchanged]
        invalid = next((each for each in results if _reason(each) in _INVALID), None)
        if invalid is not None:
            return RowState("broken", message_of(invalid))
        error = next((each for each in results if each.error is not None), None)
        if error is not None:
            return RowState("unjudged", message_of(error))
        if not self.gold:
            return RowState("broken", "no solution")
        return self._unsteady() or self._failing() or self._passing() or RowState("fit")

    def _unsteady(self) -> RowState | None:
        for name, results in (("the solution", self.gold), ("no change", self.unchanged)):
            verdicts = Counter(str(each.verdict) for each in results)
            if len({_outcome(each) for each in results}) > 1:
                names = _unsteady_names(results)
                counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
                return RowState("flaky", f"with {name} {counts}{_listed(names)}")
        return None

    def _failing(self) -> RowState | None:
        failed = next((each for each in self.gold if each.verdict != "passed"), None)
        if failed is None:
            return None
        names = _failed(failed)
        text = f"with the solution {failed.verdict}{_listed(names)}"
        if _NETWORK.search(f"{failed.stdout}\n{failed.stderr}\n{failed.message}"):
            return RowState("needs_network", text)
        if any(name.count("[") > name.count("]") for name in names):
            return RowState("broken", f"{text}: a name that is cut")
        if any(_ADDRESS.search(name) for name in names):
            return RowState("broken", f"{text}: an address in a name")
        detail = "" if names else f": {message_of(failed)}"
        return RowState("broken", f"{text}{detail}")

    def _passing(self) -> RowState | None:
        if any(each.verdict == "passed" for each in self.unchanged):
            return RowState("broken", "passes without a change")
        return None


def audited(
    client: Client, tasks: Sequence[Task], repeat: int, job: str, console: Console
) -> list[AuditedRow]:
    """Judge each task's solution and an empty change, `repeat` times each; in the order of the tasks.

    Raises ProctorError.
    """
    rows = {task.place: AuditedRow(task) for task in tasks}
    # Run by run, so that time passes between the runs of a task.
    runs = [
        (is_gold, Attempt(task, (task.reference if is_gold else None) or _UNCHANGED, run))
        for run in range(repeat)
        for is_gold in (True, False)
        for task in tasks
        if not is_gold or task.reference is not None
    ]
    with progress(console) as bar:
        for is_gold in (True, False):
            attempts = [attempt for gold, attempt in runs if gold == is_gold]
            title = "solutions" if is_gold else "without a change"
            line = bar.add_task(title, total=len(attempts))
            for attempt, result in judged(client, attempts, extract="none", job=job, cache=False):
                row = rows[attempt.task.place]
                (row.gold if is_gold else row.unchanged).append(result)
                bar.update(line, advance=1)
    return list(rows.values())


def show(out: Console, rows: Sequence[AuditedRow], repeat: int, seconds: float, most: int) -> None:
    """Print how many rows are fit, and the reasons of others, at most `most` for each state."""
    counts = Counter(each.found.state for each in rows)
    table = Table.grid(padding=(0, 2))
    table.add_row(
        "rows", f"{len(rows)}, judged {repeat} times with and {repeat} without the solution"
    )
    for state, title in TITLES.items():
        if counts[state] or state == "fit":
            table.add_row(title, str(counts[state]))
    table.add_row("time", f"{seconds:.1f} s")
    out.print(table)
    for state, title in TITLES.items():
        if state == "fit":
            continue
        found = [
            (plain(each.task.id, 60), plain(each.found.reason))
            for each in rows
            if each.found.state == state
        ]
        columns = Column("row", no_wrap=True), Column("reason", overflow="fold")
        print_list(out, title[0].upper() + title[1:], columns, found, most)


def report_of(rows: Sequence[AuditedRow]) -> dict[str, Any]:
    """Return the states of all rows in JSON form."""
    counts = Counter(each.found.state for each in rows)
    return {
        "rows": len(rows),
        "counts": {state: counts[state] for state in TITLES},
        "tasks": [
            {
                "id": each.task.id,
                "place": each.task.place,
                "state": each.found.state,
                "reason": each.found.reason,
                "gold": [_run(result) for result in each.gold],
                "unchanged": [_run(result) for result in each.unchanged],
            }
            for each in rows
        ],
    }


def write_fit(path: Path, rows: Sequence[AuditedRow], originals: Iterable[tuple[str, Row]]) -> int:
    """Write the original rows of fit tasks as JSON lines, and return their number. Raises Trouble."""
    fit = {each.task.place for each in rows if each.found.state == "fit"}
    count = 0
    try:
        with path.open("w", encoding="utf-8") as output:
            for line in _lines_of(fit, originals):
                output.write(line)
                count += 1
    except OSError as error:
        raise Trouble(f"{path}: {error.strerror}") from None
    return count


def _lines_of(places: set[str], originals: Iterable[tuple[str, Row]]) -> Iterator[str]:
    for place, row in originals:
        if place in places:
            yield json.dumps(row, default=str) + "\n"


def _reason(result: wire.Result) -> str | None:
    return None if result.error is None else result.error.reason


def _failed(result: wire.Result) -> list[str]:
    if result.repository is None:
        return [each.test for each in result.tests.failures]
    return [*result.repository.fail_to_pass.failed, *result.repository.pass_to_pass.failed]


def _outcome(result: wire.Result) -> tuple[object, ...]:
    """Return the part of a result that is the same in each run of steady tests."""
    return result.verdict, result.tests.passed, tuple(sorted(_failed(result)))


def _unsteady_names(results: Sequence[wire.Result]) -> list[str]:
    times = Counter(name for each in results for name in set(_failed(each)))
    return [name for name, count in times.items() if count < len(results)]


def _listed(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f": {', '.join(names[:3])}{more}"


def _run(result: wire.Result) -> dict[str, Any]:
    return {
        "verdict": result.verdict,
        "error": _reason(result),
        "failed": _failed(result),
        "wall_seconds": result.usage.wall_seconds,
        "message": message_of(result),
    }
