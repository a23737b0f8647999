"""Output of commands: tables, progress bars, and text safe for a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from proctor_service.cli.failures import Trouble


def progress(console: Console) -> Progress:
    """Return a progress bar that counts and disappears at the end."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def screen() -> Console:
    """Return the console for results."""
    return Console(highlight=False)


def aside() -> Console:
    """Return the console for all other output, which is stderr."""
    return Console(stderr=True, highlight=False)


def plain(text: str, width: int = 200) -> str:
    """Make text from a program safe for a terminal: a line without control characters, cut short.

    For a traceback, the result is its last line, which names the error.
    """
    if text.startswith("Traceback "):
        text = text.rstrip().rpartition("\n")[2]
    line = " ".join(text[: 4 * width].split())
    line = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line)
    return line if len(line) <= width else line[: width - 1] + "…"


def print_list(
    out: Console, title: str, columns: Iterable[Column], rows: Sequence[Sequence[str]], most: int
) -> None:
    """Print at most `most` rows below a title, and the number of the rest, if there are rows."""
    if not rows or not most:
        return
    table = Table(*columns, box=None, pad_edge=False, title=f"\n{title}", title_justify="left")
    for row in rows[:most]:
        table.add_row(*map(Text, row))
    out.print(table)
    if len(rows) > most:
        out.print(f"and {len(rows) - most} more")


def write_json(path: Path, body: dict[str, Any]) -> None:
    """Write a report to a file. Raises Trouble."""
    try:
        path.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise Trouble(f"{path}: {error.strerror}") from None
