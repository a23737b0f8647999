"""Figures of a job: is it learning, what teaches nothing, what looks like a hack or a flaky test.

Counts are over all evaluations of the job, and come from the indices alone. Figures that need more
columns are over the newest `SAMPLED` evaluations.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from math import comb
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, select

from proctor_service.journal.schema import evaluations, labels

Row = dict[str, Any]
Conditions = Sequence[ColumnElement[bool]]
SAMPLED = 20_000
MOST_NAMED = 20
MOST_SHOWN_SHARE = {"nulls": 0.01, "no_code": 0.1, "without_spread": 0.5, "unsolved": 0.5}
"""Shares above which a figure is a warning: nulls are failures of the service; a completion without
code, a group without spread and a task that nobody solves teach little."""
MOST_CORRELATION = 0.5
PASS_AT = (1, 2, 4, 8, 16, 32, 64)


def series(connection: Connection, conditions: Conditions) -> list[Row]:
    """Return a point for each step; steps without a number are one point, with `step` None.

    `spread`: the standard deviation of the rewards.
    """
    reward = evaluations.c.reward
    query = (
        select(
            evaluations.c.step,
            evaluations.c.verdict,
            func.count().label("count"),
            func.count(reward).label("judged"),
            func.sum(reward).label("rewards"),
            func.sum(reward * reward).label("squares"),
        )
        .where(*conditions)
        .group_by(evaluations.c.step, evaluations.c.verdict)
    )
    points: dict[int | None, Row] = {}
    for row in connection.execute(query):
        first = {"step": row.step, "count": 0, "judged": 0, "rewards": 0.0, "squares": 0.0}
        point = points.setdefault(row.step, {**first, "verdicts": {}})
        point["count"] += row.count
        point["judged"] += row.judged
        point["rewards"] += row.rewards or 0.0
        point["squares"] += row.squares or 0.0
        point["verdicts"][row.verdict or "error"] = row.count
    ordered = sorted(
        points.values(), key=lambda each: (each["step"] is not None, each["step"] or 0)
    )
    for point in ordered:
        rewards, squares = point.pop("rewards"), point.pop("squares")
        point["mean_reward"], point["spread"] = _moments(point["judged"], rewards, squares)
    return ordered


def figures(connection: Connection, conditions: Conditions) -> Row | None:
    """Return the figures of a job, or None if nothing fits.

    `tasks`: those that nobody and everybody solved, of those with a judged evaluation. `groups`:
    evaluations of one task in one step, where at least two were judged; `without_spread`: all got
    the same reward. `pass_at`: the share of tasks with a passed one among k, estimated without bias
    (Chen et al. 2021, section 2.1) over the tasks with at least k. `latest`: of the newest
    evaluations.
    """
    points = series(connection, conditions)
    count = sum(point["count"] for point in points)
    if not count:
        return None
    judged = sum(point["judged"] for point in points)
    verdicts: dict[str, int] = {}
    for point in points:
        for verdict, number in point["verdicts"].items():
            verdicts[verdict] = verdicts.get(verdict, 0) + number
    reward = evaluations.c.reward
    sums = select(func.sum(reward), func.sum(reward * reward)).where(*conditions)
    rewards, squares = connection.execute(sums).one()
    mean, spread = _moments(judged, rewards or 0.0, squares or 0.0)
    found: Row = {
        "evaluations": count,
        "judged": judged,
        "mean_reward": mean,
        "spread": spread,
        "null_share": verdicts.get("error", 0) / count,
        "no_code_share": verdicts.get("no_code", 0) / count,
        "verdicts": dict(sorted(verdicts.items(), key=lambda each: -each[1])),
        **_tasks(connection, conditions),
        "groups": _groups(connection, conditions),
        "signals": _signals(connection, conditions),
        "latest": _latest(connection, conditions),
    }
    return {**found, "warnings": list(_warnings(found))}


def _moments(count: int, total: float, squares: float) -> tuple[float | None, float | None]:
    """Return mean and standard deviation, or None twice for no values."""
    if not count:
        return None, None
    mean = total / count
    return mean, max(squares / count - mean * mean, 0.0) ** 0.5


def _tasks(connection: Connection, conditions: Conditions) -> Row:
    passed = func.sum(case((evaluations.c.verdict == "passed", 1), else_=0))
    query = (
        select(evaluations.c.task, func.count(evaluations.c.reward), passed)
        .where(*conditions, evaluations.c.task.is_not(None))
        .group_by(evaluations.c.task)
    )
    tasks = [tuple(row) for row in connection.execute(query) if row[1]]
    nobody = sorted(name for name, _, right in tasks if not right)
    everybody = sorted(name for name, judged, right in tasks if right == judged)
    pass_at = {}
    for k in PASS_AT:
        chances = [1 - comb(n - c, k) / comb(n, k) for _, n, c in tasks if n >= k]
        if chances:
            pass_at[str(k)] = statistics.fmean(chances)
    return {
        "tasks": {
            "count": len(tasks),
            "solved_by_nobody": len(nobody),
            "solved_by_everybody": len(everybody),
            "nobody": nobody[:MOST_NAMED],
            "everybody": everybody[:MOST_NAMED],
        },
        "pass_at": pass_at,
    }


def _groups(connection: Connection, conditions: Conditions) -> Row:
    reward = evaluations.c.reward
    group = (
        select((func.min(reward) == func.max(reward)).label("is_flat"))
        .where(*conditions, evaluations.c.task.is_not(None), reward.is_not(None))
        .group_by(evaluations.c.step, evaluations.c.task)
        .having(func.count() > 1)
        .subquery()
    )
    query = select(func.count(), func.sum(case((group.c.is_flat, 1), else_=0)))
    count, flat = connection.execute(query.select_from(group)).one()
    return {"count": count, "without_spread": int(flat or 0)}


def _signals(connection: Connection, conditions: Conditions) -> dict[str, int]:
    query = (
        select(labels.c.label, func.count())
        .join(evaluations, evaluations.c.number == labels.c.number)
        .where(*conditions, labels.c.tenant == evaluations.c.tenant, labels.c.kind == "signal")
        .group_by(labels.c.label)
        .order_by(func.count().desc())
        .limit(MOST_NAMED)
    )
    return {row[0]: row[1] for row in connection.execute(query)}


def _latest(connection: Connection, conditions: Conditions) -> Row:
    table = evaluations.c
    query = (
        select(
            table.reward, table.verdict, table.integrity, table.completion_characters,
            table.queue_seconds, table.seconds, table.cpu_seconds, table.source, table.completion,
            table.source_begin, table.grader,
        )
        .where(*conditions)
        .order_by(table.number.desc())
        .limit(SAMPLED)
    )  # fmt: skip
    rows = connection.execute(query).all()
    judged = [row for row in rows if row.reward is not None]
    programs: dict[tuple[Any, ...], set[str]] = {}
    for row in judged:
        if row.grader is not None:
            code = (row.source, row.source_begin, row.completion)
            programs.setdefault((*code, row.grader), set()).add(row.verdict)
    in_process = sum(row.integrity == "in_process" for row in judged)
    return {
        "sampled": len(rows),
        "in_process_share": in_process / len(judged) if judged else None,
        "flaky_programs": sum(len(verdicts) > 1 for verdicts in programs.values()),
        "length_correlation": _correlation(
            [(row.completion_characters, row.reward) for row in judged]
        ),
        "queue_seconds_p95": _p95(row.queue_seconds for row in rows),
        "seconds_p95": _p95(row.seconds for row in rows),
        "cpu_seconds_p95": _p95(row.cpu_seconds for row in judged),
    }


def _correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return Pearson's correlation, or None where one of the two never changes."""
    if len(pairs) < 2:
        return None
    lengths, rewards = zip(*pairs, strict=True)
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
