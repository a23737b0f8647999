"""The disk of the store of images, for `proctor doctor`."""

from __future__ import annotations

import os
from pathlib import Path

from proctor_service.sandbox.interface import MachineCheck
from proctor_service.settings import Settings
from proctor_service.settings.state_folder import NoStateFolder, state_folder


def image_store_checks(settings: Settings) -> list[MachineCheck]:
    """Return the check of the store's file system, where a service has environments or images."""
    if settings.environments is None and not settings.images:
        return []
    try:
        folder = settings.environments_folder or state_folder() / "environments"
    except NoStateFolder:
        return []
    kind = _file_system(folder.absolute())
    return [
        MachineCheck(
            "image_store",
            kind != "overlay",
            f"{folder} lies on {kind or 'an unknown file system'}",
            "set PROCTOR_ENVIRONMENTS_FOLDER to a volume: images do not work on an overlay",
        )
    ]


def _file_system(folder: Path) -> str:
    """Return the type of the file system of a folder, or of its first existing parent."""
    place = next(each for each in (folder, *folder.parents) if each.exists())
    device = place.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[2] == number:
            return fields[fields.index("-") + 1]
    return ""
