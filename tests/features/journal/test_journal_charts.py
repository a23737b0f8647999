"""Charts of the journal: XML that holds for any rows, with names, gaps, ticks and no active content."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor_service.features.journal.pages import charts, scales
from proctor_service.features.journal.pages.render import Templates

HOSTILE = '</svg><script>alert(1)</script>" onload="x" \u202e\x00\ud800\ufffe&amp;'
NOW = 1_772_900_000.0
TEMPLATES = Templates()
INVISIBLE = {"\u202e", "\x00", "\ud800", "\ufffe"}


def drawn(chart: charts.Chart) -> ElementTree.Element:
    """The picture and its legend, as XML; every chart is well-formed and holds nothing active."""
    markup = TEMPLATES.drawn(chart)
    assert not INVISIBLE & set(markup)
    assert "<script" not in markup
    root = ElementTree.fromstring(f"<div>{markup}</div>")
    ids = [each.get("id") for each in root.iter() if each.get("id")]
    assert len(ids) == len(set(ids))
    for each in root.iter():
        assert each.tag in {
            "div", "p", "svg", "title", "desc", "text", "path", "rect", "defs", "pattern", "ul",
            "li", "span",
        }  # fmt: skip
        for name, value in each.attrib.items():
            assert name != "style"
            assert not name.startswith("on")
            for number in re.findall(r"-?\d+\.?\d*(?:e[+-]?\d+)?|nan|inf", value):
                if name in ("x", "y", "width", "height", "d"):
                    assert -10 <= float(number) <= 1000, (name, value)
        for name in ("aria-labelledby", "aria-describedby"):
            assert each.get(name) is None or each.get(name) in ids
        if (fill := each.get("fill", "")).startswith("url"):
            assert fill[5:-1] in ids
    return root


def texts(root: ElementTree.Element, kind: str) -> list[str]:
    return [each.text or "" for each in root.iter("text") if each.get("class") == kind]


def of_class(root: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [each for each in root.iter() if each.get("class") == kind]


def point(mean: float | None = 0.5, spread: float | None = 0.1, **more: Any) -> dict[str, Any]:
    counts = more.pop("verdicts", {"passed": 1, "failed": 1})
    number = sum(counts.values())
    return {
        "count": number, "judged": number, "mean_reward": mean, "spread": spread,
        "verdicts": counts, **more,
    }  # fmt: skip


def steps(means: Sequence[float | None]) -> list[dict[str, Any]]:
    return [point(mean, step=index) for index, mean in enumerate(means)]


numbers = st.none() | st.floats()
counted = st.dictionaries(
    st.sampled_from([*charts.VERDICT_INKS]) | st.text(max_size=8),
    st.integers(0, 10**9),
    max_size=4,
)
points_by_step = st.lists(
    st.builds(
        point,
        numbers,
        numbers,
        step=st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(0, 50),
        verdicts=counted,
    ),
    max_size=50,
)
points_by_time = st.lists(
    st.builds(
        point,
        numbers,
        numbers,
        at=st.floats(0, 4e9) | st.floats(NOW, NOW + 100) | st.floats(allow_nan=False),
        verdicts=counted,
    ),
    max_size=50,
)


@given(points_by_step)
@settings(deadline=None)
def test_any_points_by_step_are_a_chart(points: list[dict[str, Any]]) -> None:
    drawn(charts.rewards(points, "a"))
    drawn(charts.verdicts(points, "b"))


@given(points_by_time)
@settings(deadline=None)
def test_any_points_by_time_are_a_chart(points: list[dict[str, Any]]) -> None:
    drawn(charts.rewards(points, "a", "time"))
    drawn(charts.verdicts(points, "b", "time"))


@given(st.lists(st.tuples(st.text(), numbers, st.text()), max_size=9))
@settings(deadline=None)
def test_any_bars_are_a_chart(rows: list[tuple[str, float | None, str]]) -> None:
    drawn(charts.bars(rows, "a", "Title", "seconds"))
    drawn(charts.phases([(name, value) for name, value, _ in rows]))


def test_five_hundred_points_are_one_line_and_few_ticks() -> None:
    root = drawn(charts.rewards(steps([index / 500 for index in range(500)]), "a"))
    assert len(of_class(root, "curve")) == len(of_class(root, "band")) == 1
    assert of_class(root, "dots") == []
    assert texts(root, "tick") == [
        "0.0", "0.2", "0.4", "0.6", "0.8", "1.0", "0", "100", "200", "300", "400",
    ]  # fmt: skip
    assert texts(root, "axis-title") == ["mean reward", "step"]


@pytest.mark.parametrize("missing", [None, math.nan, math.inf])
def test_a_point_without_a_mean_is_a_gap(missing: float | None) -> None:
    root = drawn(charts.rewards(steps([0.1, 0.2, missing, 0.4, 0.5, missing, 0.7]), "a"))
    assert len(of_class(root, "curve")) == 2
    assert len(of_class(root, "dots")) == 3
    assert len(of_class(root, "whisker")) == 1, "the last stands alone"


def test_a_long_pause_is_a_gap() -> None:
    ended = [0, 60, 120, 180, 9000, 9060]
    points = [point(step=None, at=NOW + each) for each in ended]
    assert len(of_class(drawn(charts.rewards(points, "a", "time")), "curve")) == 2


def test_one_point_is_a_dot_and_a_bar() -> None:
    root = drawn(charts.rewards(steps([0.5]), "a"))
    assert of_class(root, "curve") == []
    assert len(of_class(root, "dots")) == len(of_class(root, "whisker")) == 1
    assert len(of_class(drawn(charts.verdicts(steps([0.5]), "a")), "part")) == 2


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=60, unique=True))
@settings(deadline=None)
def test_bars_lie_side_by_side(numbers: list[int]) -> None:
    points = [point(step=each) for each in numbers]
    _, _, places = scales.placed(scales.with_position(points, "step"), "step", 50)
    assert [place.row["step"] for place in places] == sorted(numbers)
    for before, after in itertools.pairwise(places):
        assert before.begin < before.end <= after.begin


def test_an_empty_series_says_so() -> None:
    for made in (
        charts.rewards([], "a"),
        charts.rewards(steps([None, math.nan]), "a"),
        charts.rewards([point(step=None)], "a"),
        charts.verdicts([], "a"),
        charts.verdicts([point(step=None)], "a"),
        charts.verdicts([point(step=1, verdicts={})], "a"),
        charts.bars([], "a", "Title", "seconds"),
        charts.phases([]),
        charts.phases([("queue", 0.0), ("judging", None)]),
    ):
        root = drawn(made)
        assert root.find("svg") is None
        assert (root.findtext("p") or "").endswith(".")


def test_negative_and_huge_rewards_have_an_axis() -> None:
    root = drawn(charts.rewards(steps([-2.0, 1.0, -1.5]), "a"))
    assert texts(root, "tick")[:4] == ["-3", "-2", "-1", "0"]
    root = drawn(charts.rewards(steps([2.5e8, 1e8]), "a"))
    assert "1e8" in texts(root, "tick")
    root = drawn(charts.rewards([point(2e-9, 0.0, step=1), point(1e-9, 0.0, step=2)], "a"))
    assert "1e-9" in texts(root, "tick")


def test_the_band_of_rewards_from_0_to_1_stays_there() -> None:
    root = drawn(charts.rewards([point(0.9, 0.3, step=1), point(0.1, 0.3, step=2)], "a"))
    assert texts(root, "tick")[:6] == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]


def test_steps_that_are_one_point_are_named() -> None:
    points = [
        point(step=0, last_step=9),
        point(step=10, last_step=19),
        point(step=20, last_step=20),
    ]
    root = drawn(charts.rewards(points, "a"))
    said = [each.findtext("title") or "" for each in root.iter("rect")]
    assert [each.partition(":")[0] for each in said] == [
        "steps 0 to 9",
        "steps 10 to 19",
        "step 20",
    ]
    assert "from steps 0 to 9 to step 20" in (root.findtext("svg/desc") or "")


def test_a_verdict_has_its_ink_in_every_chart() -> None:
    assert len(set(charts.VERDICT_INKS.values())) == len(charts.VERDICT_INKS)
    for others in ({}, {"failed": 3}, {"error": 1, "timeout": 2}):
        root = drawn(charts.verdicts([point(step=1, verdicts={"no_code": 2, **others})], "a"))
        legend = ["".join(each.itertext()).split()[0] for each in root.iter("li")]
        inks = [each.get("class") for each in root.iter("pattern")]
        assert inks[legend.index("no_code")] == "ink-six"
        assert len(legend) == len(inks) == 1 + len(others)


def test_the_legend_has_names_and_numbers() -> None:
    root = drawn(
        charts.verdicts([point(step=1, verdicts={"error": 1, "passed": 3, "new": 4})], "a")
    )
    assert ["".join(each.itertext()).strip() for each in root.iter("li")] == [
        "passed 3 (37.5%)",
        "no reward 1 (12.5%)",
        "new 4 (50.0%)",
    ]
    assert root.findtext("svg/desc") == "passed 3 (37.5%); error 1 (12.5%); new 4 (50.0%)."


def test_by_time_the_height_is_a_number() -> None:
    points = [point(at=NOW + 60 * each, verdicts={"passed": 250}) for each in range(3)]
    root = drawn(charts.verdicts(points, "a", "time"))
    assert texts(root, "tick")[:4] == ["0", "50", "100", "150"]
    assert texts(root, "axis-title") == ["evaluations", "time in UTC, 2026-03-07"]


def test_hostile_names_are_texts() -> None:
    points = [point(step=1, verdicts={HOSTILE: 1})]
    for made in (
        charts.verdicts(points, "a"),
        charts.signals({HOSTILE: 3}, "a"),
        charts.phases([(HOSTILE, 1.0)]),
        charts.bars([(HOSTILE, 1.0, HOSTILE)], "a", "Title", "seconds"),
    ):
        root = drawn(made)
        assert "</svg><script>" in "".join(root.itertext())


def test_bars_without_a_value_have_their_text() -> None:
    rows = [{"from_characters": 0, "to_characters": 9, "count": 0, "mean_reward": None}]
    root = drawn(charts.lengths(rows, "a"))
    assert "0 to 9" in texts(root, "tick")
    assert texts(root, "value") == ["–"]


def test_phases_are_as_wide_as_they_took() -> None:
    root = drawn(charts.phases([("queue", 1.0), ("judging", 3.0)]))
    widths = [float(each.get("width", "")) for each in of_class(root, "hint")]
    assert widths == [scales.WIDTH / 4, 3 * scales.WIDTH / 4]
    assert "queue 1 s (25%)" in [
        " ".join("".join(each.itertext()).split()) for each in root.iter("li")
    ]


@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300), st.integers(1, 8), st.booleans())
def test_ticks_are_few_and_round(one: float, two: float, most: int, is_whole: bool) -> None:
    values = [scales.finite(each) or 0.0 for each in (one, two)]
    scale = scales.rounded(*scales.bounds(values), 0, 100, most=most, is_whole=is_whole)
    assert 2 <= len(scale.ticks) <= most + 3
    assert len({label for _, label in scale.ticks}) == len(scale.ticks)
    step = scale.ticks[1][0] - scale.ticks[0][0]
    for value in values:
        assert 0 <= scale.at(value) <= 100
        assert scale.low - 1e-8 * step <= value <= scale.high + 1e-8 * step
    assert f"{step:.3e}"[:5] in ("1.000", "2.000", "5.000")


@given(st.floats(0, 2e11), st.floats(0, 1e11))
def test_ticks_of_times_leave_room(first: float, span: float) -> None:
    scale = scales.times(first, first + span, 50, 468)
    places = [scale.at(value) for value, _ in scale.ticks]
    assert all(after - before >= 50 for before, after in itertools.pairwise(places))
    assert len(places) <= 7


def test_times_are_round_in_utc() -> None:
    midnight = 1_772_841_600  # 2026-03-07
    scale = scales.times(midnight - 7 * 3600, midnight + 5 * 3600, 50, 468)
    assert [label for _, label in scale.ticks] == ["18:00", "21:00", "Mar 7", "03:00"]
    scale = scales.times(midnight + 3, midnight + 31, 50, 468)
    assert [label for _, label in scale.ticks] == ["00:00:10", "00:00:20", "00:00:30"]
    assert scales.dates(midnight - 1, midnight) == "2026-03-06 to 2026-03-07"
