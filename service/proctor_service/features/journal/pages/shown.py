"""Values in the form of pages: hostile texts without invisible characters, and times."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime

from markupsafe import Markup, escape

LONGEST_TEXT = 100_000
LONGEST_NAME = 120
_INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
_MOST_MARKS = 4


def text(value: str | None, most: int = LONGEST_TEXT) -> str:
    """Return a text in lines, cut to `most` characters, with names (`⟨U+202E⟩`) for invisible ones.

    Marks over one character are cut as well: a pile of them covers other lines of the page.
    """
    value = value or ""
    cut = value[:most]
    shown = cut if cut.isascii() and cut.isprintable() else "".join(_visible(cut))
    rest = len(value) - most
    return f"{shown}\n… {rest:,} more characters" if rest > 0 else shown


def name(value: object, most: int = LONGEST_NAME) -> str:
    """Return a value in one line, cut to `most` characters; `–` for a missing value."""
    if value is None or value == "":
        return "–"
    line = text(str(value)[: most + 1], most + 1).replace("\n", "␊").replace("\t", "␉")
    return line if len(line) <= most else line[: most - 1] + "…"


def marked(value: str | None, begin: int | None, end: int | None) -> Markup:
    """Return a text with its part from `begin` to `end` in `<mark>`, both cut as by `text`."""
    value = value or ""
    if begin is None or end is None:
        return escape(text(value))
    most = LONGEST_TEXT
    before, part, after = value[:begin], value[begin:end], value[end:]
    parts = [
        escape(text(before[-most:] if len(before) > most else before)),
        Markup("<mark>{}</mark>").format(text(part)),
        escape(text(after)),
    ]
    skipped = len(before) - most
    first = escape(f"… {skipped:,} characters\n") if skipped > 0 else Markup("")
    return first + Markup("").join(parts)


def when(seconds: float) -> Markup:
    """Return a time, given in seconds since the epoch, in UTC."""
    at = datetime.fromtimestamp(seconds, UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        at.isoformat(timespec="seconds"), at.strftime("%Y-%m-%d %H:%M:%S")
    )


def duration(seconds: float | None) -> str:
    """Return a duration with its unit."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:,.0f} s"


def number(value: float | None) -> str:
    """Return a number with up to four digits."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def percent(share: float | None) -> str:
    """Return a share of 1 as a percentage."""
    return "–" if share is None else f"{share:.1%}"


def _visible(value: str) -> list[str]:
    shown, marks = [], 0
    for each in value:
        if each in "\n\t" or (each.isascii() and each.isprintable()):
            shown.append(each)
            marks = 0
            continue
        category = unicodedata.category(each)
        if category in _INVISIBLE:
            shown.append(_named(each))
            marks = 0
        elif category in ("Mn", "Me"):
            marks += 1
            if marks <= _MOST_MARKS:
                shown.append(each)
        else:
            shown.append(each)
            marks = 0
    return shown


def _named(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return f"⟨U+{code:04X}⟩"
