"""Failures of commands: exit status, messages, and settings that are wrong.

Status 0: success. 1: a negative result, for example a failed completion or incomplete isolation. 2:
the command could not do its work. 130: Ctrl-C. Errors that a user can fix are shown without a
traceback.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from proctor_service.errors import StartError, StopError

if TYPE_CHECKING:
    from pydantic_settings import SettingsError

    from proctor_service.settings import Settings

UNSOUND, TROUBLE, INTERRUPTED = 1, 2, 130


class Trouble(Exception):
    """Error that stops the command; the message says how to fix the cause."""


@contextmanager
def friendly() -> Iterator[None]:
    """Turn errors that a user can fix into a line on stderr and an exit status.

    A command that asks a service adds `client_errors` of `target.py`.
    """
    try:
        yield
    except KeyboardInterrupt:
        _fail("stopped", INTERRUPTED)
    except (Trouble, StartError, StopError) as error:
        _fail(str(error), TROUBLE)


def settings_from(**flags: object) -> Settings:
    """Return the settings from the environment, overridden by the given flags.

    Raises Trouble for an invalid setting; the message names its variable.
    """
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from proctor_service.settings import Settings

    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        lines = [_setting(each["loc"], each["msg"]) for each in error.errors(include_input=False)]
        raise Trouble("\n".join(lines)) from None
    except SettingsError as error:
        raise Trouble(_no_json(error)) from None


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
