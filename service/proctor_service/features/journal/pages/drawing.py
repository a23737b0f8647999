"""Parts that all charts share: the picture, its axes, textures, and texts that are hostile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from proctor_service.features.journal.pages import shown
from proctor_service.features.journal.pages.scales import CHARACTER, Scale

WIDTH = 480
TOP, BOTTOM, RIGHT = 32.0, 50.0, 12.0
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


def line_of(value: object, most: int = shown.LONGEST_NAME) -> str:
    """Return any value as one line of at most `most` characters that XML can hold."""
    return shown.name(value, most).translate(_NO_XML)


def plural(count: int, noun: str) -> str:
    """Return `1 step` or `1,200 steps`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def nothing(text: str) -> Markup:
    """Return what stands in the place of a chart that would be empty."""
    return Markup('<p class="muted">{}</p>').format(text)


def svg(
    chart_id: str, title: str, description: str, height: float, parts: Iterable[Markup]
) -> Markup:
    """Return a picture with its title and its description for a screen reader."""
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {:.0f}" role="img" '
        'aria-labelledby="{}-title" aria-describedby="{}-text">'
        '<title id="{}-title">{}</title><desc id="{}-text">{}</desc>{}</svg>'
    ).format(WIDTH, height, *(chart_id,) * 3, title, chart_id, description, Markup("").join(parts))


def text(x: float, y: float, said: str, anchor: str = "start", kind: str = "") -> Markup:
    """Return a text; it moves to the side where it would leave the picture."""
    if anchor == "middle":
        half = len(said) * CHARACTER / 2
        x = min(max(x, half), WIDTH - half) if half < WIDTH / 2 else WIDTH / 2
    return Markup('<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(
        kind or "tick", x, y, anchor, said
    )


def margin(ticks: Iterable[tuple[float, str]]) -> float:
    """Return the width that the labels of a vertical axis need."""
    return max((len(label) for _, label in ticks), default=0) * CHARACTER + _MARGIN


def axes(x: Scale, y: Scale, x_title: str, y_title: str) -> list[Markup]:
    """Return both axes with their titles, and a line across the picture for each tick of `y`."""
    parts = [text(0, 15, y_title, kind="axis-title")] if y_title else []
    for value, label in y.ticks:
        at = y.at(value)
        parts.append(_across(x.begin, x.end, at, "grid"))
        parts.append(text(x.begin - _MARGIN, at + 5, label, "end"))
    bottom = y.begin
    parts.append(_across(x.begin, x.end, bottom, "axis"))
    for value, label in x.ticks:
        at = x.at(value)
        parts.append(
            Markup('<path class="axis" d="M{:.1f} {:.1f}v4"/>').format(at, bottom)
            + text(at, bottom + 19, label, "middle")
        )
    parts.append(text(WIDTH, bottom + 42, x_title, "end", "axis-title"))
    return parts


def textures(chart_id: str, inks: Sequence[Ink]) -> Markup:
    """Return the definitions of the fills that `fill` names."""
    patterns = [
        Markup(
            '<pattern id="{}-{}" class="ink-{}" width="8" height="8" patternUnits="userSpaceOnUse">'
            '<rect width="8" height="8" fill="currentColor"/>{}</pattern>'
        ).format(chart_id, index, ink.color, _texture(ink))
        for index, ink in enumerate(inks)
    ]
    return Markup("<defs>{}</defs>").format(Markup("").join(patterns))


def fill(chart_id: str, index: int) -> str:
    """Return the value of the attribute `fill` for the ink of this index."""
    return f"url(#{chart_id}-{index})"


def legend(chart_id: str, entries: Iterable[tuple[str, str]]) -> Markup:
    """Return the names of the inks, each with a text such as its count, in the order of the inks."""
    items = [
        Markup(
            '<li><svg class="swatch" viewBox="0 0 16 16" aria-hidden="true">'
            '<rect width="16" height="16" fill="{}"/></svg> {} <span class="muted">{}</span></li>'
        ).format(fill(chart_id, index), line_of(name, 40), said)
        for index, (name, said) in enumerate(entries)
    ]
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(items))


def hint(begin: float, end: float, top: float, bottom: float, said: str) -> Markup:
    """Return an area of the picture that shows a text under the mouse."""
    return Markup(
        '<rect class="hint" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
        "<title>{}</title></rect>"
    ).format(begin, top, max(end - begin, 0.1), bottom - top, said)


def _texture(ink: Ink) -> Markup:
    path = TEXTURES[ink.texture % len(TEXTURES)]
    return Markup('<path class="texture" d="{}"/>').format(path) if path else Markup("")


def _across(begin: float, end: float, at: float, kind: str) -> Markup:
    return Markup('<path class="{}" d="M{:.1f} {:.1f}H{:.1f}"/>').format(kind, begin, at, end)
