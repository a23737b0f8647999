"""`proctor replay`: judge a job of the journal again, and list what changed.

Use the command to accept an upgrade or a changed grader. Answers without a reward are failures of the
service, and are counted apart from changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from proctor_client import InvalidRequestError, RewardOptions, wire
from proctor_service.cli.console import aside, plain, print_list, screen
from proctor_service.cli.failures import TROUBLE, UNSOUND, Trouble, friendly
from proctor_service.cli.judging import judged, message_of
from proctor_service.cli.target import client_errors, existing
from proctor_service.features.journal.cli.recorded import Row, reading, rows
from proctor_service.features.journal.replay import REPLAY_JOB, submission_of, why_not

PAGE = 100
SHOWN = 50
"""Number of listed changes; the counts are of all."""
REFUSED = "invalid_request"
OPTIONS: RewardOptions = {"extract": "none", "job": REPLAY_JOB, "cache": False}
_COLUMNS = ("id", "task", "reward", "verdict", "message")


@dataclass(frozen=True, slots=True)
class Recorded:
    """Result of a replayable evaluation in the journal."""

    id: str
    task: str
    reward: float
    verdict: str


@dataclass(frozen=True, slots=True)
class Change:
    """Recorded evaluation with another reward or verdict, and the new result."""

    recorded: Recorded
    result: wire.Result

    def row(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        was, now = self.recorded, self.result
        return (
            plain(was.id, 60),
            plain(was.task, 40),
            _both(f"{was.reward:g}", f"{now.reward:g}"),
            _both(was.verdict, plain(str(now.verdict), 20)),
            plain(message_of(now), 100),
        )


@dataclass(slots=True)
class ReplayCounts:
    """Counts of a replay. `left_out`, `unjudged`: by reason. `most`: number of changes to keep."""

    most: int
    same: int = 0
    changed: int = 0
    rewards: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    unjudged: Counter[str] = field(default_factory=Counter)
    refusal: str = ""
    changes: list[Change] = field(default_factory=list)

    def add(self, recorded: Recorded, result: wire.Result | InvalidRequestError) -> None:
        """Count the answer for an evaluation."""
        if isinstance(result, InvalidRequestError):
            self.unjudged[REFUSED] += 1
            self.refusal = self.refusal or result.message
        elif result.error is not None or result.reward is None:
            self.unjudged[result.error.reason if result.error else "none"] += 1
        elif (result.reward, result.verdict) == (recorded.reward, recorded.verdict):
            self.same += 1
        else:
            self.changed += 1
            if result.reward != recorded.reward:
                self.rewards[_both(f"{recorded.reward:g}", f"{result.reward:g}")] += 1
            if len(self.changes) < self.most:
                self.changes.append(Change(recorded, result))


def replay(
    job: Annotated[str, typer.Option(help="The job whose evaluations are judged again.")],
) -> None:
    """Judge all recorded evaluations of a job again, and list the rewards that changed.

    Status 0: nothing changed. 1: a reward or verdict changed. 2: the service gave no reward for some
    evaluations, or the replay could not finish.
    """
    with friendly(), client_errors(), reading() as reader:
        from proctor_service.features.journal.filters import Filter

        whole = rows(reader.whole_evaluations, None, Filter(job=job), page=PAGE)
        counts = ReplayCounts(SHOWN)
        with existing() as client:
            for recorded, result in judged(client, _submissions(whole, counts), OPTIONS):
                counts.add(recorded, result)
        _end(screen(), job, counts)


def not_comparable(row: Row) -> str | None:
    """Return the reason why a replay of an evaluation is void, or None."""
    if row["verdict"] is None or row["reward"] is None:
        return "it was recorded without a reward"
    return why_not(row)


def _submissions(
    whole: Iterator[Row], counts: ReplayCounts
) -> Iterator[tuple[Recorded, dict[str, Any]]]:
    """Yield the replayable evaluations, with their submissions; count the rest."""
    from proctor_service.features.journal.reading import parsed

    for row in whole:
        reason = not_comparable(row)
        if reason is not None:
            counts.left_out[reason] += 1
            continue
        recorded = Recorded(row["id"], row["task"] or "-", row["reward"], row["verdict"])
        yield recorded, {"id": row["id"], **submission_of(parsed(row))}


def _end(out: Console, job: str, counts: ReplayCounts) -> None:
    judged, unjudged = counts.same + counts.changed, sum(counts.unjudged.values())
    if not judged + unjudged:
        left_out = f": {_reasons(counts.left_out)}" if counts.left_out else ""
        what = (
            "none of its evaluations can be judged again" if left_out else "it has no evaluations"
        )
        raise Trouble(f"the job {plain(job, 60)}: {what}{left_out}")
    columns = [Column(name, overflow="fold", no_wrap=name == "id") for name in _COLUMNS]
    shown = [each.row() for each in counts.changes]
    print_list(out, "Changed", columns, shown, len(shown))
    if 0 < len(shown) < counts.changed:
        out.print(f"and {counts.changed - len(shown)} more")
    table = Table.grid(padding=(0, 2))
    table.add_row("judged again", str(judged))
    table.add_row("unchanged", str(counts.same))
    table.add_row("changed", str(counts.changed))
    if counts.rewards:
        table.add_row("rewards changed", Text(_named(counts.rewards)))
    if unjudged:
        table.add_row("no reward now", Text(_named(counts.unjudged)))
    if counts.left_out:
        table.add_row("not judged again", Text(_reasons(counts.left_out)))
    out.print(table)
    if counts.refusal:
        aside().print(f"refused: {plain(counts.refusal)}", markup=False, soft_wrap=True)
    if counts.changed:
        raise typer.Exit(UNSOUND)
    if unjudged:
        raise typer.Exit(TROUBLE)


def _named(counts: Counter[str]) -> str:
    """Return counts with their names: `13 (deadline 12, overloaded 1)`."""
    listing = ", ".join(f"{plain(name, 40)} {count}" for name, count in counts.most_common())
    return f"{sum(counts.values())} ({listing})"


def _reasons(counts: Counter[str]) -> str:
    """Return counts with their reasons: `13 (the completion had no code: 12; …: 1)`."""
    listing = "; ".join(f"{reason}: {count}" for reason, count in counts.most_common())
    return f"{sum(counts.values())} ({listing})"


def _both(was: str, now: str) -> str:
    return f"{was} → {now}"
