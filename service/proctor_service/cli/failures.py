"""Failures of commands: exit status, messages, and wrong settings.

Status 0: success. 1: a negative result, for example a failed completion or incomplete isolation. 2:
the command could not do its work. 130: Ctrl-C. Errors that a user can fix are shown without a
traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from proctor_service.errors import StartError, StopError

if TYPE_CHECKING:
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
    """Return the settings of this process, overridden by the given flags.

    Raises Trouble for an invalid setting; the message names its variable.
    """
    from pydantic import ValidationError

    from proctor_service.settings import Settings
    from proctor_service.settings.sources import explained

    try:
        return Settings(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        raise Trouble(explained(error)) from None


def _fail(message: str, status: int) -> None:
    sys.stderr.write(f"proctor: {message}\n")
    raise typer.Exit(status)
