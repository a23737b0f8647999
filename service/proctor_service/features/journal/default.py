"""Files of a service in the user's state folder: its default journal, and unwritten records."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from proctor_service.features.journal.address import checked, is_plain_file, of_file
from proctor_service.features.journal.leftover import Leftover
from proctor_service.sandbox.local import seen_in_sandboxes
from proctor_service.settings import Settings
from proctor_service.settings.state_folder import (
    NoStateFolder,
    journal_path,
    make_private,
    state_folder,
)


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


def leftover_of(url: str, settings: Settings, keeps_state: bool) -> Leftover | None:
    """Return the place for unwritten records of the journal at an address; None without one.

    It is beside the journal's file. For a server it is in the user's state folder, if `keeps_state`
    allows that and sandboxes cannot see it. Raises StartError for an address that is none.
    """
    if is_plain_file(url):
        return Leftover(Path(url.removeprefix("sqlite:///")))
    address = checked(url)
    if address.get_backend_name() == "sqlite":
        return Leftover(Path(str(address.database)))
    if not keeps_state:
        return None
    name = blake2b(address.render_as_string().encode(), digest_size=8).hexdigest()
    try:
        beside = state_folder() / f"journal-{name}"
        return None if seen_in_sandboxes(settings, beside) else Leftover(beside, is_own_folder=True)
    except NoStateFolder:
        return None
