"""What every command shares: how it speaks, how it fails, and with which status it ends.

Status 0: all is well. 1: what was asked about is not: a completion failed, isolation is incomplete.
2: the command could not do its work. 130: Ctrl-C. No trouble that a user can mend shows a traceback.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from proctor_client import ProctorError, UnauthorizedError
from proctor_service.datasets import DatasetError
from proctor_service.errors import StartError
from proctor_service.settings import Settings

UNSOUND, TROUBLE, INTERRUPTED = 1, 2, 130


class Trouble(Exception):
    """The command cannot do its work; the message says how to mend it."""


@contextmanager
def friendly() -> Iterator[None]:
    """Turns what a user can mend into a line on stderr and an exit status."""
    try:
        yield
    except KeyboardInterrupt:
        _fail("stopped", INTERRUPTED)
    except UnauthorizedError as error:
        _fail(f"{error.message}\nset PROCTOR_TOKEN to a token that the service knows", TROUBLE)
    except (Trouble, ProctorError, StartError, DatasetError) as error:
        _fail(str(error), TROUBLE)


def settings_from(**flags: object) -> Settings:
    """The settings of the environment, and above them the flags that were given.

    Raises Trouble for one that makes no sense, naming its variable.
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
    """A bar that counts, and is gone when all is done."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def screen() -> Console:
    """Where results go."""
    return Console(highlight=False)


def aside() -> Console:
    """Where everything goes that is not a result."""
    return Console(stderr=True, highlight=False)


def plain(text: str, width: int = 200) -> str:
    """Text that a program wrote, safe for a terminal: one line, no control characters, cut short.

    Of a traceback it is the last line, which says what went wrong.
    """
    if text.startswith("Traceback "):
        text = text.rstrip().rpartition("\n")[2]
    line = " ".join(text[: 4 * width].split())
    line = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line)
    return line if len(line) <= width else line[: width - 1] + "…"


def service_version() -> str:
    """The version of the service that is installed here."""
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
    """What is wrong with a variable that must be JSON; nothing of its value, which may be a secret."""
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
