"""Shared parts of all commands: output, error messages and exit status.

Status 0: success. 1: a negative result, for example a failed completion or incomplete isolation. 2:
the command could not do its work. 130: Ctrl-C. Errors that a user can fix are shown without a
traceback.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from proctor_client import ProctorError, UnauthorizedError
from proctor_client.datasets.tasks import DatasetError
from proctor_service.errors import StartError, StopError
from proctor_service.settings import Settings

UNSOUND, TROUBLE, INTERRUPTED = 1, 2, 130


class Trouble(Exception):
    """Error that stops the command; the message says how to fix the cause."""


@contextmanager
def friendly() -> Iterator[None]:
    """Turn errors that a user can fix into a line on stderr and an exit status."""
    try:
        yield
    except KeyboardInterrupt:
        _fail("stopped", INTERRUPTED)
    except UnauthorizedError as error:
        _fail(f"{error.message}\nset PROCTOR_TOKEN to a token that the service knows", TROUBLE)
    except (Trouble, ProctorError, StartError, StopError, DatasetError) as error:
        _fail(str(error), TROUBLE)


def settings_from(**flags: object) -> Settings:
    """Return the settings from the environment, overridden by the given flags.

    Raises Trouble for an invalid setting; the message names its variable.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        lines = [_setting(each["loc"], each["msg"]) for each in error.errors(include_input=False)]
        raise Trouble("\n".join(lines)) from None
    except SettingsError as error:
        raise Trouble(_no_json(error)) from None


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
    """Print at most `most` rows below a title, and the number of the others; nothing for no rows."""
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


def service_version() -> str:
    """Return the version of the installed service."""
    try:
        return version("proctor-service")
    except PackageNotFoundError:  # run from the sources
        return "0"


def _setting(path: tuple[int | str, ...], message: str) -> str:
    message = message.removeprefix("Value error, ")
    if not path:
        return message
    name = str(path[0]).upper()
    name = name if name.startswith("PROCTOR_") else f"PROCTOR_{name}"
    return ": ".join([name, *map(str, path[1:]), message])


def _no_json(error: SettingsError) -> str:
    """Return the error message for a variable with invalid JSON.

    The message omits the value, which may be a secret.
    """
    found = re.search(r'field "(\w+)"', str(error))
    field = found[1] if found else "?"
    cause = error.__cause__
    at = (
        f": {cause.msg} at line {cause.lineno} column {cause.colno}"
        if isinstance(cause, json.JSONDecodeError)
        else ""
    )
    return f'error parsing value for field "{field}": PROCTOR_{field.upper()} must be JSON{at}'


def _fail(message: str, status: int) -> None:
    sys.stderr.write(f"proctor: {message}\n")
    raise typer.Exit(status)
