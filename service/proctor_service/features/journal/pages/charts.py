"""Charts as SVG, drawn without a script and without a style in the markup.

Rows are those of `Reader.job` and `Reader.figures`, and names in them are hostile. A picture is 480
units wide and scales with its place; its texts are readable at 343 pixels. `chart_id` is unique in
the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from proctor_service.features.journal.pages import drawing, placing, scales, shown
from proctor_service.features.journal.pages.drawing import Ink
from proctor_service.features.journal.pages.placing import MOST_APART, By, Place, Row
from proctor_service.features.journal.pages.scales import CHARACTER, Scale

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
_FLOOR = _HEIGHT - drawing.BOTTOM
_ROW, _BAR = 30.0, 18.0
_LONGEST_LABEL = 20


def rewards(points: Sequence[Row], chart_id: str, by: By = "step") -> Markup:
    """Return a line of the mean reward, with a band of one standard deviation to each side.

    A point without a finite mean leaves a gap. The band stays within 0 and 1 if all means do.
    """
    points = placing.with_position(points, by)
    means = [_mean(point) for point in points]
    values = [mean for mean in means if mean is not None]
    if not values:
        return drawing.nothing(f"No evaluation with a reward has a {by}.")
    are_shares = min(values) >= 0 and max(values) <= 1
    edges = [edge for point in points for edge in _band(point, are_shares)]
    y = scales.rounded(*scales.bounds(edges), _FLOOR, drawing.TOP)
    x, x_title, places = placing.placed(points, by, drawing.margin(y.ticks))
    parts = drawing.axes(x, y, x_title, "mean reward")
    for run in _runs(places):
        along = [f"{place.middle:.1f} {y.at(_mean(place.row) or 0.0):.1f}" for place in run]
        bands = [(place.middle, *map(y.at, _band(place.row, are_shares))) for place in run]
        below = [f"{middle:.1f} {low:.1f}" for middle, low, _ in bands]
        above = [f"{middle:.1f} {high:.1f}" for middle, _, high in reversed(bands)]
        if len(run) > 1:
            parts += [_path("band", "L".join(below + above)), _path("curve", "L".join(along))]
        else:
            parts.append(_path("whisker", f"{below[0]}L{above[0]}"))
        if len(run) == 1 or len(places) <= MOST_APART:
            parts.append(_path("dots", "h0M".join(along) + "h0"))
    for place in places:
        mean, spread = place.row["mean_reward"], place.row["spread"]
        said = f"{place.label}: {shown.number(mean)} ± {shown.number(spread)}"
        parts.append(drawing.hint(place.begin, place.end, drawing.TOP, _FLOOR, said))
    text = (
        f"{drawing.plural(len(places), 'point')}, from {places[0].label} to {places[-1].label}. "
        f"The mean reward is {shown.number(values[0])} at first and {shown.number(values[-1])} at "
        f"last, between {shown.number(min(values))} and {shown.number(max(values))}."
    )
    return drawing.svg(chart_id, f"Mean reward by {by}", text, _HEIGHT, parts)


def verdicts(points: Sequence[Row], chart_id: str, by: By = "step") -> Markup:
    """Return the verdicts of each point on top of each other, and a legend.

    By step, heights are shares of the point's evaluations; by time, they are numbers of evaluations.
    """
    points = [
        point for point in placing.with_position(points, by) if sum(point["verdicts"].values())
    ]
    if not points:
        return drawing.nothing(f"No evaluation has a {by}.")
    totals: dict[str, int] = {}
    for point in points:
        for name, count in point["verdicts"].items():
            totals[name] = totals.get(name, 0) + count
    names = [name for name in VERDICT_INKS if totals.get(name)]
    names += sorted(name for name in totals if totals[name] and name not in VERDICT_INKS)
    most = max(sum(point["verdicts"].values()) for point in points)
    y = scales.rounded(0, most, _FLOOR, drawing.TOP, is_whole=True)
    y_title = "evaluations"
    if by == "step":
        ticks = tuple((share / 4, f"{share * 25} %") for share in range(5))
        y, y_title = Scale(0.0, 1.0, _FLOOR, drawing.TOP, ticks), "share of the evaluations"
    x, x_title, places = placing.placed(points, by, drawing.margin(y.ticks))
    inks = [VERDICT_INKS.get(name, _UNKNOWN) for name in names]
    parts = [drawing.textures(chart_id, inks), *drawing.axes(x, y, x_title, y_title)]
    floors = [0.0] * len(places)
    for index, name in enumerate(names):
        tops = [
            floor + place.row["verdicts"].get(name, 0) / _whole(place.row, by)
            for floor, place in zip(floors, places, strict=True)
        ]
        shape = "".join(_outlines(places, list(map(y.at, floors)), list(map(y.at, tops))))
        parts.append(_filled(shape, drawing.fill(chart_id, index)))
        floors = tops
    shown_names = {name: drawing.line_of(name, 40) for name in names}
    for place in places:
        found = place.row["verdicts"]
        counts = (f"{shown_names[name]} {found[name]:,}" for name in names if found.get(name))
        parts.append(
            drawing.hint(
                place.begin, place.end, drawing.TOP, _FLOOR, f"{place.label}: {', '.join(counts)}"
            )
        )
    number = sum(totals.values())
    said = {name: f"{totals[name]:,} ({totals[name] / number:.1%})" for name in names}
    text = "; ".join(f"{shown_names[name]} {said[name]}" for name in names) + "."
    picture = drawing.svg(chart_id, f"Verdicts by {by}", text, _HEIGHT, parts)
    return picture + drawing.legend(
        chart_id,
        [("no reward" if name == "error" else name, said[name]) for name in names],
    )


def bars(
    rows: Sequence[tuple[str, float | None, str]],
    chart_id: str,
    title: str,
    value_title: str,
    *,
    most: float | None = None,
    is_whole: bool = False,
) -> Markup:
    """Return a horizontal bar for each row: its label, its value, and the value as a text.

    `most`: end of the axis, such as 1 for shares; by default it fits the values. `is_whole`: ticks
    are integers. A row without a finite value has a label and a text alone.
    """
    if not rows:
        return drawing.nothing("No values yet.")
    values = [scales.finite(value) for _, value, _ in rows]
    labels = [drawing.line_of(label, _LONGEST_LABEL) for label, _, _ in rows]
    texts = [drawing.line_of(text, _LONGEST_LABEL) for _, _, text in rows]
    left = max(map(len, labels)) * CHARACTER + 8
    right = drawing.WIDTH - max(map(len, texts)) * CHARACTER - 8
    ends = [*(value for value in values if value is not None), *([] if most is None else [most])]
    x = scales.rounded(*scales.bounds(ends), left, right, most=4, is_whole=is_whole)
    floor = _ROW * len(rows)
    parts = [_path("grid", f"{x.at(value):.1f} 0V{floor}") for value, _ in x.ticks]
    parts += drawing.axes(x, Scale(0.0, 1.0, floor, 0.0, ()), value_title, "")
    for index, (label, value, text) in enumerate(zip(labels, values, texts, strict=True)):
        top = _ROW * index + (_ROW - _BAR) / 2
        begin, end = sorted((x.at(0.0), x.at(value or 0.0)))
        parts.append(drawing.text(left - 8, top + 14, label, "end"))
        parts.append(_path("bar", f"{begin:.1f} {top:.1f}H{end:.1f}v{_BAR}H{begin:.1f}z"))
        parts.append(drawing.text(end + 6, top + 14, text, kind="value"))
    said = "; ".join(f"{label}: {text}" for label, text in zip(labels, texts, strict=True)) + "."
    return drawing.svg(chart_id, title, said, floor + drawing.BOTTOM, parts)


def pass_at(chances: Mapping[str, float | None], chart_id: str) -> Markup:
    """Return a bar of pass@k for each k; `chances` as in the figures of a job."""
    rows = [(f"k = {k}", chance, shown.percent(chance)) for k, chance in chances.items()]
    return bars(rows, chart_id, "pass@k", "share of the tasks", most=1.0)


def lengths(rows: Sequence[Row], chart_id: str) -> Markup:
    """Return a bar of the mean reward for each range of lengths; rows as in the figures of a job."""
    found = [
        (_characters(row), row["mean_reward"], shown.number(row["mean_reward"])) for row in rows
    ]
    return bars(found, chart_id, "Mean reward by length", "mean reward")


def signals(counts: Mapping[str, int], chart_id: str) -> Markup:
    """Return a bar of the number of evaluations for each signal of a hack."""
    rows = [(name, count, f"{count:,}") for name, count in counts.items()]
    return bars(rows, chart_id, "Signals of hacks", "evaluations", is_whole=True)


def durations(rows: Sequence[tuple[str, float | None]], chart_id: str) -> Markup:
    """Return a bar of each duration in seconds; unlike `phases`, they need not add up."""
    found = [(name, length, shown.duration(length)) for name, length in rows]
    return bars(found, chart_id, "Durations", "seconds")


def phases(
    parts: Sequence[tuple[str, float | None]], chart_id: str = "phases", title: str = "Phases"
) -> Markup:
    """Return one horizontal bar of consecutive parts in seconds, and a legend with durations."""
    lengths = [max(scales.finite(seconds) or 0.0, 0.0) for _, seconds in parts]
    longest = max(lengths, default=0.0)
    if not longest:
        return drawing.nothing("No time was measured.")
    shares = [each / longest for each in lengths]  # the sum of lengths may be infinite
    whole = sum(shares)
    inks = [Ink(_PHASES[index % len(_PHASES)], index) for index in range(len(parts))]
    pieces, entries, begin = [drawing.textures(chart_id, inks)], [], 0.0
    for index, ((name, seconds), share) in enumerate(zip(parts, shares, strict=True)):
        end = begin + share / whole * drawing.WIDTH
        shape = f"M{begin:.1f} 2H{end:.1f}V30H{begin:.1f}z"
        pieces.append(_filled(shape, drawing.fill(chart_id, index), "phase"))
        known = scales.finite(seconds)
        said = "–" if known is None else f"{shown.duration(known)} ({share / whole:.0%})"
        pieces.append(drawing.hint(begin, end, 2, 30, f"{drawing.line_of(name, 40)}: {said}"))
        entries.append((name, said))
        begin = end
    text = "; ".join(f"{drawing.line_of(name, 40)} {said}" for name, said in entries) + "."
    return drawing.svg(chart_id, title, text, 32, pieces) + drawing.legend(chart_id, entries)


def _characters(row: Row) -> str:
    first, last = row["from_characters"], row["to_characters"]
    return f"from {first:,}" if last is None else f"{first:,} to {last:,}"


def _whole(point: Row, by: By) -> float:
    """Return by what a point's numbers are divided: all of them for shares, 1 for numbers."""
    return float(sum(point["verdicts"].values())) if by == "step" else 1.0


def _mean(point: Row) -> float | None:
    return scales.finite(point["mean_reward"])


def _band(point: Row, are_shares: bool) -> tuple[float, float]:
    """Return mean minus spread and mean plus spread; both 0 without a mean."""
    mean, spread = _mean(point) or 0.0, scales.finite(point["spread"]) or 0.0
    low, high = mean - spread, mean + spread
    return (max(low, 0.0), min(high, 1.0)) if are_shares else (low, high)


def _runs(places: Sequence[Place]) -> Iterator[list[Place]]:
    """Yield places with a mean that follow each other, without a hole between them."""
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
    """Yield an outline around bars that touch, so that no seams show between them."""
    upper, lower, end = "", "", None
    for place, floor, top in zip(places, floors, tops, strict=True):
        if floor - top < 0.05:
            continue
        if end is None or place.begin > end + 0.05:
            if upper:
                yield f"{upper}{lower}z"
            upper, lower = f"M{place.begin:.1f} {floor:.1f}", ""
        upper += f"V{top:.1f}H{place.end:.1f}"
        lower = f"V{floor:.1f}H{place.begin:.1f}{lower}"
        end = place.end
    if upper:
        yield f"{upper}{lower}z"


def _path(kind: str, steps: str) -> Markup:
    return Markup('<path class="{}" d="M{}"/>').format(kind, steps)


def _filled(shape: str, fill: str, kind: str = "part") -> Markup:
    return Markup('<path class="{}" d="{}" fill="{}"/>').format(kind, shape, fill)
