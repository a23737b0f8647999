"""Figures of a job: progress, tasks and groups without a lesson, signs of hacks and of flaky tests.

Counts and rewards are over all evaluations of the job, from its series. All other figures are over the
newest `SAMPLED` evaluations, which bounds the time for a job with a million.
"""

from __future__ import annotations

import json
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any

from sqlalchemy import ColumnElement, Connection, select, type_coerce
from sqlalchemy.types import NullType

from proctor_client.tasks.pass_at import PASS_AT, pass_chance
from proctor_service.features.journal.schema import evaluations
from proctor_service.features.journal.series import NO_VERDICT, moments

Row = dict[str, Any]
Columns = dict[str, tuple[Any, ...]]
SAMPLED = 10_000
MOST_NAMED = 20
LENGTHS = 10
MOST_SHOWN_SHARE = {"nulls": 0.01, "no_code": 0.1, "without_spread": 0.5, "unsolved": 0.5}
"""Shares above which a figure is a warning: nulls are failures of the service; a completion without
code, a group without spread and a task that nobody solves teach little."""
MOST_CORRELATION = 0.5
_SAMPLED_COLUMNS = (
    "step", "task", "reward", "verdict", "integrity", "signals", "completion_characters",
    "queue_seconds", "seconds", "cpu_seconds", "source", "completion", "source_begin", "grader",
)  # fmt: skip


def figures(
    connection: Connection, conditions: Sequence[ColumnElement[bool]], series: Sequence[Row]
) -> Row:
    """Return the figures of a job with evaluations, of which `series` has all points.

    Of all evaluations: `evaluations`, `judged`, `mean_reward`, `spread`, `null_share`,
    `no_code_share`, `verdicts`. Of the newest, `latest.sampled` in number: `tasks`: among tasks
    with a judged evaluation, the never solved and the always solved ones. `groups`: evaluations of
    a task in a step, where at least two were judged; `without_spread`: with equal rewards.
    `pass_at`: the share of tasks with a passed one among k, estimated without bias (Chen et al.
    2021, section 2.1) over the tasks with at least k. `signals`: counts. `lengths`: tenths of the
    judged completions by their length, with the mean of the rewards. `latest`: shares, correlation
    and times.
    """
    sample = (
        # Without work on each value: there are hundreds of thousands.
        select(*(type_coerce(evaluations.c[name], NullType()) for name in _SAMPLED_COLUMNS))
        .where(*conditions)
        .order_by(evaluations.c.number.desc())
        .limit(SAMPLED)
    )
    rows = connection.execute(sample).all()
    every = _columns(rows)
    judged = _columns(list(compress(rows, (reward is not None for reward in every["reward"]))))
    found: Row = {
        **_totals(series),
        **_tasks(judged),
        "groups": _groups(judged),
        "signals": _signals(every),
        "lengths": _lengths(judged),
        "latest": _latest(every, judged),
    }
    return {**found, "warnings": list(_warnings(found))}


def _columns(rows: Sequence[Sequence[Any]]) -> Columns:
    """Return the columns of a sample by name."""
    values = list(zip(*rows, strict=True)) if rows else [()] * len(_SAMPLED_COLUMNS)
    return dict(zip(_SAMPLED_COLUMNS, values, strict=True))


def _totals(series: Sequence[Row]) -> Row:
    count, judged = (sum(point[name] for point in series) for name in ("count", "judged"))
    rewards, squares = (sum(point[name] for point in series) for name in ("rewards", "squares"))
    verdicts: Counter[str] = Counter()
    for point in series:
        verdicts.update(point["verdicts"])
    mean, spread = moments(judged, rewards, squares)
    return {
        "evaluations": count,
        "judged": judged,
        "mean_reward": mean,
        "spread": spread,
        "null_share": verdicts[NO_VERDICT] / count,
        "no_code_share": verdicts["no_code"] / count,
        "verdicts": dict(verdicts.most_common()),
    }


def _tasks(judged: Columns) -> Row:
    counts = Counter(judged["task"])
    right = Counter(compress(judged["task"], (each == "passed" for each in judged["verdict"])))
    counts.pop(None, None)
    nobody = sorted(name for name in counts if not right[name])
    everybody = sorted(name for name, count in counts.items() if right[name] == count)
    alike = Counter((count, right[name]) for name, count in counts.items())
    pass_at = {}
    for k in PASS_AT:
        chances = {
            (n, c): times * pass_chance(n, c, k) for (n, c), times in alike.items() if n >= k
        }
        if chances:
            pass_at[str(k)] = sum(chances.values()) / sum(alike[each] for each in chances)
    return {
        "tasks": {
            "count": len(counts),
            "solved_by_nobody": len(nobody),
            "solved_by_everybody": len(everybody),
            "nobody": nobody[:MOST_NAMED],
            "everybody": everybody[:MOST_NAMED],
        },
        "pass_at": pass_at,
    }


def _groups(judged: Columns) -> Row:
    steps, tasks, rewards = judged["step"], judged["task"], judged["reward"]
    counts = Counter(zip(steps, tasks, strict=True))
    values = Counter((step, task) for step, task, _ in set(zip(steps, tasks, rewards, strict=True)))
    groups = [each for each, count in counts.items() if count > 1 and each[1] is not None]
    return {"count": len(groups), "without_spread": sum(values[each] == 1 for each in groups)}


def _signals(every: Columns) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for names, count in Counter(every["signals"]).items():
        for name in set(json.loads(names)):
            counts[name] += count
    return dict(counts.most_common(MOST_NAMED))


def _lengths(judged: Columns) -> list[Row]:
    """Return parts of the completions with about the same number each, the shortest first."""
    ordered = sorted(zip(judged["completion_characters"], judged["reward"], strict=True))
    lengths = [length for length, _ in ordered]
    ends = {
        bisect_right(lengths, lengths[len(ordered) * part // LENGTHS - 1])
        for part in range(1, LENGTHS + 1)
        if len(ordered) * part >= LENGTHS
    }
    found, begin = [], 0
    for end in sorted(ends):
        found.append(
            {
                "from_characters": lengths[begin],
                "to_characters": lengths[end - 1],
                "count": end - begin,
                "mean_reward": statistics.fmean(reward for _, reward in ordered[begin:end]),
            }
        )
        begin = end
    return found


def _latest(every: Columns, judged: Columns) -> Row:
    code = (judged[name] for name in ("source", "source_begin", "completion", "grader"))
    judgements = set(zip(*code, judged["verdict"], strict=True))
    programs = Counter(each[:-1] for each in judgements if each[3] is not None)
    count = len(judged["reward"])
    return {
        "sampled": len(every["reward"]),
        "in_process_share": judged["integrity"].count("in_process") / count if count else None,
        "flaky_programs": sum(verdicts > 1 for verdicts in programs.values()),
        "length_correlation": _correlation(judged["completion_characters"], judged["reward"]),
        "queue_seconds_p95": _p95(every["queue_seconds"]),
        "seconds_p95": _p95(every["seconds"]),
        "cpu_seconds_p95": _p95(judged["cpu_seconds"]),
    }


def _correlation(lengths: Sequence[float], rewards: Sequence[float]) -> float | None:
    """Return Pearson's correlation, or None where either list is constant."""
    if len(lengths) < 2:
        return None
    if min(lengths) == max(lengths) or min(rewards) == max(rewards):
        return None
    return statistics.correlation(lengths, rewards)


def _p95(values: Iterable[float]) -> float | None:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))] if ordered else None


def _warnings(found: Row) -> Iterable[str]:
    tasks, groups, latest = found["tasks"], found["groups"], found["latest"]
    if found["null_share"] > MOST_SHOWN_SHARE["nulls"]:
        yield f"{found['null_share']:.1%} of the evaluations have no reward: the service failed them"
    if found["no_code_share"] > MOST_SHOWN_SHARE["no_code"]:
        yield f"{found['no_code_share']:.1%} of the completions hold no code"
    if groups["without_spread"] > MOST_SHOWN_SHARE["without_spread"] * groups["count"]:
        yield (
            f"{groups['without_spread']} of {groups['count']} groups have one reward for all: "
            "a group without spread teaches nothing"
        )
    if tasks["solved_by_nobody"] > MOST_SHOWN_SHARE["unsolved"] * tasks["count"]:
        yield f"nobody solves {tasks['solved_by_nobody']} of {tasks['count']} tasks"
    if found["signals"]:
        yield f"evaluations with signals of a hack: {sum(found['signals'].values())}"
    if latest["flaky_programs"]:
        yield f"programs with two verdicts from the same tests: {latest['flaky_programs']}"
    correlation = latest["length_correlation"]
    if correlation is not None and abs(correlation) > MOST_CORRELATION:
        longer = "longer" if correlation > 0 else "shorter"
        yield f"{longer} completions get higher rewards (correlation {correlation:.2f})"
