"""Summary of many results: counts, and tables of failures."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table
from rich.text import Text

from proctor_client import wire
from proctor_service.cli.console import plain
from proctor_service.cli.judging import Attempt


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


def _show(title: str, pairs: list[tuple[Attempt, wire.Result]], most: int, out: Console) -> None:
    if not pairs or not most:
        return
    table = Table(box=None, pad_edge=False, title=f"\n{title}", title_justify="left")
    table.add_column("task", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("message", overflow="fold")
    for attempt, result in sorted(pairs, key=lambda pair: (pair[0].task.place, pair[0].sample))[
        :most
    ]:
        verdict = result.error.reason if result.error else result.verdict or ""
        table.add_row(Text(_name(attempt)), Text(verdict), Text(plain(_message(result))))
    out.print(table)
    if len(pairs) > most:
        out.print(f"and {len(pairs) - most} more")


def _name(attempt: Attempt) -> str:
    return plain(f"{attempt.task.id} #{attempt.sample}" if attempt.sample else attempt.task.id, 60)


def _message(result: wire.Result) -> str:
    if result.error is not None:
        return result.error.message
    if result.message or not result.tests.failures:
        return result.message
    return f"{result.tests.failures[0].test}: {result.tests.failures[0].message}"
