"""Charts as SVG, drawn without a script and without a style in the markup (`_chart.html`).

Rows come from `Reader.job` and `Reader.figures`, and names in them are hostile. A picture is 480
units wide and scales with its place; its texts are readable at 343 pixels. `chart_id` is unique in
the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from proctor_service.features.journal.pages import scales, shown
from proctor_service.features.journal.pages.scales import (
    CHARACTER,
    MOST_APART,
    WIDTH,
    By,
    Place,
    Row,
    Scale,
)

TOP, BOTTOM = 32.0, 50.0
_MARGIN = 8.0
_NO_XML = str.maketrans({"\ufffe": "\ufffd", "\uffff": "\ufffd"})
TEXTURES = (
    "",
    "M-2 2L2 -2M0 8L8 0M6 10L10 6",
    "M-2 6L2 10M0 0L8 8M6 -2L10 2",
    "M0 4H8",
    "M4 0V8",
    "M4 4h.01",
    "M0 4H8M4 0V8",
    "M0 8L8 0M0 0L8 8",
    "M0 2H8M0 6H8",
    "M2 0V8M6 0V8",
)
"""Lines in a square of 8 by 8 units. A texture tells parts of a chart apart without their colour."""


@dataclass(frozen=True, slots=True)
class Ink:
    """Colour and texture. `color`: a class of the style sheet, `ink-` before it left out."""

    color: str
    texture: int = 0

    @property
    def lines(self) -> str:
        """Path of the texture; may be empty."""
        return TEXTURES[self.texture % len(TEXTURES)]


@dataclass(slots=True)
class Chart:
    """A picture. `text`: its description for a screen reader, or the reason why the picture is empty.

    `paths`: class, path and the index of an ink. `texts`: class, x, y, anchor and text. `hints`: x, y,
    width, height and the text under the mouse. `legend`: the name of each ink, and a text beside it.
    """

    id: str
    title: str
    text: str = ""
    height: float = 0.0
    inks: Sequence[Ink] = ()
    legend: Sequence[tuple[str, str]] = ()
    paths: list[tuple[str, str, int | None]] = field(default_factory=list)
    texts: list[tuple[str, float, float, str, str]] = field(default_factory=list)
    hints: list[tuple[float, float, float, float, str]] = field(default_factory=list)

    def path(self, kind: str, steps: str, ink: int | None = None) -> None:
        """Add a path from the first of its steps."""
        self.paths.append((kind, f"M{steps}", ink))

    def label(
        self, x: float, y: float, text: str, anchor: str = "start", kind: str = "tick"
    ) -> None:
        """Add a text, moved to the side as far as needed to stay within the picture."""
        if anchor == "middle":
            half = min(len(text) * CHARACTER, WIDTH) / 2
            x = min(max(x, half), WIDTH - half)
        self.texts.append((kind, x, y, anchor, text))

    def hint(self, begin: float, end: float, top: float, bottom: float, text: str) -> None:
        """Add an area with a text under the mouse."""
        self.hints.append((begin, top, max(end - begin, 0.1), bottom - top, text))

    def axes(self, x: Scale, y: Scale, x_title: str, y_title: str) -> None:
        """Add both axes with their titles, and a line across the picture for each tick of `y`."""
        if y_title:
            self.label(0, 15, y_title, kind="axis-title")
        for value, label in y.ticks:
            at = y.at(value)
            self.path("grid", f"{x.begin:.1f} {at:.1f}H{x.end:.1f}")
            self.label(x.begin - _MARGIN, at + 5, label, "end")
        bottom = y.begin
        self.path("axis", f"{x.begin:.1f} {bottom:.1f}H{x.end:.1f}")
        for value, label in x.ticks:
            self.path("axis", f"{x.at(value):.1f} {bottom:.1f}v4")
            self.label(x.at(value), bottom + 19, label, "middle")
        self.label(WIDTH, bottom + 42, x_title, "end", "axis-title")


VERDICT_INKS: Mapping[str, Ink] = {
    "passed": Ink("good"),
    "failed": Ink("bad", 1),
    "runtime_error": Ink("seven", 2),
    "syntax_error": Ink("four", 3),
    "timeout": Ink("one", 4),
    "memory_limit": Ink("eight", 5),
    "output_limit": Ink("eight", 6),
    "early_exit": Ink("text", 7),
    "no_code": Ink("six", 8),
    "error": Ink("null", 9),
}
"""Inks in the order of the stack, the lowest first; `error` stands for no reward."""
_UNKNOWN = Ink("text", 8)
_PHASES = ("one", "four", "two", "five", "eight", "seven", "three", "six")
_HEIGHT = 260.0
_FLOOR = _HEIGHT - BOTTOM
_ROW, _BAR = 30.0, 18.0
_LONGEST_LABEL = 20


def rewards(points: Sequence[Row], chart_id: str, by: By = "step") -> Chart:
    """Return a line of the mean reward, with a band of one standard deviation to each side.

    A point without a finite mean leaves a gap. The band stays within 0 and 1 if all means do.
    """
    chart = Chart(chart_id, f"Mean reward by {by}", f"No evaluation with a reward has a {by}.")
    points = scales.with_position(points, by)
    values = [mean for point in points if (mean := _mean(point)) is not None]
    if not values:
        return chart
    are_shares = min(values) >= 0 and max(values) <= 1
    edges = [edge for point in points for edge in _band(point, are_shares)]
    y = scales.rounded(*scales.bounds(edges), _FLOOR, TOP)
    x, x_title, places = scales.placed(points, by, _left(y))
    chart.height = _HEIGHT
    chart.axes(x, y, x_title, "mean reward")
    for run in _runs(places):
        along = [f"{place.middle:.1f} {y.at(_mean(place.row) or 0.0):.1f}" for place in run]
        bands = [(place.middle, *map(y.at, _band(place.row, are_shares))) for place in run]
        below = [f"{middle:.1f} {low:.1f}" for middle, low, _ in bands]
        above = [f"{middle:.1f} {high:.1f}" for middle, _, high in reversed(bands)]
        if len(run) > 1:
            chart.path("band", "L".join(below + above))
            chart.path("curve", "L".join(along))
        else:
            chart.path("whisker", f"{below[0]}L{above[0]}")
        if len(run) == 1 or len(places) <= MOST_APART:
            chart.path("dots", "h0M".join(along) + "h0")
    for place in places:
        mean_text, spread = (shown.number(place.row[name]) for name in ("mean_reward", "spread"))
        chart.hint(place.begin, place.end, TOP, _FLOOR, f"{place.label}: {mean_text} ± {spread}")
    first, last, least, most = map(shown.number, (values[0], values[-1], min(values), max(values)))
    count = "1 point" if len(places) == 1 else f"{len(places):,} points"
    chart.text = (
        f"{count}, from {places[0].label} to {places[-1].label}. The mean reward is {first} at first "
        f"and {last} at last, between {least} and {most}."
    )
    return chart


def verdicts(points: Sequence[Row], chart_id: str, by: By = "step") -> Chart:
    """Return the verdicts of each point on top of each other, and a legend.

    By step, heights are shares of the point's evaluations; by time, they are numbers of evaluations.
    """
    chart = Chart(chart_id, f"Verdicts by {by}", f"No evaluation has a {by}.")
    points = [point for point in scales.with_position(points, by) if _count(point)]
    if not points:
        return chart
    totals = Counter[str]()
    for point in points:
        totals.update(point["verdicts"])
    names = [name for name in VERDICT_INKS if totals[name]]
    names += sorted(name for name in totals if totals[name] and name not in VERDICT_INKS)
    if by == "step":
        ticks = tuple((share / 4, f"{share * 25} %") for share in range(5))
        y, y_title = Scale(0.0, 1.0, _FLOOR, TOP, ticks), "share of the evaluations"
    else:
        y = scales.rounded(0, max(map(_count, points)), _FLOOR, TOP, is_whole=True)
        y_title = "evaluations"
    x, x_title, places = scales.placed(points, by, _left(y))
    chart.height = _HEIGHT
    chart.inks = [VERDICT_INKS.get(name, _UNKNOWN) for name in names]
    chart.axes(x, y, x_title, y_title)
    floors = [0.0] * len(places)
    for index, name in enumerate(names):
        tops = [
            floor + place.row["verdicts"].get(name, 0) / (_count(place.row) if by == "step" else 1)
            for floor, place in zip(floors, places, strict=True)
        ]
        for outline in _outlines(places, list(map(y.at, floors)), list(map(y.at, tops))):
            chart.path("part", outline, index)
        floors = tops
    lines = {name: _line(name) for name in names}
    for place in places:
        found = place.row["verdicts"]
        counts = ", ".join(f"{lines[name]} {found[name]:,}" for name in names if found.get(name))
        chart.hint(place.begin, place.end, TOP, _FLOOR, f"{place.label}: {counts}")
    sizes = {name: f"{totals[name]:,} ({totals[name] / totals.total():.1%})" for name in names}
    chart.text = "; ".join(f"{lines[name]} {sizes[name]}" for name in names) + "."
    chart.legend = [
        ("no reward" if name == "error" else lines[name], sizes[name]) for name in names
    ]
    return chart


def bars(
    rows: Sequence[tuple[str, float | None, str]],
    chart_id: str,
    title: str,
    value_title: str,
    *,
    most: float | None = None,
    is_whole: bool = False,
) -> Chart:
    """Return a horizontal bar for each row: its label, its value, and the value as a text.

    `most`: end of the axis, for example 1 for shares; default: fits the values. `is_whole`: ticks
    are integers. A row without a finite value has a label and a text alone.
    """
    chart = Chart(chart_id, title, "No values yet.")
    if not rows:
        return chart
    values = [scales.finite(value) for _, value, _ in rows]
    labels = [_line(label, _LONGEST_LABEL) for label, _, _ in rows]
    texts = [_line(text, _LONGEST_LABEL) for _, _, text in rows]
    left = max(map(len, labels)) * CHARACTER + 8
    right = WIDTH - max(map(len, texts)) * CHARACTER - 8
    ends = [value for value in (*values, most) if value is not None]
    x = scales.rounded(*scales.bounds(ends), left, right, most=4, is_whole=is_whole)
    floor = _ROW * len(rows)
    chart.height = floor + BOTTOM
    for value, _ in x.ticks:
        chart.path("grid", f"{x.at(value):.1f} 0V{floor}")
    chart.axes(x, Scale(0.0, 1.0, floor, 0.0, ()), value_title, "")
    for index, (label, found, text) in enumerate(zip(labels, values, texts, strict=True)):
        top = _ROW * index + (_ROW - _BAR) / 2
        begin, end = sorted((x.at(0.0), x.at(found or 0.0)))
        chart.label(left - 8, top + 14, label, "end")
        chart.path("bar", f"{begin:.1f} {top:.1f}H{end:.1f}v{_BAR}H{begin:.1f}z")
        chart.label(end + 6, top + 14, text, kind="value")
    described = (f"{label}: {text}" for label, text in zip(labels, texts, strict=True))
    chart.text = "; ".join(described) + "."
    return chart


def pass_at(chances: Mapping[str, float | None], chart_id: str) -> Chart:
    """Return a bar of pass@k for each k; `chances` as in the figures of a job."""
    rows = [(f"k = {k}", chance, shown.percent(chance)) for k, chance in chances.items()]
    return bars(rows, chart_id, "pass@k", "share of the tasks", most=1.0)


def lengths(rows: Sequence[Row], chart_id: str) -> Chart:
    """Return a bar of the mean reward for each range of lengths; rows as in the figures of a job."""
    found = [
        (_characters(row), row["mean_reward"], shown.number(row["mean_reward"])) for row in rows
    ]
    return bars(found, chart_id, "Mean reward by length", "mean reward")


def signals(counts: Mapping[str, int], chart_id: str) -> Chart:
    """Return a bar of the number of evaluations for each signal of a hack."""
    rows = [(name, count, f"{count:,}") for name, count in counts.items()]
    return bars(rows, chart_id, "Signals of hacks", "evaluations", is_whole=True)


def durations(rows: Sequence[tuple[str, float | None]], chart_id: str) -> Chart:
    """Return a bar of each duration in seconds; unlike `phases`, the sum is free."""
    found = [(name, length, shown.duration(length)) for name, length in rows]
    return bars(found, chart_id, "Durations", "seconds")


def phases(
    parts: Sequence[tuple[str, float | None]], chart_id: str = "phases", title: str = "Phases"
) -> Chart:
    """Return one horizontal bar of consecutive parts in seconds, and a legend with durations."""
    chart = Chart(chart_id, title, "No time was measured.")
    seconds = [scales.finite(each) for _, each in parts]
    longest = max((each or 0.0 for each in seconds), default=0.0)
    if longest <= 0:
        return chart
    shares = [max(each or 0.0, 0.0) / longest for each in seconds]  # their sum is finite
    chart.height = 32
    chart.inks = [Ink(_PHASES[index % len(_PHASES)], index) for index in range(len(parts))]
    entries, begin = [], 0.0
    for index, ((name, _), length, share) in enumerate(zip(parts, seconds, shares, strict=True)):
        end = begin + share / sum(shares) * WIDTH
        chart.path("phase", f"{begin:.1f} 2H{end:.1f}V30H{begin:.1f}z", index)
        part = f"{shown.duration(length)} ({share / sum(shares):.0%})"
        entries.append((_line(name), "–" if length is None else part))
        chart.hint(begin, end, 2, 30, ": ".join(entries[-1]))
        begin = end
    chart.text = "; ".join(map(" ".join, entries)) + "."
    chart.legend = entries
    return chart


def _characters(row: Row) -> str:
    first, last = row["from_characters"], row["to_characters"]
    return f"from {first:,}" if last is None else f"{first:,} to {last:,}"


def _count(point: Row) -> int:
    return sum(point["verdicts"].values())


def _left(y: Scale) -> float:
    """Return the width of the labels of a vertical axis."""
    return max((len(label) for _, label in y.ticks), default=0) * CHARACTER + _MARGIN


def _line(value: object, most: int = 40) -> str:
    """Return any value as a line of at most `most` characters, valid in XML."""
    return shown.name(value, most).translate(_NO_XML)


def _mean(point: Row) -> float | None:
    return scales.finite(point["mean_reward"])


def _band(point: Row, are_shares: bool) -> tuple[float, float]:
    """Return mean minus spread and mean plus spread; both 0 without a mean."""
    mean, spread = _mean(point) or 0.0, scales.finite(point["spread"]) or 0.0
    low, high = mean - spread, mean + spread
    return (max(low, 0.0), min(high, 1.0)) if are_shares else (low, high)


def _runs(places: Sequence[Place]) -> Iterator[list[Place]]:
    """Yield runs of places with a mean, without a hole between them."""
    run: list[Place] = []
    for place in places:
        has_mean = _mean(place.row) is not None
        if run and not (has_mean and run[-1].is_before(place)):
            yield run
            run = []
        if has_mean:
            run.append(place)
    if run:
        yield run


def _outlines(
    places: Sequence[Place], floors: Sequence[float], tops: Sequence[float]
) -> Iterator[str]:
    """Yield outlines around touching bars, without seams between the bars."""
    upper, lower, end = "", "", None
    for place, floor, top in zip(places, floors, tops, strict=True):
        if floor - top < 0.05:
            continue
        if end is None or place.begin > end + 0.05:
            if upper:
                yield f"{upper}{lower}z"
            upper, lower = f"{place.begin:.1f} {floor:.1f}", ""
        upper += f"V{top:.1f}H{place.end:.1f}"
        lower = f"V{floor:.1f}H{place.begin:.1f}{lower}"
        end = place.end
    if upper:
        yield f"{upper}{lower}z"
