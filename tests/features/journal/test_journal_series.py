"""Series and figures of a job: bounded, exact, and right while evaluations come and go."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from journal_store import FAILED, PASSED, Under, item

from proctor_service.errors import SandboxLost
from proctor_service.features.journal import figures
from proctor_service.features.journal.series import MOST_STEPS, MOST_TIMES, WIDTHS_SECONDS
from proctor_service.judge.submission import Judgement
from proctor_service.outcomes import Item, Origin, Outcome

BEGUN = 1_700_000_000.0
LOST = Outcome(failure=SandboxLost("gone"))
HALF = Outcome(Judgement("failed"), 0.5)


def evaluated(
    number: int, outcome: Outcome, step: int | None = None, seconds: float = 0.0, **changed: Any
) -> tuple[float, Item, Outcome]:
    """An evaluation that ended so long after the first."""
    origin = Origin(f"text {number}", "none", None, f"p{number % 3}", step)
    return BEGUN + seconds, replace(item(number), origin=origin, **changed), outcome


def job(under: Under, by: Any = "step", tenant: str | None = "t") -> dict[str, Any]:
    found = under.reader.job(tenant, "job", by)
    assert found is not None
    return found


def test_many_steps_share_points(under: Under) -> None:
    steps = [7 * step for step in range(1234)]
    under.write_at(*(evaluated(n, PASSED, step) for n, step in enumerate(steps)))
    under.write_at(*(evaluated(5000 + n, FAILED, step) for n, step in enumerate(steps[::3])))
    under.write_at(evaluated(9000, LOST))
    none, *points = job(under)["series"]
    assert (none["step"], none["last_step"], none["verdicts"]) == (None, None, {"error": 1})
    assert len(points) == 412
    assert len(points) <= MOST_STEPS
    assert [(p["step"], p["last_step"]) for p in points[:2]] == [(0, 14), (21, 35)]
    assert (points[-1]["step"], points[-1]["last_step"]) == (7 * 1233, 7 * 1233)
    assert {(p["count"], p["verdicts"]["passed"]) for p in points[:-1]} == {(4, 3)}
    assert all(a["last_step"] < b["step"] for a, b in pairwise(points))


def test_few_steps_have_a_point_each(under: Under) -> None:
    under.write_at(*(evaluated(n, PASSED, n * n) for n in range(MOST_STEPS)))
    points = job(under)["series"]
    assert [(p["step"], p["last_step"]) for p in points] == [
        (n * n, n * n) for n in range(MOST_STEPS)
    ]


@pytest.mark.parametrize(
    ("seconds", "width"),
    [(0, 10), (1000, 10), (3000, 30), (7000, 60), (30_000, 300), (90_000, 900), (400_000, 3600),
     (2_000_000, 21_600), (9_000_000, 86_400), (30_000_000, 3 * 86_400)],
)  # fmt: skip
def test_times_have_round_widths(under: Under, seconds: float, width: int) -> None:
    count = 300
    under.write_at(
        *(evaluated(n, HALF if n % 2 else LOST, n, seconds * n / (count - 1)) for n in range(count))
    )
    found = job(under, "time")
    assert (found["by"], found["width_seconds"]) == ("time", width)
    assert width in WIDTHS_SECONDS or width % WIDTHS_SECONDS[-1] == 0
    points = found["series"]
    assert 1 <= len(points) <= MOST_TIMES
    assert all(point["at"] % width == 0 and "step" not in point for point in points)
    assert points[0]["at"] <= BEGUN < points[0]["at"] + width
    assert points[-1]["at"] <= BEGUN + seconds < points[-1]["at"] + width
    assert sum(point["count"] for point in points) == count
    assert {point["mean_reward"] for point in points if point["judged"]} == {0.5}


def counted(under: Under) -> list[Any]:
    """What the tables of counts have, as counted again from the evaluations."""
    points = (
        "SELECT tenant, job, coalesce(step, -1), CAST(at / 10 AS INTEGER),"
        " coalesce(verdict, 'error'), count(*), count(reward), coalesce(sum(reward), 0.0),"
        " coalesce(sum(reward * reward), 0.0) FROM evaluations GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5"
    )
    totals = (
        "SELECT tenant, job, count(*), count(reward), coalesce(sum(reward), 0.0)"
        " FROM evaluations GROUP BY 1, 2 ORDER BY 1, 2"
    )
    own = (
        "SELECT * FROM points ORDER BY 1, 2, 3, 4, 5",
        "SELECT tenant, job, evaluations, judged, rewards FROM jobs ORDER BY 1, 2",
    )
    with under.connected() as connection:
        found = [
            [tuple(row) for row in connection.exec_driver_sql(query)]
            for query in (points, totals, *own)
        ]
    assert found[2:] == found[:2]
    return found[2]


def test_counts_follow_the_evaluations(under: Under) -> None:
    chance = random.Random(5)
    outcomes = (PASSED, FAILED, HALF, LOST)
    number = 0
    for _ in range(12):
        made = []
        for _ in range(chance.randint(1, 60)):
            number += 1
            step = chance.choice((None, 0, 1, 2))
            job, tenant = chance.choice(("a", "b")), chance.choice("tu")
            made.append(
                evaluated(number, chance.choice(outcomes), step, number, job=job, tenant=tenant)
            )
        under.write_at(*made, *made[:3])  # some come twice, in this batch
        under.write_at(*made[:2])  # and in the next
        counted(under)
        under.store.prune(BEGUN + chance.randint(0, number), chance.randint(1, 40))
        counted(under)
    while under.store.prune(BEGUN + 1e6):
        counted(under)
    assert counted(under) == []
    assert under.reader.jobs(None) == []


def test_jobs_are_the_latest_first(under: Under) -> None:
    under.write_at(
        evaluated(1, PASSED, 5, 10, job="a"),
        evaluated(2, FAILED, 3, 30, job="b"),
        evaluated(3, FAILED, 4, 20, job="a"),
    )
    rows = under.reader.jobs("t")
    assert [(row["job"], row["evaluations"], row["judged"]) for row in rows] == [
        ("b", 1, 1),
        ("a", 2, 2),
    ]
    assert [(row["last_step"], row["last_at"], row["mean_reward"]) for row in rows] == [
        (3, BEGUN + 30, 0.0),
        (5, BEGUN + 20, 0.5),
    ]


def test_figures_of_many_are_of_the_newest(under: Under, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "SAMPLED", 30)
    under.write_at(*(evaluated(n, PASSED, 0) for n in range(30)))
    under.write_at(*(evaluated(30 + n, FAILED, 1) for n in range(30)))
    found = job(under)["figures"]
    assert (found["evaluations"], found["mean_reward"], found["latest"]["sampled"]) == (60, 0.5, 30)
    assert found["tasks"]["solved_by_nobody"] == found["tasks"]["count"] == 3
    assert found["groups"] == {"count": 3, "without_spread": 3}
    assert found["pass_at"]["1"] == 0.0


def test_lengths_have_about_the_same_number_each(under: Under) -> None:
    made = []
    for n in range(100):
        text = "x" * (100 + n)
        origin = Origin(text, "none", None, "p", 1)
        made.append((BEGUN, replace(item(n), origin=origin), PASSED if n >= 50 else FAILED))
    under.write_at(*made)
    lengths = job(under)["figures"]["lengths"]
    assert [(each["from_characters"], each["to_characters"]) for each in lengths] == [
        (100 + 10 * n, 109 + 10 * n) for n in range(10)
    ]
    assert [each["count"] for each in lengths] == [10] * 10
    assert [each["mean_reward"] for each in lengths] == [0.0] * 5 + [1.0] * 5


@pytest.mark.parametrize("count", [1, 2, 11])
def test_few_lengths_are_few_parts(under: Under, count: int) -> None:
    same = Origin("of one length", "none")
    under.write_at(*((BEGUN, replace(item(n), origin=same), PASSED) for n in range(count)))
    under.write_at((BEGUN, item(100), LOST))
    assert job(under)["figures"]["lengths"] == [
        {"from_characters": 13, "to_characters": 13, "count": count, "mean_reward": 1.0}
    ]
    assert under.reader.job("u", "job") is None
    assert under.reader.figures("t", "nothing") is None


def test_a_job_without_a_reward_has_figures(under: Under) -> None:
    under.write_at(evaluated(1, LOST, None))
    found = job(under, tenant=None)["figures"]
    assert (found["mean_reward"], found["lengths"], found["pass_at"]) == (None, [], {})
    assert found["latest"]["sampled"] == 1
