"""The default journal of a service: a file in the user's state folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from proctor_service.features.journal.address import of_file
from proctor_service.sandbox.local import seen_in_sandboxes
from proctor_service.settings import Settings
from proctor_service.settings.state_folder import NoStateFolder, journal_path, make_private


def own_journal(
    settings: Settings, is_seen: Callable[[Settings, Path], bool] = seen_in_sandboxes
) -> tuple[str, str]:
    """Return the address of the journal, whose file is made, and an empty text.

    Where impossible, the address is `off`, and the text says why. `is_seen`: tells whether
    sandboxes see a file.
    """
    try:
        path = journal_path(settings.address())
        if is_seen(settings, path):
            raise NoStateFolder(f"submissions could read {path}")
        make_private(path)
    except NoStateFolder as error:
        return "off", str(error)
    return of_file(path), ""
